"""Shell: The run of one schedule: the cluster boots, events happen, clients work, judges look, and
then all is quiet and must become whole.

All judges watch every run, since others read committed records from them; findings of judges that
were not chosen are dropped. Equal schedules give equal traces.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Protocol

from protocol.errors import ApiError, ErrorCode
from protocol.ids import random_uuid, uuid_to_text
from runtime import log
from runtime.clock import LoopClock
from runtime.marks import counted
from simulation.chance import stream
from simulation.clients import KINDS as CLIENTS
from simulation.clients.client import SimClient, Unknown
from simulation.clients.final_reads import FinalReads
from simulation.clients.load import REQUEST_MS, Load, is_of_groups
from simulation.event import Event
from simulation.faults import KINDS as FAULTS
from simulation.faults.kind import OperatorKind
from simulation.faults.operators.elections import rescue
from simulation.judges import ALL
from simulation.judges import KINDS as JUDGES
from simulation.judges.changes import Changes
from simulation.judges.client_history import Saw
from simulation.judges.judge import Judge
from simulation.judges.partitions import Promises
from simulation.operator import Operator
from simulation.preload import import_nodes
from simulation.schedule import Schedule
from simulation.shapes.shape import BROKER, CONTROLLER, LEVELS, NodeShape, TopicShape
from simulation.story import FaultSpan
from simulation.targets import resolve
from simulation.world import traps
from simulation.world.cluster import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    EPOCH_MS,
    DiskPace,
    End,
    Machine,
    NodeLife,
    SimCluster,
)
from simulation.world.invariants import Violation, require
from simulation.world.links import Link, Trouble
from simulation.world.loop import VirtualLoop
from simulation.world.network import CLIENT_HOST, CURRENT_HOST, Network
from simulation.world.store import SimStore
from simulation.world.trace import FullTrace

BOOT_S = 120.0
WHOLE_S = 120.0
"""Virtual seconds within which all must become whole once no fault is active."""
BACKLOG_S = 480.0
"""Additional seconds while the tier gains or loses old segments, or replicas get records."""
NEARER = 0.9
"""The share of a backlog below which it counts as reduced."""
STRICT_S = 4.0
"""Seconds in which clients must then get no error, except while a leader has just moved."""
STORE_TOLD_S = 5.0
"""Seconds for which the next fetch may return the error of an earlier read from the remote store
(FAILED_MS)."""
DUPLICATE = ErrorCode.DUPLICATE_BROKER_REGISTRATION.name
RESTART_S = 1.0
"""Seconds for which a process that ended during its start is left off."""
RESCUE_S = 5.0
"""Seconds that an operator waits for elections, and then between two checks."""
LOG_LINES = 60
TRACE_LINES = 400
CREATE_TRIES = 100

Plant = Callable[[], AbstractContextManager[Any]]


class Watcher(Protocol):
    """An observer that changes nothing: a run is the same with it and without. Its exception
    Stopped ends the run."""

    def after(self, life: NodeLife) -> None:
        """Called after code ran in this life, before the judges."""

    def finish(self, broken: Broken | None) -> None:
        """Called at the end of the run, while the world still has its last state."""


class Stopped(Exception):
    """Raised by a watcher that has seen the awaited moment."""


@dataclass(frozen=True)
class Broken:
    """The first broken promise: its code, a description, its time, and its judge ("": the run
    itself, or an error in the nodes)."""

    code: str
    words: str
    at_s: float
    judge: str = ""

    @property
    def plain(self) -> str:
        """The description without the code in front."""
        return self.words.removeprefix(f"{self.code}: ")


@dataclass(frozen=True)
class RunOutcome:
    """The result of one run. `lines` are the end of its trace, `seen` of the partitions' judge,
    `logged` of the nodes' logs; `marks` counts rare branches (`runtime.marks`)."""

    schedule: Schedule
    trace: str
    broken: Broken | None
    virtual_s: float
    drawn: dict[str, int]
    took_effect: dict[str, int]
    counts: dict[str, int]
    errors: dict[str, int]
    marks: dict[str, int]
    lines: list[str] = field(repr=False)
    seen: list[str] = field(repr=False)
    logged: list[str] = field(repr=False)
    history: list[Saw] = field(repr=False)


