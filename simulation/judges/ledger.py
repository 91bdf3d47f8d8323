"""Ledgers of what clients were promised, and checks whether a cluster keeps it.

A client reports every request to the ledger before it is sent, every response, and every end of a
node's life. From that the ledger knows for each record, topic, setting and committed offset one of
three states: it must exist, it may exist, it must not exist.

An acknowledged record may be missing only if its topic was not flushed for it and the power was cut
since. Then every later record in the partition must be missing, too. (Kafka flushes nothing on
behalf of acks=all; `flush.messages=1` is the topic that promises more.) Every record that exists is
there once, in the order of sending, at the offset of the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from simulation.world.invariants import (
    Key,
    LogState,
    NodeState,
    Violation,
    log_problems,
    node_problems,
    require,
)


class Known(Enum):
    """The known state of a batch."""

    SENT = "sent"
    WRITTEN = "written"
    """A retry got a duplicate error: the batch exists, at an unknown offset."""
    ACKED = "acknowledged"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(eq=False)
class Batch:
    """One batch of one producer; `offset` is that of its first record, once acknowledged."""

    producer: str
    number: int
    values: tuple[bytes, ...]
    known: Known = Known.SENT
    offset: int = -1
    acked_in: int = -1
    """The life that acknowledged it."""
    uncertain: bool = False
    """A request with it got no response: it may exist, whatever the responses to later ones."""

    @property
    def end(self) -> int:
        return self.offset + len(self.values)


@dataclass(eq=False)
class PartitionLedger:
    """All batches that were sent to one partition."""

    topic: str
    index: int
    flushed: bool
    topic_id: bytes = b""
    """Empty until a client has requested it."""
    ended: bool = False
    """Its topic is deleted, or about to be."""
    batches: list[Batch] = field(default_factory=list)
    by_value: dict[bytes, Batch] = field(default_factory=dict)
    start_asked: int = 0
    """The highest offset of a request to delete records below it."""
    leader_epoch: int = -1
    checked_life: int = 0
    read_ends: dict[int, int] = field(default_factory=dict)
    """The highest offset up to which consumers have read in each life."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def sending(self, producer: str, number: int, values: Sequence[bytes]) -> Batch:
        """Enter a batch that is about to be sent for the first time."""
        batch = Batch(producer, number, tuple(values))
        self.batches.append(batch)
        for value in values:
            assert value not in self.by_value
            self.by_value[value] = batch
        return batch

    def trying(self, batch: Batch) -> None:
        """Enter that the batch is about to be sent, perhaps once more."""
        if batch.known is Known.REFUSED:
            batch.known = Known.SENT

    def acked(self, batch: Batch, offset: int, life: int) -> None:
        """Enter that the cluster acknowledged the batch at `offset`."""
        require(offset >= 0, f"H1: {self}: {batch.values[0]!r} was acknowledged without an offset")
        if batch.known is Known.ACKED:
            require(offset == batch.offset, f"H1: {self}: {batch} was acknowledged at {offset} too")
        batch.known, batch.offset, batch.acked_in = Known.ACKED, offset, life

    def written(self, batch: Batch) -> None:
        """Enter that the cluster reported the batch as a duplicate of an earlier attempt."""
        require(
            batch.uncertain, f"H4: {self}: {batch.values[0]!r} was sent once and is a duplicate"
        )
        if batch.known is not Known.ACKED:
            batch.known = Known.WRITTEN

    def refused(self, batch: Batch) -> None:
        """Enter an error that promises that nothing of the batch was appended."""
        if batch.known is Known.SENT and not batch.uncertain:
            batch.known = Known.REFUSED

    def seen(self, batch: Batch, offset: int, life: int) -> None:
        """Enter that a consumer read the batch; its first record was, or would have been, at
        `offset`."""
        require(
            batch.known is not Known.ACKED or batch.offset == offset,
            f"H1: {self}: {batch.values[0]!r} was acknowledged at {batch.offset} and read at "
            f"{offset}",
        )
        self.read_ends[life] = max(self.read_ends.get(life, 0), offset + len(batch.values))

    @property
    def acked_end(self) -> int:
        """The end of the last acknowledged batch that is not lost."""
        return max((b.end for b in self.batches if b.known is Known.ACKED), default=0)

    def began(self, life: int, offset: int, *, empty: bool, power_cut: bool) -> None:
        """Judge a log that life `life` opened with its end at `offset`; `empty` if that is its
        start."""
        if life <= self.checked_life:
            return
        self.checked_life = life
        earlier = [self.read_ends.pop(one) for one in list(self.read_ends) if one < life]
        require(
            not self.flushed or offset >= max(earlier, default=0),
            f"H3: {self}: consumers had read up to {max(earlier, default=0)} of what is flushed "
            f"before it is shown, and the log ends at {offset}",
        )
        for batch in self.batches:
            if batch.known is not Known.ACKED or batch.acked_in >= life or batch.end <= offset:
                continue
            what = f"H3: {self}: {batch.values[0]!r}, acknowledged at {batch.offset},"
            require(power_cut, f"{what} is missing without a power cut: the log ends at {offset}")
            require(not self.flushed, f"{what} was flushed and is missing: the end is {offset}")
            # An empty log begins at the offset of the last record deletion, even inside a batch.
            require(batch.offset >= offset or empty, f"{what} was cut in two at {offset}")
            batch.known = Known.LOST

    def check(self, start: int, end: int, records: Sequence[tuple[int, bytes]], life: int) -> None:
        """Judge the partition as a client read it in life `life`: every record from `start` to
        `end`.

        Nothing may be sent in the meantime.
        """
        offsets = [offset for offset, _ in records]
        require(
            offsets == list(range(start, end)),
            f"H5: {self}: offsets {offsets[:5]}.. are not {start} to {end}",
        )
        require(
            start <= self.start_asked, f"H3: {self}: begins at {start}, asked {self.start_asked}"
        )
        found: dict[Batch, int] = {}
        last: dict[str, int] = {}
        at = 0
        while at < len(records):
            offset, value = records[at]
            batch = self.by_value.get(value)
            if batch is None:
                raise Violation(f"H2: {self}: nobody sent {value!r}, which is at {offset}")
            skipped = batch.values.index(value)
            require(
                skipped == 0 or at == 0, f"H1: {self}: {value!r} at {offset} begins in the middle"
            )
            whole = [value for _, value in records[at : at + len(batch.values) - skipped]]
            require(
                whole == list(batch.values[skipped:]), f"H1: {self}: the batch at {offset} is torn"
            )
            require(batch not in found, f"H4: {self}: {value!r} is there twice")
            require(
                batch.known is not Known.REFUSED, f"H2: {self}: {value!r} was refused and is there"
            )
            require(batch.known is not Known.LOST, f"H1: {self}: {value!r} was lost and is back")
            require(
                last.get(batch.producer, -1) < batch.number,
                f"H8: {self}: {value!r} is out of order",
            )
            last[batch.producer] = batch.number
            found[batch] = offset - skipped
            at += len(whole)
        for batch in self.batches:
            if batch.known is Known.WRITTEN and self.flushed and not start:
                require(
                    batch in found, f"H3: {self}: {batch.values[0]!r} was a duplicate, and is not"
                )
            if batch.known is Known.ACKED and start < batch.end:
                require(
                    found.get(batch) == batch.offset,
                    f"H3: {self}: {batch.values[0]!r}, acknowledged at {batch.offset} in life "
                    f"{batch.acked_in}, is at {found.get(batch)} in life {life}",
                )


