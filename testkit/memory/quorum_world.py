"""Shell: A simulated world of quorum cores: network, disks, clients, crashes; one seed decides all.

The cores are the real ones. A message takes a while, may be lost, or finds the link cut. At a crash
a disk forgets unflushed data, except for a random part of it. After every event the world checks
the promises of the quorum (M1-M10, M14); the first broken one raises `Broken`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

from metalog.quorum.core import messages as m
from metalog.quorum.core import quorum
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.voters import NOBODY, Endpoints, ReplicaKey, Voter, VoterEndpoint, VoterSet
from protocol.errors import ErrorCode

LEADER_CHANGE = "leader change"
FETCH_RECORDS = 5
CALL_TIMEOUT_MS = 500.0


class Broken(AssertionError):
    """A promise that does not hold."""


def with_part(bug: type[Any]) -> Callable[..., QuorumCore]:
    """Return a factory of cores in which a part is replaced by `bug`, a class derived from that
    part's."""

    def make_core(**facts: Any) -> QuorumCore:
        with mock.patch.object(quorum, bug.__bases__[0].__name__, bug):
            return QuorumCore(**facts)

    return make_core


def endpoints_of(node_id: int) -> Endpoints:
    return (("CONTROLLER", VoterEndpoint(f"n{node_id}", 9093)),)


class Entry(NamedTuple):
    epoch: int
    value: Any


class ModelLog:
    """The log of one node in memory, one record per offset.

    `entries` are the result of a replay on this node: those below `start_offset` come from the
    snapshot there, the rest from the log.
    """

    def __init__(self) -> None:
        self.start_offset = 0
        self.snapshots: list[m.OffsetAndEpoch] = []
        self.kraft_version, self.voters_offset = 0, -1
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.truncations = 0

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else 0

    @property
    def latest_snapshot(self) -> m.OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def start_epoch(self) -> int:
        return next((s.epoch for s in self.snapshots if s.offset == self.start_offset), 0)

    def end_offset_for_epoch(self, epoch: int) -> m.OffsetAndEpoch:
        end = self.end_offset
        while end > self.start_offset and self.entries[end - 1].epoch > epoch:
            end -= 1
        if end == self.start_offset:
            return m.OffsetAndEpoch(end, self.start_epoch)
        return m.OffsetAndEpoch(end, self.entries[end - 1].epoch)

    def snapshot(self, end_offset: int) -> None:
        """Write a snapshot of everything below `end_offset`."""
        snapshot_id = m.OffsetAndEpoch(end_offset, self.entries[end_offset - 1].epoch)
        if end_offset > self.start_offset and snapshot_id not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot_id])

    def clean(self) -> None:
        """Let the log begin at its latest snapshot."""
        if self.snapshots:
            self.snapshots = self.snapshots[-1:]
            self.start_offset = self.snapshots[0].offset

    def install(self, snapshot_id: m.OffsetAndEpoch, entries: list[Entry]) -> None:
        self.entries, self.durable = list(entries), list(entries)
        self.start_offset, self.snapshots = snapshot_id.offset, [snapshot_id]
        self.truncations += 1

    def crash(self, rng: random.Random) -> None:
        common = 0
        for mine, safe in zip(self.entries, self.durable, strict=False):
            if mine != safe:
                break
            common += 1
        if common == len(self.durable):
            keep = rng.randint(len(self.durable), max(len(self.durable), len(self.entries)))
            self.entries = self.entries[:keep]
        else:
            self.entries = list(self.durable)
        self.durable = list(self.entries)