def run(
    schedule: Schedule,
    judges: Collection[str] = ALL,
    planted: Sequence[Plant] = (),
    *,
    keep: int | None = TRACE_LINES,
    disguised: bool = False,
    watchers: Sequence[Callable[[SwarmWorld], Watcher]] = (),
) -> RunOutcome:
    """Run a schedule to its end or to the first broken promise.

    Args:
        judges: those whose findings count.
        planted: bugs, as context managers that are entered for the run.
        keep: the number of lines of the trace to keep, None: all.
        disguised: run as if on another machine at another time.
        watchers: created with the world; they observe it.
    """
    import_nodes()
    world = SwarmWorld(schedule, judges, keep)
    world.watchers = [make(world) for make in watchers]
    logged: list[str] = []
    broken: Broken | None = None
    with ExitStack() as stack:
        for plant in planted:
            stack.enter_context(plant())
        stack.enter_context(world.changes.told())
        for judge in world.judges.values():
            stack.enter_context(judge.hooked())
        stack.enter_context(traps.disguised() if disguised else traps.locked())
        events = stack.enter_context(log.captured())
        hit = stack.enter_context(counted())
        try:
            world.loop.run_world(world.main())
            broken = world.broken  # perhaps found where a node's own code caught the exception
            require(not world.loop.failures, f"F: unhandled: {world.loop.failures[:3]}")
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - whatever ends a run is its outcome
            broken = world.broken or _broken(error, world.loop.time())
        finally:
            world.finish(broken)
            world.end_lives()
            world.loop.close()
        logged = [str(one) for one in events if one["log_level"] != "debug"][-LOG_LINES:]
    outcome = world.outcome(broken, logged, hit)
    del world
    gc.collect()
    _keep_compiled()
    return outcome


@cache
def _keep_compiled() -> None:
    """Exclude the first run's compiled objects from later garbage collections."""
    gc.freeze()


def _broken(error: BaseException, at_s: float, judge: str = "") -> Broken:
    words = str(error) if isinstance(error, Violation) else repr(error)
    code = words.split(":")[0] if isinstance(error, Violation) else type(error).__name__
    return Broken(code if len(code) < 24 else "F", words, at_s, judge)


def _by_client(error: BaseException, at_s: float) -> Broken:
    """Return the broken promise found by a client, with the judge that it belongs to."""
    found = _broken(error, at_s)
    if not isinstance(error, Violation):
        return found
    return replace(found, judge="groups" if is_of_groups(error) else "histories")


def _is_refused(life: NodeLife) -> bool:
    """Return whether its start ended because the broker id still belongs to the process before."""
    error = life.ready.exception()
    return error is not None and DUPLICATE in str(error)


def _watches(judge: Judge) -> bool:
    return type(judge).after is not Judge.after