class Presence(Enum):
    """The known state of a topic."""

    ABSENT = "absent"
    CREATING = "creating"
    PRESENT = "present"
    DELETING = "deleting"


@dataclass(eq=False)
class TopicLedger:
    """One topic with one id (None while its creation is uncertain)."""

    name: str
    flushed: bool
    partition_count: int
    presence: Presence = Presence.CREATING
    topic_id: bytes | None = None
    partitions: list[PartitionLedger] = field(default_factory=list)
    partitions_asked: int = 0
    retention_acked: int = -1
    retention_asked: list[int] = field(default_factory=list)
    asked_in: int = 0

    def __post_init__(self) -> None:
        self.partitions_asked = max(self.partitions_asked, self.partition_count)
        self.grow(self.partition_count)

    def grow(self, count: int) -> None:
        """Enter that at least `count` partitions exist."""
        self.partition_count = max(self.partition_count, count)
        while len(self.partitions) < count:
            self.partitions.append(PartitionLedger(self.name, len(self.partitions), self.flushed))


@dataclass(eq=False)
class CommitLedger:
    """Commits of one group for one partition; offsets only grow."""

    asked: list[int] = field(default_factory=list)
    acked: int = -1

    def check(self, what: str, found: int) -> None:
        """Judge a group's offset as the cluster returned it, -1 for none."""
        require(found >= self.acked, f"{what}: committed {self.acked}, found {found}")
        require(found == -1 or found in self.asked, f"{what}: {found} was never committed")


