"""Test data for the audit's page: the log of a cluster that had an incident, of any number of
partitions, and a client history with the injected faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kraftbox.chaos.history import Fault, History, save
from protocol.metadata import ConfigRecord, PartitionChangeRecord, TopicRecord
from testkit.records.metadata_logs import LogBuilder

BROKERS = 6
REPLICAS = 3
MIN_ISR = 2
TOPIC_PARTITIONS_MAX = 100
TOPICS = (
    "orders",
    "payments",
    "clicks.raw",
    "a-name.that-is-too-long-for-the-margin.of-the-picture",
)
INTERNAL = (("__consumer_offsets", 50), ("__transaction_state", 10))
BATCH_RECORDS = 500
RECOVERED, RECOVERING = 0, 1
NO_LEADER = -1
CALM_MS = 10_000


class Written(NamedTuple):
    """The directory of the metadata log, the history file, and a broker's log directory, without
    which no history is audited."""

    log: Path
    history: Path
    data: Path


class _Partition:
    """A partition's state at the controller, and the records that change it."""

    def __init__(self, topic_id: bytes, index: int, replicas: tuple[int, ...]) -> None:
        self.place: dict[str, Any] = {"topic_id": topic_id, "partition_id": index}
        self.replicas = replicas
        self.isr = list(replicas)
        self.elr: list[int] = []
        self.leader = replicas[0]
        self.recovery = RECOVERED

    def lose(self, broker: int) -> PartitionChangeRecord:
        left = [one for one in self.isr if one != broker]
        elr = [*self.elr, broker] if len(left) < MIN_ISR else []
        leads = self.leader != broker
        return self._become(left, elr, self.leader if leads else (*left, NO_LEADER)[0])

    def gain(self, broker: int) -> PartitionChangeRecord:
        """Let a broker join the ISR, and lead if there is no leader."""
        joined = [*self.isr, broker]
        elr = [one for one in self.elr if one != broker] if len(joined) < MIN_ISR else []
        leader = broker if self.leader == NO_LEADER else self.leader
        return self._become(joined, elr, leader)

    def uncleanly(self, broker: int) -> PartitionChangeRecord:
        """Let a broker lead although others may have more records."""
        return self._become([broker], [], broker, RECOVERING)

    def prefer(self) -> PartitionChangeRecord:
        return self._become(self.isr, self.elr, self.replicas[0])

    def _become(
        self, isr: list[int], elr: list[int], leader: int, recovery: int = RECOVERED
    ) -> PartitionChangeRecord:
        changed: dict[str, Any] = {}
        if isr != self.isr:
            changed["isr"] = self.isr = isr
        if elr != self.elr:
            changed["eligible_leader_replicas"] = self.elr = elr
        if leader != self.leader:
            changed["leader"] = self.leader = leader
        if recovery != self.recovery:
            changed["leader_recovery_state"] = self.recovery = recovery
        return PartitionChangeRecord(**self.place, **changed)