class SwarmWorld:
    """One run. Faults and judges get it, and may use names without an underscore."""

    def __init__(self, schedule: Schedule, judges: Collection[str], keep: int | None) -> None:
        self.schedule = schedule
        self.shape = schedule.shape
        seed = schedule.seed
        network = Network(stream(seed, "network"))
        network.make_link = self._make_link
        self.loop = VirtualLoop(network)
        self.trace = FullTrace(self.loop.time, keep)
        disk = self.shape.disk
        pace = DiskPace(disk.flush_ms_min, disk.flush_ms_max, disk.work_ms_max)
        self.store = SimStore(self.trace, seed)
        self.cluster = SimCluster(
            self.loop, self.trace, seed, pace, schedule.shape.levels, self.store.open
        )
        for node in self.shape.nodes:
            self.cluster.add(self._settings(node))
        if self.shape.kraft_version:
            self.cluster.initial_controllers = ",".join(
                f"{voter}:{uuid_to_text(random_uuid(stream(seed, 'voter', voter)))}"
                for voter in self._voters()
            )
        machines = zip(self.cluster.machines, self.shape.nodes, strict=True)
        pairs = list(machines)
        self.controllers: list[Machine] = [machine for machine, node in pairs if node.controls]
        self.brokers: list[Machine] = [machine for machine, node in pairs if node.serves]
        self.changes = Changes()
        """Changes of nodes since the last check of the judges."""
        shape = self.shape
        self.promises: Promises = Promises(
            shape.given_up,
            shape.shrinking,
            self.changes,
            shape.settings,
            self.loop.time,
            shape.compacted,
        )
        """The committed records, as the partitions' judge has seen them."""
        self.promises.metadata.formatted = shape.metadata_version or LEVELS.max_level
        self.load: Load | None = None
        self.operator: Operator
        """The sender of admin requests; exists once clients start."""
        self.acked_before_quiet = 0
        self.took_effect: dict[str, int] = {}
        self.busy: set[int] = set()
        """Ids of nodes that an event acts on."""
        self.heard_s = 0.0
        """Virtual time from which on no session expires because a controller was silent."""
        self.unregistered: set[int] = set()
        """Ids of brokers that an operator has ever unregistered."""
        self.swapped: set[int] = set()
        """Ids of brokers that run on another disk than their own."""
        self.broken: Broken | None = None
        self._waits = ""
        """The judge that last reported something missing in the quiet phase."""
        self.asked = frozenset(judges)
        self.judges = {name: kind.make(self) for name, kind in JUDGES.items()}
        watching = [(name, one) for name, one in self.judges.items() if _watches(one)]
        self._watching = [(name, one) for name, one in watching]
        self._timed = [(name, one) for name, one in watching if one.due_s < math.inf]
        self.watchers: list[Watcher] = []
        self.faults: list[FaultSpan] = []
        """Events of the schedule, as they were executed."""
        self.over = False

    def _make_link(self, source: str, target: str) -> Link:
        link = self.shape.link_between(source, target)
        return Link(
            link.delay_ms_min,
            link.delay_ms_max,
            late_chance=link.late_chance,
            late_ms=link.late_ms,
            tail=link.tail,
            rng=stream(self.schedule.seed, "link", source, target),
        )

    def _settings(self, node: NodeShape) -> dict[str, str]:
        voters, dynamic, listeners = self._voters(), self.shape.kraft_version > 0, []
        servers = [one.partition("@")[2] for one in voters]
        if BROKER in node.roles:
            listeners.append(f"PLAINTEXT://node-{node.node_id}:{CLIENT_PORT}")
        if CONTROLLER in node.roles:
            listeners.append(f"CONTROLLER://node-{node.node_id}:{CONTROLLER_PORT}")
        rack = {} if node.rack is None else {"broker.rack": node.rack}
        return {
            "offsets.topic.replication.factor": str(min(3, len(self.shape.brokers))),
            "offsets.topic.num.partitions": "1",
            "group.min.session.timeout.ms": "500",
            "group.initial.rebalance.delay.ms": "200",
            **self.shape.settings,
            **node.settings,
            **rack,
            "process.roles": ",".join(node.roles),
            "listeners": ",".join(listeners),
            "controller.quorum.voters": "" if dynamic else ",".join(voters),
            "controller.quorum.bootstrap.servers": ",".join(servers) if dynamic else "",
        }

    def _voters(self) -> list[str]:
        """Return the voters in the format of `controller.quorum.voters`."""
        return [f"{n.node_id}@node-{n.node_id}:{CONTROLLER_PORT}" for n in self.shape.controllers]

    # --- the run ------------------------------------------------------------------------------

    async def main(self) -> None:
        """Boot, play the events, and run the quiet phase."""
        try:
            await self._main()
        except Exception as error:
            self.finish(self.broken or _broken(error, self.loop.time()))
            raise
        self.finish(None)

    def finish(self, broken: Broken | None) -> None:
        """End all watching; only the first call counts."""
        if not self.over:
            self.over = True
            for watcher in self.watchers:
                watcher.finish(broken)

    async def _main(self) -> None:
        CURRENT_HOST.set(CLIENT_HOST)
        for machine in self.cluster.machines:
            self.boot(machine)
        lives = [machine.life for machine in self.cluster.machines]
        await asyncio.wait_for(asyncio.gather(*(one.ready for one in lives if one)), BOOT_S)
        for judge in self.judges.values():
            judge.began()
        bootstrap = [(machine.host, CLIENT_PORT) for machine in self.brokers]
        client = SimClient(bootstrap)
        clock = LoopClock(self.loop, EPOCH_MS)
        seed = self.schedule.seed
        load = self.load = Load(client, self.promises, self.trace, seed=seed, clock=clock)
        load.judging = "histories" in self.asked
        load.judging_groups = "groups" in self.asked
        for topic in self.shape.topics:
            await self._create(client, topic)
        self.operator = Operator(bootstrap, self.promises, load)
        self.operator.look()
        for one in self.shape.clients:
            load.start(one.name, CLIENTS[one.kind].make(load, one), one.pause_ms)
        await self._unless_broken(self._play(), load)
        await self._unless_broken(self._quiet(load), load)
        await load.close()
        await self.operator.close()
        await client.close()

    async def _create(self, client: SimClient, topic: TopicShape) -> None:
        for _ in range(CREATE_TRIES):
            try:
                await client.create_topic(
                    topic.name,
                    topic.partitions,
                    topic.configs,
                    topic.replication_factor,
                    topic.replicas,
                )
                return
            except ApiError as error:
                require(error.code.retriable or "EXISTS" in error.code.name, f"P26: {error!r}")
                if "EXISTS" in error.code.name:
                    return  # an attempt without a response had created it
            except Unknown:
                pass
            await asyncio.sleep(0.2)
        require(False, f"P26: {topic.name} could not be created")

    async def _unless_broken(self, what: Awaitable[None], load: Load) -> None:
        """Wait for `what`, unless a client finds a promise broken before."""
        task = asyncio.ensure_future(what)
        done, _ = await asyncio.wait([task, load.trouble], return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            error = one.exception()
            if one is load.trouble and error is not None:
                self.broken = self.broken or _by_client(error, self.loop.time())
            one.result()

    async def _play(self) -> None:
        """Play all events, and wait until the quiet phase."""
        begin_s = self.loop.time()
        quiet_s = begin_s + self.schedule.quiet_from_ms / 1000
        events = asyncio.gather(*(self._event(one, begin_s) for one in self.schedule.events))
        try:
            await asyncio.wait_for(events, quiet_s + WHOLE_S - self.loop.time())
        except TimeoutError:
            going = [f"{one.name}, {one.text}" for one in self.faults if one.end_s is None]
            require(False, f"F: {going} still goes on, {WHOLE_S:g} s after its time")
        left_s = quiet_s - self.loop.time()
        await asyncio.sleep(max(0.0, left_s))

    async def _event(self, event: Event, begin_s: float) -> None:
        await asyncio.sleep(begin_s + event.at_ms / 1000 - self.loop.time())
        kind = FAULTS[event.kind]
        if isinstance(kind, OperatorKind):
            await self._do(event, f"{event.kind} on {event.target}", partial(kind.run, self, event))
            return
        machine = resolve(self, event.target)
        life = None if machine is None else machine.life
        if machine is None or life is None or not life.alive or machine.node_id in self.busy:
            self.trace.add(f"{event.name}: {event.kind} on {event.target}: nobody")
            return
        self.busy.add(machine.node_id)
        what = f"{event.kind} on {event.target}, {machine.host}"
        await self._do(event, what, partial(kind.run, self, machine, event))
        self.busy.discard(machine.node_id)

    async def _do(
        self, event: Event, text: str, do: Callable[[random.Random], Awaitable[bool]]
    ) -> None:
        what = f"{event.name}: {text}"
        self.trace.add(f"{what}: {event.args}")
        span = FaultSpan(event.name, text + event.details(), self.loop.time(), len(self.trace))
        self.faults.append(span)
        span.effect = await do(stream(self.schedule.seed, "event", event.name))
        span.end_s = self.loop.time()
        if span.effect:
            self.took_effect[event.kind] = self.took_effect.get(event.kind, 0) + 1
            self.trace.add(f"{what}: over")
        else:
            self.trace.add(f"{what}: without effect")

    async def _quiet(self, load: Load) -> None:
        """Require that everything becomes whole, writes succeed, and then no request fails any more
        (P26)."""
        self.trace.add("all is quiet")
        self.acked_before_quiet = load.acked
        load.calm, load.eased = True, self.shape.is_narrow
        await self._until_whole(lambda: self._first(lambda judge: judge.unsettled()))
        self.operator.look()  # a late request may have deleted a topic that was created again
        await self.until(lambda: self.loop.time() >= self.store.hangs_until_s)
        if self.shape.has_tier:
            load.store_told_until_s = self.loop.time() + STORE_TOLD_S
        await asyncio.sleep(REQUEST_MS / 1000)  # earlier requests have got their responses by then
        load.strict = True
        await asyncio.sleep(STRICT_S)
        await load.stop_within(WHOLE_S)
        await self._until_whole(lambda: self._first(lambda judge: judge.missing()))
        reads = FinalReads(load)
        await reads.read_all()
        await reads.read_compacted()
        await reads.read_offsets()
        for name in self.judges:
            self._ask(name, self.judges[name].at_end)

    def _first(self, ask: Callable[[Judge], str | None]) -> str | None:
        for name, judge in self.judges.items():
            what = ask(judge) if name in self.asked else None
            if what is not None:
                self._waits = name
                return what
        return None

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` returns True, with ten checks a second."""
        while not holds():  # noqa: ASYNC110 - virtual time, and nobody tells when
            await asyncio.sleep(0.1)

    async def _until_whole(self, missing: Callable[[], str | None]) -> None:
        deadline_s = self.loop.time() + WHOLE_S
        latest_s = deadline_s + BACKLOG_S
        rescue_s = self.loop.time() + RESCUE_S
        worked_off, behind = self._worked_off(), self._behind()
        while (what := missing()) is not None:
            if self._worked_off() > worked_off or self._behind() < NEARER * behind:
                worked_off, behind = self._worked_off(), self._behind()
                deadline_s = min(self.loop.time() + WHOLE_S, latest_s)
            if self.loop.time() >= deadline_s:
                self._found(self._waits, Violation(f"{what}, {WHOLE_S:g} s after all trouble"))
            await self._start_forgotten()
            if self.loop.time() >= rescue_s:
                await rescue(self)
                rescue_s = self.loop.time() + RESCUE_S
            await asyncio.sleep(0.1)

    def _worked_off(self) -> int:
        """Return the number of segments that were copied to the tier or deleted there.

        Over slow links a leader may need more than a minute for the records of a minute. Each
        segment also adds records to replicate (tiered seed 701).
        """
        counts = self.judges["tiering"].counts
        return counts["copies"] + counts["copies deleted"]

    def _behind(self) -> int:
        """Return the number of committed records that replicas have yet to get.

        If clients write nearly as much as a small fetch transfers over a slow link, replicas catch
        up over minutes (seed 8142).
        """
        topics = self.promises.metadata.image.topics.by_id
        behind = 0
        for (topic_id, index), truth in self.promises.partitions.items():
            one = topics[topic_id].partitions.get(index) if topic_id in topics else None
            for broker_id in one.replicas if one is not None else ():
                behind += max(0, truth.end - truth.had.get(broker_id, 0))
        return behind

    async def _start_forgotten(self) -> None:
        """Start brokers again that a late request has unregistered."""
        for node_id in sorted(self.unregistered):
            machine = self.cluster.machines[node_id - 1]
            life = machine.life
            if life is not None and life.node is not None and life.node.failed.done():
                await self.stop(machine)
                await self.boot_again(machine)

    # --- lives --------------------------------------------------------------------------------

    def boot(self, machine: Machine) -> NodeLife:
        """Switch a machine on; the judges watch its life."""
        life = machine.boot()
        life.watch = self._after
        return life

    async def boot_again(self, machine: Machine) -> None:
        """Boot a machine after a crash. Returns when the node is ready.

        A process whose registration is refused ends, and is started again, as a supervisor would
        do.
        """
        while True:
            life = self.boot(machine)
            ends: list[asyncio.Future[Any]] = [life.ready, life.over]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not life.ready.done():
                return
            if not _is_refused(life):
                return life.ready.result()
            self.crash(machine, End.KILL)
            await asyncio.sleep(RESTART_S)

    def crash(
        self, machine: Machine, end: End, *, torn: bool = False, dark: Trouble | None = None
    ) -> None:
        """End the life of a machine at this instant; see `Machine.end`."""
        life = machine.life
        assert life is not None
        for name, judge in self.judges.items():
            # This runs outside the life, so that faults of its reads do not apply.
            Context().run(self._ask, name, partial(judge.ending, life))
        machine.end(life, end, torn=torn, dark=dark)
        for name, judge in self.judges.items():
            self._ask(name, partial(judge.over, life, lossy=end is End.POWER_CUT))

    def end_lives(self) -> None:
        """Mark all lives as ended, so that no code of them runs when they are garbage collected."""
        for machine in self.cluster.machines:
            if machine.life is not None:
                machine.life.alive = False

    async def stop(self, machine: Machine) -> None:
        """Stop a node cleanly. Returns when its life is over, however it ended."""
        life = machine.life
        assert life is not None
        await machine.stop(life)
        for name, judge in self.judges.items():
            self._ask(name, partial(judge.over, life, lossy=False))

    # --- judges -------------------------------------------------------------------------------

    def _after(self, life: NodeLife) -> None:
        if self.over:
            return  # states seen while the world is taken down are meaningless
        try:
            for watcher in self.watchers:
                watcher.after(life)
        except Stopped:
            self.finish(None)
            raise
        marked = self.changes.marked
        now_s = self.loop.now_s
        for name, judge in self._watching if marked else self._timed:
            if judge.due_s > now_s and not marked:
                continue
            try:
                judge.after(life)
            except Exception as error:  # noqa: BLE001 - a node's own check raises what it likes
                self._found(name, error)
        if marked:
            self.changes.looked()

    def _ask(self, name: str, ask: Callable[[], None]) -> None:
        try:
            ask()
        except Exception as error:  # noqa: BLE001 - as above
            self._found(name, error)

    def _found(self, name: str, error: Exception) -> None:
        if name in self.asked:
            self.broken = self.broken or _broken(error, self.loop.time(), name)
            self.finish(self.broken)
            raise error

    def outcome(self, broken: Broken | None, logged: list[str], hit: dict[str, int]) -> RunOutcome:
        """Return the result of the run."""
        drawn: dict[str, int] = {}
        for event in self.schedule.events:
            drawn[event.kind] = drawn.get(event.kind, 0) + 1
        load, promises, trace = self.load, self.promises, self.trace
        groups = [] if load is None else list(load.groups.values())
        counts = {
            "operations": 0 if load is None else load.operations,
            "acked": 0 if load is None else load.acked,
            "committed": sum(one.end for one in promises.partitions.values()),
            "leader epochs": sum(len(one.leaders) for one in promises.partitions.values()),
            "log start moves": promises.starts,
            "generations": sum(len(one.synced_s) for one in groups),
            "commits": sum(one.acked for one in groups),
            "offsets asked": sum(one.asked for one in groups),
            "offsets expired": 0 if load is None else load.expired,
            "boots": sum(machine.boots for machine in self.cluster.machines),
            "messages": trace.messages,
            "writes": trace.writes,
            "looks": promises.checks,
            **{what: n for one in self.judges.values() for what, n in one.counts.items()},
        }
        return RunOutcome(
            schedule=self.schedule,
            trace=trace.digest(),
            broken=broken,
            virtual_s=self.loop.time(),
            drawn=drawn,
            took_effect=self.took_effect,
            counts=counts,
            errors={} if load is None else load.errors,
            marks={name: count for name, count in hit.items() if count},
            lines=trace.lines(),
            seen=promises.history,
            logged=logged,
            history=[] if load is None else load.history,
        )