class Node:
    """One replica: its core, its disk, and the code that executes its effects."""

    def __init__(self, world: QuorumWorld, key: ReplicaKey) -> None:
        self.world = world
        self.key = key
        self.log = ModelLog()
        self.saved = m.QuorumState()
        self.core: QuorumCore | None = None
        self.life = 0
        self.queue: list[Any] = []
        self.draining = False
        self.persisting = False
        self.flushing = False
        self.fetched: list[Entry] = []
        self.answers: dict[int, Callable[[Any], None]] = {}
        self.high_watermark = 0

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.queue, self.answers = [], {}
        self.draining = self.persisting = self.flushing = False
        self.high_watermark = 0
        self.core = world.make_core(
            node=self.key,
            log=self.log,
            state=self.saved,
            voters=world.voters,
            voters_in_log=True,
            timing=world.timing,
            jitter=lambda bound: world.rng.randrange(bound),
            addresses=Addresses(),
        )
        self.step(m.Start())

    def stop(self) -> None:
        self.life += 1
        self.core = None
        self.log.crash(self.world.rng)
        self.world.dirty = True

    def resign(self) -> None:
        """Stop cleanly: resign, then end."""
        self.step(m.Resign())
        self.later(50, self.stop)

    def restart(self) -> None:
        if self.core is None:
            self.start()

    def wipe(self) -> None:
        """Replace the disk by an empty one with another directory id."""
        self.log = ModelLog()
        self.saved = m.QuorumState()
        self.key = ReplicaKey(self.key.id, bytes([self.key.directory_id[0] + 1]) * 16)

    def later(self, delay_ms: float, work: Callable[[], None]) -> None:
        """Call `work` after the delay, unless the node has died in the meantime."""
        life = self.life
        self.world.later(delay_ms, lambda: work() if self.life == life else None)

    def step(self, event: m.Event) -> None:
        core = self.core
        assert core is not None
        self.queue.extend(core.step(event, self.world.now_ms))
        self.drain()
        deadline_ms = core.next_deadline_ms()
        if deadline_ms is not None:
            self.later(max(0.1, deadline_ms - self.world.now_ms), self.tick)

    def tick(self) -> None:
        assert self.core is not None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.world.now_ms:
            self.step(m.Tick())

    def drain(self) -> None:
        if self.draining:
            return
        self.draining = True
        while self.queue and not self.persisting:
            self.carry_out(self.queue.pop(0))
        self.draining = False

    def carry_out(self, effect: m.Effect) -> None:
        world = self.world
        world.dirty = True
        match effect:
            case m.PersistState():
                self.persisting = True
                self.later(world.disk_ms(), lambda: self.persisted(effect.state))
                self.perhaps_crash()
            case m.AppendLeaderChange():
                self.append(LEADER_CHANGE)
            case m.AppendFetched():
                self.log.entries += self.fetched
                self.fetched = []
                self.flush()
            case m.InstallSnapshot():
                world.send_snapshot(self, effect)
            case m.TruncateLog():
                world.truncated(self, effect.end_offset)
                self.log.entries = self.log.entries[: effect.end_offset]
                self.log.durable = self.log.durable[: effect.end_offset]
                self.log.truncations += 1
                self.step(m.LogTruncated())
            case m.HighWatermarkAdvanced():
                self.high_watermark = effect.offset
                world.committed(self, effect.offset)
            case m.ReplyVote() | m.ReplyEpoch() | m.ReplyFetch():
                self.answers.pop(effect.token)(effect)
            case m.SendVote() | m.SendBeginEpoch() | m.SendEndEpoch() | m.SendFetch():
                world.send(self, effect, effect.to)
            case m.FindLeader():
                world.send(self, effect, int(effect.endpoint.host.removeprefix("n")))

    def perhaps_crash(self) -> None:
        """Crash at the moments that matter most to a vote, and restart soon enough to vote
        again."""
        rng = self.world.rng
        if rng.random() < self.world.crash_while_persisting:
            self.later(0.05, self.stop)
            self.world.later(rng.choice([1, 10, 1000]) * rng.random(), self.restart)

    def persisted(self, state: m.QuorumState) -> None:
        if state.epoch < self.saved.epoch:
            raise Broken(f"M2: the persisted epoch of {self.key.id} fell")
        self.saved = state
        self.persisting = False
        self.drain()
        self.perhaps_crash()

    def append(self, value: Any) -> None:
        assert self.core is not None
        self.log.entries.append(Entry(self.core.epoch, value))
        self.flush()

    def flush(self) -> None:
        if self.flushing:
            return
        self.flushing = True
        target, truncations = list(self.log.entries), self.log.truncations
        self.later(self.world.disk_ms(), lambda: self.flushed(target, truncations))

    def flushed(self, target: list[Entry], truncations: int) -> None:
        self.flushing = False
        if truncations == self.log.truncations:
            self.log.durable = target
            self.step(m.Flushed(len(target)))
        if len(self.log.durable) < self.log.end_offset:
            self.flush()

    def ask(self, make: Callable[[int], m.Event], then: Callable[[Any], None]) -> None:
        token = next(self.world.tokens)
        self.answers[token] = then
        self.step(make(token))