def write_incident(folder: Path, partitions: int) -> Written:
    """Write a day of `partitions` partitions of users, and of internal topics.

    One broker is stopped cleanly. Three that share partitions are killed one after the other, the
    quorum gets another leader, and the broker that was lost first returns first. Some partitions
    elect it, uncleanly, the others wait for the ELR. In the end the other three are killed, and
    partitions that only they had in sync stay without a leader. A fenced broker stays in the ISRs
    of one partition in a hundred, which breaks a promise.
    """
    builder = LogBuilder().begin(BROKERS, min_isr=MIN_ISR)
    mine = list(_topics(builder, partitions))
    day = _Day(builder, mine)
    day.stop(5)
    day.start(5)
    for broker in (1, 2, 3):
        day.kill(broker)
    builder.leader(102, epoch=2)
    dead = [one for one in mine if one.leader == NO_LEADER]
    lost = dead[:: max(1, len(dead) // max(1, partitions // 100))]
    day.start(1, uncleanly=lost)
    for broker in (2, 3):
        day.start(broker)
    day.kill(6, but=partitions // 100)
    for broker in (5, 4):
        day.kill(broker)
    day.end()
    history = folder / "history.kbxh"
    log = builder.write(folder)
    save(history, History(faults=day.faults))
    return Written(log, history, _empty_broker(folder / "broker-2"))


def _empty_broker(folder: Path) -> Path:
    """Write the log directory of broker 2: one replica, to which nothing was ever produced."""
    replica = folder / f"{TOPICS[0]}-0"
    replica.mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\ncluster.id=audited-cluster\nnode.id=2\n")
    (replica / f"{0:020d}.log").touch()
    return folder


class _Day:
    """The events of brokers, as records and as faults."""

    def __init__(self, builder: LogBuilder, partitions: list[_Partition]) -> None:
        self.builder = builder
        self.partitions = partitions
        self.faults: list[Fault] = []
        self._killed_ms: dict[int, int] = {}

    def stop(self, broker: int) -> None:
        self.builder.leave(broker, *self._leaving(broker))

    def kill(self, broker: int, but: int = 0) -> None:
        """Kill a broker; it is fenced when its session ends, except in `but` forgotten
        partitions."""
        self._killed_ms[broker] = self.builder.now_ms
        self.builder.now_ms += CALM_MS
        self.builder.fence(broker, *self._leaving(broker)[but:])

    def _leaving(self, broker: int) -> list[PartitionChangeRecord]:
        return [one.lose(broker) for one in self.partitions if broker in one.isr]

    def start(self, broker: int, uncleanly: Sequence[_Partition] = ()) -> None:
        """Start a broker: it leads leaderless partitions, catches up, and leads its preferred ones
        again."""
        self.builder.now_ms += CALM_MS
        self._undo(broker)
        orphans = [one for one in self.partitions if one.leader == NO_LEADER and broker in one.elr]
        self.builder.unfence(
            broker,
            *(one.gain(broker) for one in orphans),
            *(one.uncleanly(broker) for one in uncleanly),
        )
        behind = [one for one in self.partitions if broker in one.replicas]
        self._change(
            [
                one.gain(broker)
                for one in behind
                if broker not in one.isr and one.leader != NO_LEADER
            ]
        )
        self._change(
            [
                one.prefer()
                for one in behind
                if one.replicas[0] == broker != one.leader and broker in one.isr
            ]
        )

    def end(self) -> None:
        """Change one setting; the log ends before the dead brokers return."""
        self.builder.now_ms += CALM_MS
        self.builder.add(
            ConfigRecord(resource_type=2, resource_name=TOPICS[0], name="retention.ms", value="1")
        )
        for broker in sorted(self._killed_ms):
            self._undo(broker)

    def _undo(self, broker: int) -> None:
        begin_ms = self._killed_ms.pop(broker, None)
        if begin_ms is not None:
            end_us = self.builder.now_ms * 1000
            self.faults.append(Fault("kill", [broker], begin_ms * 1000, end_us, "SIGKILL"))

    def _change(self, records: Sequence[PartitionChangeRecord]) -> None:
        for begin in range(0, len(records), BATCH_RECORDS):
            self.builder.add(*records[begin : begin + BATCH_RECORDS], after_ms=200)


def _topics(builder: LogBuilder, partitions: int) -> Iterator[_Partition]:
    for number, (name, size) in enumerate((*_sizes(partitions), *INTERNAL), start=1):
        topic_id = number.to_bytes(16, "big")
        made = [_Partition(topic_id, index, _replicas(index + number - 1)) for index in range(size)]
        builder.add(
            TopicRecord(name=name, topic_id=topic_id),
            *(builder.partition(one.replicas, **one.place) for one in made),
            after_ms=20,
        )
        yield from made


def _sizes(partitions: int) -> Iterator[tuple[str, int]]:
    for number, left in enumerate(range(partitions, 0, -TOPIC_PARTITIONS_MAX)):
        turn, at = divmod(number, len(TOPICS))
        name = f"{TOPICS[at]}-{turn}" if turn else TOPICS[at]
        yield name, min(left, TOPIC_PARTITIONS_MAX)


def _replicas(number: int) -> tuple[int, ...]:
    return tuple((number + step) % BROKERS + 1 for step in range(REPLICAS))
