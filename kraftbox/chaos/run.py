"""Shell: One chaos run: clients, faults in sequence, a final read, a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftbox.chaos import replicas
from kraftbox.chaos.checks import BROKEN, Finding, judge
from kraftbox.chaos.deadline import within
from kraftbox.chaos.faults import KINDS, Hit
from kraftbox.chaos.history import History
from kraftbox.chaos.ledger import Ledger
from kraftbox.chaos.scene import Scene
from kraftbox.chaos.schedule import Step
from kraftbox.chaos.target import Target, TargetError
from kraftbox.chaos.workload import Load, Workload
from protocol.errors import ApiError, ProtocolError

WHOLE_S_MAX = 60.0
LAST_LOOK_S = 20.0
QUIET_S = 2.0
CATCH_UP_S_MAX = 10.0
FINAL_READ_MS_MAX = 60_000.0
BEGIN_S_MAX = 60.0
ACTION_S_MAX = 300.0
"""The longest action is a clean restart of all nodes in turn."""
LAST_SENDS_S_MAX = 200.0
CLOSE_S_MAX = 30.0
NOT_WHOLE = Finding(
    "P26 not-whole", BROKEN, 1, "nodes or replicas are missing after the last fault", []
)


class Pace(NamedTuple):
    """Delays of a run: before its first fault, and after the end of each fault.

    After a fault the run also waits at least QUIET_S once the cluster is whole again.
    """

    warm_up_s: float = 3.0
    recovery_s: float = 0.0


QUICK = Pace()


def history_clock() -> Callable[[], int]:
    """Return the clock of a history, in us: the wall clock at its start, then monotonic."""
    start_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000
    return lambda: start_us + time.monotonic_ns() // 1000


@dataclass
class Entry:
    """A line of the timeline.

    Times are seconds since the start. `gap_s` is the longest time that a partition went without an
    acknowledgement, from the fault's begin to the next one's.
    """

    kind: str
    hit: Hit
    begin_s: float
    end_s: float = 0.0
    whole_s: float | None = None
    gap_s: float = 0.0
    trouble: str = ""


@dataclass
class RunResult:
    """The result of a run."""

    history: History
    findings: list[Finding]
    timeline: list[Entry]
    trouble: list[str] = field(default_factory=list)
    ended_early: bool = False


@dataclass
class Progress:
    """The progress of a run, for its display."""

    now_s: float
    ok: int
    failed: int
    unknown: int
    read: int
    doing: str


class Run:
    """A run; call `go` once. `show` is called with the current progress every second."""

    def __init__(
        self,
        target: Target,
        load: Load,
        seed: int,
        *,
        show: Callable[[Progress], None] = lambda _: None,
        about: dict[str, object] | None = None,
        pace: Pace = QUICK,
    ) -> None:
        self.target = target
        self.load = load
        self._pace = pace
        self._scene = Scene(target, load.topic, load.min_insync_replicas)
        self.ledger = Ledger(history_clock())
        self.ledger.history.about = {"seed": seed, **(about or {})}
        self._workload = Workload(target.bootstrap, self.ledger, load, random.Random(seed))
        self._show = show
        self._started_s = time.monotonic()
        self._timeline: list[Entry] = []
        self._trouble: list[str] = []
        self._never_whole = ""
        """The missing nodes or replicas at the end of the run; empty if the cluster was whole."""
        self._finishing = asyncio.Event()
        self._doing = "creating the topic"

    def finish(self) -> None:
        """End the current fault now and start no more; `go` then checks the history as usual."""
        self._finishing.set()

    async def _pause(self, length_s: float) -> None:
        """Sleep for `length_s`, or until `finish` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(length_s):
                await self._finishing.wait()

    async def go(self, steps: Iterator[Step], length_s: float, count_max: int = 0) -> RunResult:
        """Run faults for `length_s` seconds or up to `count_max` of them; return the verdict.

        Raises ApiError, OSError or TargetError if the run cannot start.
        """
        watching = asyncio.create_task(self._watch())
        try:
            async with within(BEGIN_S_MAX, "creating the topic and the first connections"):
                await self._workload.prepare()
                self._workload.start()
                await self.clients_begin()
            self._doing = "warming up"
            await self._pause(self._pace.warm_up_s)
            if not await self._scene.wait_until_whole(WHOLE_S_MAX):
                raise TargetError(f"the cluster is not whole: {self._scene.lacks}")
            for number in itertools.count(1):
                if self._finishing.is_set():
                    break
                is_whole = await self._step(next(steps))
                if not is_whole or self._now_s() >= length_s or number == count_max:
                    break
            await self._end()
        finally:
            watching.cancel()
            await self._in_time(CLOSE_S_MAX, "closing connections", self._close())
        history = self.ledger.history
        findings = [*await asyncio.to_thread(self._replicas), *judge(history), *self.of_clients()]
        if self._never_whole:
            findings.insert(0, NOT_WHOLE._replace(examples=[self._never_whole]))
        if self._workload.starts_over:
            self._trouble.append(
                f"{self._workload.starts_over} times a broker had lost the state of a "
                "producer with acknowledged records"
            )
        early = self._finishing.is_set()
        return RunResult(history, findings, self._timeline, self._trouble, early)

    async def _end(self) -> None:
        self._doing = "waiting for the cluster to settle"
        # After a fault that it did not survive, the cluster has already had its time.
        wait_s = LAST_LOOK_S if self._scene.lacks else WHOLE_S_MAX
        if not await self._scene.wait_until_whole(wait_s):
            self._never_whole = self._scene.lacks
        await asyncio.sleep(QUIET_S)
        self._doing = "waiting for the last sends"
        await self._in_time(LAST_SENDS_S_MAX, self._doing, self._clients_end())
        self._doing = "reading all records"
        reading = self._workload.read_all(FINAL_READ_MS_MAX)
        await self._in_time(2 * FINAL_READ_MS_MAX / 1000, self._doing, reading)

    async def _clients_end(self) -> None:
        await asyncio.gather(self._workload.stop(), self.clients_end())

    async def _close(self) -> None:
        await self._workload.close()
        await self._scene.close()

    async def _in_time(self, limit_s: float, what: str, step: Awaitable[None]) -> None:
        """Await a step; a timeout is recorded, and the run continues.

        Operations that are then missing in the history are found by the checks.
        """
        try:
            async with within(limit_s, what):
                await step
        except TargetError as error:
            self._trouble.append(str(error))

    async def clients_begin(self) -> None:
        """Start additional recorded clients; a hook for subclasses."""

    async def clients_end(self) -> None:
        """Stop the additional clients; all their sends must have an outcome afterwards."""

    def of_clients(self) -> list[Finding]:
        """Return findings of the additional clients, for errors that no client may see."""
        return []

    async def _step(self, step: Step) -> bool:
        """Carry out one fault; return whether the cluster is whole after it."""
        kind = KINDS[step.kind]
        begin_us = self.ledger.now_us()
        self.ledger.gaps.begin(begin_us)
        entry = Entry(step.kind, Hit([], ""), self._now_s())
        self._timeline.append(entry)
        self._doing = step.kind
        try:
            async with (
                within(ACTION_S_MAX + step.length_s, lambda: f"waiting for {self._scene.doing}"),
                kind.action(self._scene, random.Random(step.draw)) as hit,
            ):
                entry.hit = hit
                self._doing = f"{step.kind} {' '.join(map(str, hit.nodes))}"
                await self._pause(step.length_s)
        except (TargetError, ApiError, OSError, ProtocolError) as error:
            entry.trouble = str(error)
            self._trouble.append(f"{step.kind}: {error}")
            with contextlib.suppress(TargetError):
                await self._scene.revive()
        entry.end_s = self._now_s()
        hit = entry.hit
        self.ledger.fault(
            step.kind, hit.nodes, begin_us, hit.detail, draw=step.draw, length_s=step.length_s
        )
        self._doing = f"recovering from {step.kind}"
        if await self._scene.wait_until_whole(WHOLE_S_MAX):
            entry.whole_s = self._now_s()
        rested_s = self._now_s() - entry.end_s
        await asyncio.sleep(max(QUIET_S, self._pace.recovery_s - rested_s))
        entry.gap_s = self.ledger.gaps.until(self.ledger.now_us()) / 1e6
        return entry.whole_s is not None

    def _replicas(self) -> list[Finding]:
        """Compare the replicas, after time for the followers to fetch the last records."""
        deadline = time.monotonic() + CATCH_UP_S_MAX
        load = self.load
        committed = {end.partition: end.offset for end in self.ledger.history.ends if end.final}
        while True:
            found = replicas.findings(
                self.target.directories,
                load.topic,
                load.partitions,
                copies=load.replication_factor,
                committed=committed,
            )
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(QUIET_S / 10)

    def _now_s(self) -> float:
        return time.monotonic() - self._started_s

    async def _watch(self) -> None:
        while True:
            counts = self.ledger.counts
            self._show(
                Progress(
                    self._now_s(),
                    counts.ok,
                    counts.failed,
                    counts.unknown,
                    counts.read,
                    f"{self._doing}: {self._scene.lacks}" if self._scene.lacks else self._doing,
                )
            )
            await asyncio.sleep(1.0)
