"""Shell: The world with one node: clients work, the node dies repeatedly, promises are kept.

A seed draws the settings, the disk's pace and a handful of lives, each with its fate: a power cut
at the n-th file operation (of the boot, of the work, of a clean stop), a kill, or a clean stop.
After each boot the cluster is compared with the ledger, most of the time before clients continue,
sometimes while they do. Then comes the liveness phase: no fault occurs any more, so no request may
fail. After a last clean stop the node must come back without any recovery.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from protocol.errors import ApiError
from runtime import log
from simulation.clients.client import SimClient, Unknown
from simulation.judges.ledger import Ledger, Presence, TopicLedger
from simulation.workload import Workload
from simulation.world.cluster import DiskPace, End, Fate, Machine, NodeLife, SimCluster
from simulation.world.invariants import Violation, check_node, require
from simulation.world.loop import VirtualLoop
from simulation.world.network import CURRENT_HOST, Network
from simulation.world.trace import Trace

T = TypeVar("T")

READY_MS_MAX = 60_000
SETTLE_MS = 5_000
"""Milliseconds after the last boot during which errors are still allowed."""
LIVENESS_MS = 2_000
ANSWER_MS_MAX = 30_000
LOG_LINES = 60


@dataclass
class Result:
    """The result of one run."""

    seed: int
    trace: Trace
    virtual_s: float
    boots: int
    operations: int
    counts: dict[str, int]
    errors: dict[str, int]
    logged: list[str] = field(default_factory=list)


class WorldFailed(AssertionError):
    """A run that ended with a broken promise; the message has the data needed to replay it."""

    def __init__(self, seed: int, error: BaseException, trace: Trace, logged: list[str]) -> None:
        lines = "\n".join([*trace.lines(30), "", *logged[-LOG_LINES:]])
        super().__init__(
            f"seed {seed}: {error!r}\n{lines}\n"
            f"replay: python -m simulation.run --seeds {seed}-{seed}"
        )
        self.seed = seed
        self.trace = trace


def run(seed: int) -> Result:
    """Run one world from its seed to its end. Raises: WorldFailed for a broken promise."""
    loop = VirtualLoop(Network(random.Random(f"{seed}/network")))
    trace = Trace(loop.time)
    logged: list[str] = []
    try:
        with log.captured() as events:
            try:
                world = OneNode(loop, trace, seed)
                loop.run_world(world.main())
                failures = [one for one in loop.failures if one]
                require(not failures, f"unhandled: {failures[:3]}")
            finally:
                logged = [str(event) for event in events[-LOG_LINES:]]
    except Exception as error:
        raise WorldFailed(seed, error, trace, logged) from error
    finally:
        loop.close()
    return Result(
        seed,
        trace,
        loop.time(),
        world.machine.boots,
        world.operations,
        world.ledger.counts,
        world.errors,
        logged,
    )


class OneNode:
    """The run of one seed."""

    def __init__(self, loop: VirtualLoop, trace: Trace, seed: int) -> None:
        self.rng = random.Random(f"{seed}/world")
        self.loop = loop
        self.trace = trace
        self.seed = seed
        rng = self.rng
        offsets_flushed = rng.random() < 0.6
        pace = DiskPace(flush_ms_max=rng.choice((0.5, 5.0, 40.0)), work_ms_max=rng.choice((0, 3)))
        self.cluster = SimCluster(loop, trace, seed, pace)
        self.cluster.notes_logs = True
        self.machine = self.cluster.add(_settings(rng, offsets_flushed=offsets_flushed))
        self.ledger = Ledger(offsets_flushed=offsets_flushed)
        self.operations = 0
        self.errors: dict[str, int] = {}

    async def main(self) -> None:
        """Run all lives, then the liveness phase."""
        CURRENT_HOST.set("client")
        self.client = SimClient(self.cluster.bootstrap)
        self.load = Workload(
            self.client,
            self.ledger,
            self.trace,
            seed=self.seed,
            life=lambda: self.machine.boots,
            clock=self.machine.clock,
        )
        self.errors = self.load.errors
        self.load.start()
        for _ in range(self.rng.randint(2, 5)):
            await self._live(self._fate())
        await self._liveness()
        await self.client.close()

    # --- lives --------------------------------------------------------------------------------

    def _fate(self) -> Fate:
        rng = self.rng
        end = rng.choices([End.POWER_CUT, End.KILL, End.STOP], [7, 2, 2])[0]
        if end is End.STOP:
            # A clean stop may be interrupted, too: then the fate takes effect during the stop.
            late = round(2 ** rng.uniform(6, 11)) if rng.random() < 0.3 else None
            return Fate(End.POWER_CUT, late, None, rng.random() < 0.5)
        operation = round(2 ** rng.uniform(0, 11)) if rng.random() < 0.85 else None
        # Whatever its fate, a life ends after this time.
        after_ms = rng.uniform(1, 4000) if operation is None else 8000.0
        return Fate(end, operation, after_ms, rng.random() < 0.6)

    async def _live(self, fate: Fate) -> None:
        machine, rng = self.machine, self.rng
        look_first = rng.random() < 0.7
        stop_after_ms = rng.uniform(50, 4000)
        if look_first:
            self.load.hold()
        life = machine.boot(fate)
        if await self._ready(life):
            if look_first:
                await self._unless_over(life, self._check(life))
                self.load.resume()
            else:
                self.ledger.life_is_up(life.number, life.state())
            if fate.after_ms is None:
                await self._wait(life.over, stop_after_ms)
                if life.alive:
                    await self._guard(machine.stop(life))
            else:
                await self._guard(life.over)
        await self._bury(life)

    async def _bury(self, life: NodeLife) -> None:
        self.load.resume()
        # Responses that are in flight still arrive.
        await asyncio.sleep(self.rng.uniform(0.5, 3.0))
        self.operations += life.operations
        self.ledger.life_is_over(life.number, life.state(), power_cut=life.end is End.POWER_CUT)
        self.ledger.count(f"end by {life.over.result().value}")

    async def _ready(self, life: NodeLife) -> bool:
        """Wait until the node is ready (True) or dead (False).

        Raises: Violation if it is neither in time.
        """
        await self._wait(life.ready, READY_MS_MAX, life.over)
        if life.over.done():
            return False
        require(life.ready.done(), f"{life} is not ready after {READY_MS_MAX} ms")
        life.ready.result()
        assert life.node is not None
        check_node(life.node)
        return True

    async def _wait(
        self, what: asyncio.Future[T], timeout_ms: float, *others: asyncio.Future[End]
    ) -> None:
        """Wait until one of them is done, the time is over, or a worker has failed."""
        waited: list[asyncio.Future[Any]] = [what, self.load.trouble, *others]
        await asyncio.wait(
            waited,
            timeout=timeout_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self.load.trouble.done():
            self.load.trouble.result()

    async def _guard(self, what: Awaitable[T]) -> T:
        """Return the result, unless a worker fails before."""
        future = asyncio.ensure_future(what)
        await self._wait(future, 1e9)
        return future.result()

    async def _unless_over(self, life: NodeLife, check: Awaitable[None]) -> None:
        """Await a check that the node's death may cut short."""
        task = asyncio.ensure_future(check)
        await self._wait(task, 10 * ANSWER_MS_MAX, life.over)
        if life.over.done() and not (task.done() and task.exception() is None):
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and isinstance(task.exception(), Violation):
                task.result()
            return
        require(task.done(), "the cluster does not answer")
        task.result()

    # --- checks -------------------------------------------------------------------------------

    async def _check(self, life: NodeLife) -> None:
        """Compare the cluster with the ledger while clients are held."""
        self.load.hold()
        await self.load.idle()
        assert life.node is not None
        check_node(life.node)
        self.ledger.life_is_up(life.number, life.state())
        found = await self._answer(life, self.client.topics)
        self.ledger.check_topics(found, life.number)
        for topic in list(self.ledger.topics.values()):
            if topic.presence is Presence.PRESENT:
                await self._check_topic(life, topic)
        await self._check_commits(life)
        check_node(life.node)
        self.ledger.count("check")

    async def _check_topic(self, life: NodeLife, topic: TopicLedger) -> None:
        for partition in topic.partitions:
            name, index = topic.name, partition.index
            start, end = await self._answer(life, partial(self.client.bounds, name, index))
            records = await self._answer(life, partial(self.client.read, name, index, start, end))
            partition.check(start, end, records, life.number)
            leader = self.client.leader(name, index)
            if leader is not None:
                require(
                    leader.epoch >= partition.leader_epoch,
                    f"{partition}: leader epoch {leader.epoch} after {partition.leader_epoch}",
                )
                partition.leader_epoch = leader.epoch
        text = await self._answer(life, partial(self.client.config, topic.name, "retention.ms"))
        value = int(text or -1)
        if topic.retention_acked >= 0 or value in topic.retention_asked:
            require(
                value >= topic.retention_acked and value in topic.retention_asked,
                f"{topic.name}: retention.ms is {value}, set to {topic.retention_acked}",
            )

    async def _check_commits(self, life: NodeLife) -> None:
        for (group, name, index), commits in list(self.ledger.commits.items()):
            topic = self.ledger.topics[name]
            topic_id = topic.topic_id
            assert topic_id is not None
            found = await self._answer(
                life, partial(self.client.committed, group, name, topic_id, index)
            )
            commits.check(f"group {group}, {name}-{index}", found)

    async def _answer(self, life: NodeLife, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until there is a response.

        Raises: Unknown when the node is dead, Violation when it lives and does not respond for too
            long.
        """
        deadline_s = self.loop.time() + ANSWER_MS_MAX / 1000
        while True:
            try:
                return await ask()
            except (Unknown, ApiError) as error:
                if not life.alive:
                    raise Unknown("the node died") from error
                if isinstance(error, ApiError) and not error.code.retriable:
                    raise Violation(f"reading failed: {error!r}") from error
                for group in ("g1", "g2", "g3", "members"):
                    self.client.forget_coordinator(group)
                require(self.loop.time() < deadline_s, f"no answer: {error!r}")
            await asyncio.sleep(0.1)

    # --- liveness -----------------------------------------------------------------------------

    async def _liveness(self) -> None:
        life = self.machine.boot()
        require(await self._ready(life), "died without a reason")
        await self._wait(life.over, SETTLE_MS)
        await self._guard(self._check(life))
        self.load.strict = True
        self.load.resume()
        await self._wait(life.over, LIVENESS_MS)
        await self._guard(self._check(life))
        await self._guard(self.load.stop())
        await self._guard(self.machine.stop(life))
        await self._bury(life)
        require(life.end is End.STOP, f"the last stop was no clean one: {life.end}")
        await self._last_boot()

    async def _last_boot(self) -> None:
        """Boot after a clean stop: nothing is recovered and nothing is missing."""
        life = self.machine.boot()
        require(await self._ready(life), "died without a reason")
        assert life.node is not None and life.node.broker is not None
        report = life.node.broker.logs.report
        require(report.clean, "the clean stop left no marker")
        require(report.recovered == 0, f"{report.recovered} logs were recovered")
        require(not report.problems, f"problems after a clean stop: {report.problems}")
        self.load.hold()
        await self._guard(self._check(life))
        await self._guard(self.machine.stop(life))
        self.operations += life.operations


def _settings(rng: random.Random, *, offsets_flushed: bool) -> dict[str, str]:
    settings = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": str(rng.choice((1, 3))),
        "group.initial.rebalance.delay.ms": "0",
        "log.segment.delete.delay.ms": str(rng.choice((0, 500, 60_000))),
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice((300, 2000, 60_000))),
        "log.flush.start.offset.checkpoint.interval.ms": str(rng.choice((300, 2000, 60_000))),
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((300, 5000))),
        "log.retention.check.interval.ms": str(rng.choice((500, 300_000))),
    }
    if offsets_flushed:
        settings["log.flush.interval.messages"] = "1"
    if rng.random() < 0.5:
        settings["metadata.log.max.record.bytes.between.snapshots"] = str(rng.choice((200, 3000)))
    if rng.random() < 0.3:
        settings["metadata.log.segment.ms"] = str(rng.choice((200, 2000)))
        settings["metadata.max.retention.bytes"] = "5000"
    if rng.random() < 0.3:
        settings["broker.heartbeat.interval.ms"] = "300"
        settings["broker.session.timeout.ms"] = "1500"
    return settings


__all__ = ["Machine", "OneNode", "Result", "WorldFailed", "run"]