class Call:
    """One request on its way to another node, and its response on the way back."""

    def __init__(self, world: QuorumWorld, sender: Node, effect: Any, to: int) -> None:
        self.world = world
        self.sender = sender
        self.life = sender.life
        self.effect = effect
        self.asked = NOBODY if isinstance(effect, m.FindLeader) else to
        self.receiver = world.nodes[to]
        self.over = False

    def fail(self, *, refused: bool = False) -> None:
        if not self.over:
            self.over = True
            fetch_id = getattr(self.effect, "fetch_id", None)
            kind = _KINDS[type(self.effect)]
            poll = None
            if isinstance(self.effect, m.SendVote):
                poll = self.effect.epoch, self.effect.pre_vote
            self.sender.step(m.RequestFailed(self.asked, kind, fetch_id, refused, poll=poll))

    def refuse(self) -> None:
        if self.sender.life == self.life:
            self.fail(refused=True)

    def deliver(self) -> None:
        receiver = self.receiver
        if receiver.core is None:
            # No process listens there: the connection is refused.
            self.world.later(1, self.refuse)
        else:
            make = self.world.request
            receiver.ask(lambda token: make(self.sender, receiver, self.effect, token), self.answer)

    def answer(self, reply: Any) -> None:
        receiver, world = self.receiver, self.world
        records: list[Entry] = []
        fetched = isinstance(reply, m.ReplyFetch) and not reply.error
        if fetched and reply.diverging is None and reply.snapshot is None:
            records = receiver.log.entries[reply.fetch_offset :][:FETCH_RECORDS]
        mark = receiver.core.high_watermark if receiver.core else None
        if world.reaches(self.sender.key.id, receiver.key.id):
            delay_ms = world.rng.uniform(1, 20)
            world.later(delay_ms, lambda: self.arrive(reply, records, -1 if mark is None else mark))

    def arrive(self, reply: Any, records: list[Entry], high_watermark: int) -> None:
        sender, to = self.sender, self.receiver.key.id
        if self.over or sender.life != self.life:
            return
        self.over = True
        epoch, leader_id = reply.epoch, reply.leader_id
        match reply:
            case m.ReplyVote():
                pre_vote = self.effect.pre_vote
                sender.step(m.VoteAnswered(to, epoch, leader_id, reply.granted, pre_vote))
            case m.ReplyEpoch():
                begin = isinstance(self.effect, m.SendBeginEpoch)
                ok = reply.error is ErrorCode.NONE
                sender.step(m.EpochAnswered(to, epoch, leader_id, begin, ok))
            case m.ReplyFetch():
                assert sender.core is not None
                if sender.core.awaits(self.effect.fetch_id):
                    sender.fetched = records
                sender.step(
                    m.FetchAnswered(
                        self.effect.fetch_id,
                        self.asked,
                        epoch,
                        leader_id,
                        reply.error,
                        high_watermark,
                        reply.diverging,
                        reply.snapshot,
                        len(records),
                    )
                )