class Ledger:
    """Everything that was promised in one world with one node."""

    def __init__(self, *, offsets_flushed: bool) -> None:
        self.offsets_flushed = offsets_flushed
        self.topics: dict[str, TopicLedger] = {}
        self.dead_ids: dict[bytes, str] = {}
        self.commits: dict[tuple[str, str, int], CommitLedger] = {}
        self.producer_ids: dict[int, int] = {}
        self.counts: dict[str, int] = {}
        self._node = NodeState()
        self._logs: dict[Key, tuple[LogState, bool]] = {}
        """Partitions as last seen in a life that is over, and whether the power was cut since."""

    def count(self, what: str) -> None:
        """Count an event for the summary."""
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- lives --------------------------------------------------------------------------------

    def life_is_up(self, life: int, state: NodeState) -> None:
        """Judge the state of a node in its present life against earlier lives."""
        for problem in node_problems(self._node, state):
            raise Violation(f"life {life}: {problem}")
        for key, new in state.logs.items():
            known = self._logs.get(key)
            if known is None:
                continue
            old, power_cut = known
            for problem in log_problems(old, new, power_cut=power_cut):
                raise Violation(f"life {life}: {problem}")
            partition = self._partition(*key)
            if partition is not None:
                empty = new.start >= new.began_at
                partition.began(life, new.began_at, empty=empty, power_cut=power_cut)

    def _partition(self, topic_id: bytes, index: int) -> PartitionLedger | None:
        for topic in self.topics.values():
            if topic.topic_id == topic_id and index < len(topic.partitions):
                return topic.partitions[index]
        return None

    def life_is_over(self, life: int, state: NodeState, *, power_cut: bool) -> None:
        """Enter the end of a life. State that the life did not reach is kept from before."""
        self.life_is_up(life, state)
        for key, (old, cut) in self._logs.items():
            self._logs[key] = (old, cut or power_cut)
        for key, new in state.logs.items():
            known = self._logs.get(key)
            epoch = max(new.leader_epoch, known[0].leader_epoch if known else -1)
            self._logs[key] = (replace(new, leader_epoch=epoch), power_cut)
        if state.metadata_end >= 0:
            broker_epoch = max(self._node.broker_epoch, state.broker_epoch)
            self._node = replace(state, logs={}, broker_epoch=broker_epoch)
        if power_cut and not self.offsets_flushed:
            for commits in self.commits.values():
                commits.acked = -1

    # --- topics -------------------------------------------------------------------------------

    def creating(self, name: str, *, flushed: bool, partitions: int, life: int) -> TopicLedger:
        topic = self.topics[name] = TopicLedger(name, flushed, partitions, asked_in=life)
        return topic

    def exists(self, topic: TopicLedger, topic_id: bytes) -> None:
        """Enter that the cluster listed the topic with this id: it is committed."""
        gone = self.dead_ids.get(topic_id)
        require(gone is None, f"topic {topic.name}: {gone} of the same id was deleted before")
        if topic.topic_id is None:
            topic.topic_id = topic_id
        require(topic.topic_id == topic_id, f"topic {topic.name} has another id than before")
        if topic.presence is Presence.CREATING:
            topic.presence = Presence.PRESENT

    def gone(self, topic: TopicLedger) -> None:
        """Enter that the cluster confirmed the deletion of the topic."""
        if topic.topic_id is not None:
            self.dead_ids[topic.topic_id] = topic.name
        topic.presence = Presence.ABSENT
        del self.topics[topic.name]

    def check_topics(self, found: dict[str, tuple[bytes, int]], life: int) -> None:
        """Judge all topics (name -> id, partitions) as the cluster listed them, with no admin
        request in flight."""
        for name, topic in list(self.topics.items()):
            seen = found.get(name)
            if seen is None:
                require(
                    topic.presence is not Presence.PRESENT,
                    f"topic {name} was created and is not there",
                )
                if topic.asked_in < life:
                    self.gone(topic)  # an uncertain request to the earlier life is decided now
                continue
            self.exists(topic, seen[0])
            require(
                topic.partition_count <= seen[1] <= topic.partitions_asked,
                f"topic {name} has {seen[1]} partitions, promised were {topic.partition_count}",
            )
            topic.grow(seen[1])
            if topic.presence is Presence.DELETING and topic.asked_in < life:
                topic.presence = Presence.PRESENT
        for name, (topic_id, _) in found.items():
            require(name in self.topics, f"topic {name} is there, but was deleted or never created")
            require(topic_id not in self.dead_ids, f"topic {name} has the id of a deleted one")

    # --- offsets and producers ----------------------------------------------------------------

    def commits_of(self, group: str, topic: str, partition: int) -> CommitLedger:
        return self.commits.setdefault((group, topic, partition), CommitLedger())

    def producer_id(self, producer_id: int, life: int) -> None:
        """Enter a producer id that a producer was given; each is given once."""
        before = self.producer_ids.get(producer_id)
        require(before is None, f"producer id {producer_id} was given in life {before} and {life}")
        self.producer_ids[producer_id] = life