def common_length(one: list[Entry], other: list[Entry]) -> int:
    """Return the number of entries that two logs share from the first on."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(at for at in range(shorter) if one[at] != other[at])


class QuorumWorld:
    """A world that `run` advances to a time; every promise holds after each event, or `Broken` is
    raised.

    With `static` voters their directories are unknown, as with `controller.quorum.voters`: a voter
    that comes back on an empty disk is still a voter.
    """

    def __init__(
        self,
        seed: int,
        *,
        voters: int,
        observers: int = 0,
        static: bool = False,
        make_core: Callable[..., QuorumCore] = QuorumCore,
        timing: Timing | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.make_core = make_core
        self.timing = timing or Timing(
            election_timeout_ms=1000, fetch_timeout_ms=2000, election_backoff_max_ms=500
        )
        self.disk_ms_max = 20.0
        self.loss = 0.0
        self.crash_while_persisting = 0.0
        self.cut: set[frozenset[int]] = set()
        self.closed: set[frozenset[int]] = set()
        """Links on which connections are refused, though the node at the other end is running."""
        self.votes_asked: Counter[int] = Counter()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.tokens = itertools.count(1)
        keys = [ReplicaKey(i, bytes([10 * i]) * 16) for i in range(1, voters + observers + 1)]
        known = [ReplicaKey(key.id) if static else key for key in keys[:voters]]
        self.voters = VoterSet(Voter(key, endpoints_of(key.id)) for key in known)
        self.nodes = {key.id: Node(self, key) for key in keys}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, ReplicaKey], ReplicaKey] = {}
        self.log: list[Entry] = []
        """Entries that some node has reported as committed."""
        self.stored: list[Entry] = []
        """Entries that a majority of the voters had on their disks while the leader that wrote them
        led: they are committed, whether a node reports it or not."""
        self.values = itertools.count()
        self.dirty = True
        self.newest_mark = (0, 0)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.later(0, self.client)
        self.later(0, self.maintain)

    @property
    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.core is not None]

    def leader(self) -> Node | None:
        """Return the live leader of the highest epoch."""
        leaders = [node for node in self.live if node.core is not None and node.core.is_leader]
        return max(leaders, key=lambda node: node.core.epoch if node.core else 0, default=None)

    # --- time ---------------------------------------------------------------------------------

    def later(self, delay_ms: float, work: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.order), work))

    def disk_ms(self) -> float:
        return self.rng.uniform(0.1, self.disk_ms_max)

    def run(self, duration_ms: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Advance the world. Returns: whether `until` came true within the time."""
        end_ms = self.now_ms + duration_ms
        while self.events and self.events[0][0] <= end_ms:
            at_ms, _, work = heapq.heappop(self.events)
            self.now_ms = at_ms
            work()
            self.check()
            if until():
                return True
        self.now_ms = end_ms
        return until()

    # --- clients and network ------------------------------------------------------------------

    def client(self) -> None:
        for node in self.live:
            core = node.core
            if core is not None and core.is_leader and not node.queue and not node.persisting:
                node.append(next(self.values))
        self.later(self.rng.uniform(5, 50), self.client)

    def maintain(self) -> None:
        """Let a random node write a snapshot, or remove the log below one, from time to time."""
        node = self.rng.choice(list(self.nodes.values()))
        if node.core is not None and node.high_watermark > node.log.start_offset:
            if self.rng.random() < 0.6:
                node.log.snapshot(node.high_watermark)
            else:
                node.log.clean()
        self.later(self.rng.uniform(50, 800), self.maintain)

    def send_snapshot(self, node: Node, effect: m.InstallSnapshot) -> None:
        """Execute FetchSnapshot, all parts in one; it fails if the other node lacks the
        snapshot."""
        assert node.core is not None
        if node.core.is_leader:
            raise Broken(f"M11: leader {node.key.id} is to load a snapshot")
        leader = self.nodes[effect.node_id]

        def arrive() -> None:
            core = node.core
            if core is None or not core.awaits(effect.fetch_id):
                return
            there = leader.core is not None and effect.id in leader.log.snapshots
            if not there or not self.reaches(node.key.id, effect.node_id):
                kind = m.RequestKind.FETCH_SNAPSHOT
                node.step(m.RequestFailed(effect.node_id, kind, effect.fetch_id))
                return
            if effect.id.offset < node.high_watermark:
                raise Broken(f"M10: a snapshot below the high watermark of {node.key.id}")
            node.log.install(effect.id, leader.log.entries[: effect.id.offset])
            node.step(m.SnapshotInstalled(effect.fetch_id, effect.id))

        node.later(self.rng.uniform(5, 100), arrive)

    def reaches(self, a: int, b: int) -> bool:
        return frozenset((a, b)) not in self.cut and self.rng.random() >= self.loss

    def send(self, sender: Node, effect: Any, to: int) -> None:
        call = Call(self, sender, effect, to)
        self.votes_asked[call.receiver.key.id] += isinstance(effect, m.SendVote)
        sender.later(getattr(effect, "timeout_ms", CALL_TIMEOUT_MS), call.fail)
        if frozenset((sender.key.id, call.receiver.key.id)) in self.closed:
            self.later(1, call.refuse)
        elif self.reaches(sender.key.id, call.receiver.key.id):
            self.later(self.rng.uniform(1, 20), call.deliver)

    def request(self, sender: Node, receiver: Node, effect: Any, token: int) -> Any:
        voter = self.voters.get(receiver.key.id)
        key = receiver.key if voter is None else voter.key
        match effect:
            case m.SendVote():
                return m.VoteRequested(
                    token, sender.key, effect.epoch, effect.last, effect.pre_vote, key
                )
            case m.SendBeginEpoch():
                return m.BeginEpochRequested(token, sender.key.id, effect.epoch, voter=key)
            case m.SendEndEpoch():
                return m.EndEpochRequested(token, sender.key.id, effect.epoch, effect.preferred)
            case m.SendFetch() | m.FindLeader():
                return m.FetchRequested(
                    token, sender.key, effect.epoch, effect.fetch_offset, effect.last_epoch
                )
        raise TypeError(effect)

    # --- promises -----------------------------------------------------------------------------

    def truncated(self, node: Node, end_offset: int) -> None:
        if end_offset < max(node.high_watermark, node.log.start_offset):
            raise Broken(f"M10: node {node.key.id} truncates below its high watermark")

    def committed(self, node: Node, offset: int) -> None:
        """Judge a commit: committed entries are the same everywhere and never change (M14)."""
        core = node.core
        assert core is not None
        if core.is_leader and node.log.entries[offset - 1].epoch != core.epoch:
            raise Broken(f"M9: leader {node.key.id} commits {offset} before its own first record")
        mine = node.log.entries[:offset]
        if len(mine) < offset:
            raise Broken(f"node {node.key.id} commits {offset}, its log ends at {len(mine)}")
        known = min(len(self.log), offset)
        if mine[:known] != self.log[:known]:
            raise Broken(f"M14: node {node.key.id} commits another record below {known}")
        self.log.extend(mine[known:])

    def check(self) -> None:
        """Check all promises after an event that had effects."""
        if not self.dirty:
            return
        self.dirty = False
        for node in self.nodes.values():
            states = [(node.saved.epoch, node.saved.leader_id)]
            if node.core is not None:
                states.append((node.core.epoch, node.core.leader_id))
                node.core.validate()
            for epoch, leader_id in states:
                if leader_id is not None and self.leaders.setdefault(epoch, leader_id) != leader_id:
                    raise Broken(f"M1: epoch {epoch} has two leaders")
            self.check_log(node)
            voted = node.saved.voted
            if voted is not None:
                key = (node.saved.epoch, node.key)
                if self.votes.setdefault(key, voted) != voted:
                    raise Broken(f"M3: {node.key} voted twice in epoch {node.saved.epoch}")
        leader = self.leader()
        if leader is not None and leader.core is not None:
            self.check_leader(leader, leader.core)

    def check_log(self, node: Node) -> None:
        log, mark = node.log, node.high_watermark
        start = log.start_offset
        if start and (start, log.entries[start - 1].epoch) not in log.snapshots:
            raise Broken(f"M12: the log of {node.key.id} starts at {start} without a snapshot")
        if log.entries[: min(mark, log.end_offset)] != self.log[: min(mark, log.end_offset)]:
            raise Broken(f"M5, M13: node {node.key.id} would replay something else below {mark}")

    def check_leader(self, leader: Node, core: QuorumCore) -> None:
        mark = core.high_watermark or 0
        epoch, before = self.newest_mark
        if core.epoch == epoch and mark < before:
            raise Broken(f"M7: the high watermark of epoch {epoch} fell from {before} to {mark}")
        self.newest_mark = (core.epoch, mark)
        have = sum(self.nodes[v.id].log.entries[:mark] == self.log[:mark] for v in self.voters)
        if len(self.log) >= mark and have < self.voters.majority:
            raise Broken(f"M8: only {have} voters have what is committed below {mark}")
        if core.epoch == max(self.leaders, default=0):
            self.check_newest_leader(leader, core.epoch)

    def check_newest_leader(self, leader: Node, epoch: int) -> None:
        """Judge the newest leader by the logs of other nodes, not by its own state (M4). Its log
        must have all committed entries, so one that ends earlier is wrong."""
        log = leader.log.entries
        for what, committed in (("called", self.log), ("stored", self.stored)):
            if log[: len(committed)] != committed:
                raise Broken(
                    f"M4: leader {leader.key.id} of epoch {epoch} lacks committed records: its "
                    f"log ends at {len(log)}, {len(committed)} are {what} committed"
                )
        lengths = [common_length(self.nodes[v.id].log.durable, log) for v in self.voters]
        end = sorted(lengths, reverse=True)[self.voters.majority - 1]
        if end > len(self.stored) and log[end - 1].epoch == epoch:
            self.stored = log[:end]

    def settle(self, *, more: int = 10, within_ms: float = 30_000) -> None:
        """Heal all faults and start all nodes: the quorum must commit `more` records everywhere."""
        self.loss = self.crash_while_persisting = 0.0
        self.cut.clear()
        for node in self.nodes.values():
            if node.core is None:
                node.start()
        goal = len(self.log) + more
        members = [n for n in self.nodes.values() if self.voters.is_voter(n.key)]
        if not self.run(within_ms, lambda: all(n.high_watermark >= goal for n in members)):
            roles = {n.key.id: (n.core.role, n.core.epoch) for n in self.live if n.core}
            raise Broken(f"M20: no progress to {goal}; {roles}, committed {len(self.log)}")


_KINDS = {
    m.SendVote: m.RequestKind.VOTE,
    m.SendBeginEpoch: m.RequestKind.BEGIN_EPOCH,
    m.SendEndEpoch: m.RequestKind.END_EPOCH,
    m.SendFetch: m.RequestKind.FETCH,
    m.FindLeader: m.RequestKind.FETCH,
}
