"""Local-log stats of replicas as reported by leaders: storage and lifetime (KIP-1303)."""

from __future__ import annotations

import pytest

from controller.brokers.directories import decide_assign_directories
from controller.configs.topic_settings import LOCAL_LOG_MS
from controller.elections.cause import Cause
from controller.elections.context import BrokerChange, ElectionContext
from controller.elections.partition_change import Target
from controller.topics.isr import IsrAnswer, decide_alter_partition
from controller.topics.reassignments import decide_reassign
from metalog.image.local_log import NO_LOCAL_LOGS, LocalLogStats, LocalLogTable, ReplicaLocalLog
from metalog.image.snapshot import local_log_entries
from metalog.image.values import ConfigResourceType
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.metadata import ConfigRecord, PartitionChangeRecord
from testkit.memory.controller import SESSION_TIMEOUT_MS, Cluster, directory

MINUTE_MS = 60_000
Table = dict[int, tuple[int, int]]
ONE_MINUTE_AGO = Cluster().now_ms - MINUTE_MS


class World(Cluster):
    """Topic t on 1, 2 and 3, led by 1; a threshold of ten minutes."""

    def __init__(self, *, on: bool = True) -> None:
        super().__init__(elr=True, min_insync_replicas="2")
        self.start(1, 2, 3, 4)
        self.create_topic("t", [1, 2, 3])
        self.written: list[PartitionChangeRecord] = []
        self.configure(str(10 * MINUTE_MS) if on else None)

    def apply(self, records: object) -> None:
        super().apply(records)  # type: ignore[arg-type]
        if hasattr(self, "written"):
            self.written += [r for r in records if type(r) is PartitionChangeRecord]  # type: ignore[attr-defined]

    def configure(self, value: str | None) -> None:
        kind = int(ConfigResourceType.BROKER)
        self.apply(
            [ConfigRecord(resource_type=kind, resource_name="", name=LOCAL_LOG_MS, value=value)]
        )

    def tell(self, table: Table, *isr: int, epoch: int | None = None) -> IsrAnswer:
        """Propose an ISR, by default the current one, with the leader's stats of its members.

        Args: epoch: the partition epoch of the proposal; default: the current one.
        """
        partition, brokers = self.partition("t"), self.image.cluster.brokers
        members = [
            AlterPartitionRequest.BrokerState(
                broker_id=member,
                broker_epoch=brokers[member].epoch,
                local_log_start_timestamp=table.get(member, (-1, -1))[0],
                local_log_size_bytes=table.get(member, (-1, -1))[1],
            )
            for member in isr or partition.isr
        ]
        data = AlterPartitionRequest.PartitionData(
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch if epoch is None else epoch,
            new_isr_with_epochs=members,
        )
        topic_id = self.image.topics.by_name["t"].id
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=brokers[partition.leader].epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[data])],
        )
        (topic,) = self.run(lambda view: decide_alter_partition(view, request))
        return topic.partitions[0]

    def back(self, broker_id: int) -> None:
        """Expire a broker's session, then register it after a crash."""
        self.advance(SESSION_TIMEOUT_MS)
        for other in self.image.cluster.brokers:
            if other != broker_id:
                self.touch(other)
        self.register(broker_id, life=2)
        self.heartbeat(broker_id)

    @property
    def known(self) -> Table:
        """Return the stats of brokers that are still in the incarnation in which they were
        reported."""
        brokers = self.image.cluster.brokers
        return {
            one.broker_id: tuple(one.stats)  # type: ignore[misc]
            for one in self.partition("t").local_logs.entries
            if brokers[one.broker_id].epoch == one.broker_epoch
        }


@pytest.fixture
def world() -> World:
    return World()


def test_a_report_alone_is_an_equal_isr(world: World) -> None:
    before = world.partition("t")
    outcome = world.tell({1: (5, 100), 2: (6, 200)})
    after = world.partition("t")
    assert outcome == (0, ErrorCode.NONE, after)
    assert (after.isr, after.leader_epoch) == (before.isr, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1
    epochs = {b: world.image.cluster.brokers[b].epoch for b in (1, 2)}
    assert after.local_logs.entries == (
        ReplicaLocalLog(1, epochs[1], LocalLogStats(5, 100), world.now_ms),
        ReplicaLocalLog(2, epochs[2], LocalLogStats(6, 200), world.now_ms),
    )
    (record,) = world.written
    assert (record.leader, record.election_kind) == (-2, 0)
    # A repeated report changes nothing but the time of the report.
    world.advance(1000)
    world.tell({1: (5, 100), 2: (6, 200)})
    assert world.partition("t").local_logs.reported_ms == (world.now_ms,) * 2


ALL: Table = {1: (5, 100), 2: (6, 200), 3: (7, 300)}


def test_a_change_is_taken_on_either_side_of_a_report(world: World) -> None:
    """P15: a report changes local logs alone, so the change was compared with the rest of the
    state."""
    epoch = world.partition("t").partition_epoch
    world.tell(ALL)
    outcome = world.tell(ALL, 1, 2, epoch=epoch)
    assert outcome == (0, ErrorCode.NONE, world.partition("t"))
    after = world.partition("t")
    assert (after.isr, after.partition_epoch) == ((1, 2), epoch + 2)
    # The change is complete: a repetition and another proposal of that epoch are refused.
    for isr in ((1, 2), (1, 3), (1, 2, 3)):
        for old in (epoch, epoch + 1):
            stale = world.tell(ALL, *isr, epoch=old)
            assert stale.error is ErrorCode.INVALID_UPDATE_VERSION
    assert world.partition("t") is after


def test_a_report_behind_a_change_is_too_late(world: World) -> None:
    epoch = world.partition("t").partition_epoch
    world.tell(ALL, 1, 2)
    after = world.partition("t")
    assert world.tell(ALL, 1, 2, 3, epoch=epoch).error is ErrorCode.INVALID_UPDATE_VERSION
    assert world.tell(ALL, 1, 2, epoch=epoch).error is ErrorCode.INVALID_UPDATE_VERSION
    assert world.partition("t") is after


def test_a_change_goes_past_one_report_alone(world: World) -> None:
    """P13: the leader stops counting the proposed members once it has read of a second change."""
    epoch = world.partition("t").partition_epoch
    world.tell(ALL)
    world.advance(1)
    world.tell(ALL)
    assert world.tell(ALL, 1, 2, epoch=epoch).error is ErrorCode.INVALID_UPDATE_VERSION
    assert world.tell(ALL, 1, 2, epoch=epoch + 1).error is ErrorCode.NONE


def test_proposal_without_local_logs_skips_no_partition_epoch(world: World) -> None:
    """P13: a Kafka leader treats its proposal as refused once it reads of another epoch."""
    epoch = world.partition("t").partition_epoch
    world.tell(ALL)
    assert world.tell({}, 1, 2, epoch=epoch).error is ErrorCode.INVALID_UPDATE_VERSION


def test_a_change_goes_past_nothing_but_a_report(world: World) -> None:
    """P13: an equal ISR without stats, as written for a failed disk, ends earlier proposals."""
    epoch = world.partition("t").partition_epoch
    world.tell({})
    assert world.tell(ALL, 1, 2, epoch=epoch).error is ErrorCode.INVALID_UPDATE_VERSION
    epoch = world.partition("t").partition_epoch
    reassign(world, 1, 2, 4)
    assert world.partition("t").isr == (1, 2, 3)
    assert world.tell(ALL, 1, 2, epoch=epoch).error is ErrorCode.INVALID_UPDATE_VERSION


def test_a_change_past_a_report_must_be_fit_now(world: World) -> None:
    """P16, KIP-903: a member that was fenced or came back in between is refused, as in any
    change."""
    world.tell(ALL, 1, 2)
    epoch = world.partition("t").partition_epoch
    world.advance(1)
    world.tell(ALL)
    world.fence(3)
    assert world.partition("t").partition_epoch == epoch + 1
    assert world.tell(ALL, 1, 2, 3, epoch=epoch).error is ErrorCode.INELIGIBLE_REPLICA


def test_a_controller_that_knows_of_no_report_refuses_what_came_before_it(world: World) -> None:
    epoch = world.partition("t").partition_epoch
    world.tell(ALL)
    world.report_epochs.clear()
    assert world.tell(ALL, 1, 2, epoch=epoch).error is ErrorCode.INVALID_UPDATE_VERSION


def test_a_report_and_changes_in_one_request_are_each_compared(world: World) -> None:
    """Our brokers name a partition once; for others, entries are decided one after the other."""
    partition, brokers = world.partition("t"), world.image.cluster.brokers

    def wants(*isr: int) -> AlterPartitionRequest.PartitionData:
        members = [
            AlterPartitionRequest.BrokerState(
                broker_id=b, broker_epoch=brokers[b].epoch, local_log_size_bytes=b
            )
            for b in isr
        ]
        return AlterPartitionRequest.PartitionData(
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=members,
        )

    topic_id = world.image.topics.by_name["t"].id
    data = AlterPartitionRequest.TopicData(
        topic_id=topic_id, partitions=[wants(1, 2, 3), wants(1, 2)]
    )
    request = AlterPartitionRequest(broker_id=1, broker_epoch=brokers[1].epoch, topics=[data])
    (topic,) = world.run(lambda view: decide_alter_partition(view, request))
    assert [p.error for p in topic.partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]


def test_unknown_local_log_stats_keep_earlier_ones(world: World) -> None:
    world.tell({1: (5, 100), 2: (6, 200), 3: (7, 300)})
    world.tell({1: (8, 110), 2: (-1, 210)})
    assert world.known == {1: (8, 110), 2: (6, 210), 3: (7, 300)}


def test_the_table_is_whole_with_every_isr_change_that_has_stats(world: World) -> None:
    world.tell({1: (5, 100), 2: (6, 200), 3: (7, 300)})
    world.tell({1: (5, 101)}, 1, 2)
    record = world.written[-1]
    assert [one.broker_id for one in record.local_logs or ()] == [1, 2, 3]
    assert record.isr == [1, 2]


def test_local_log_stats_are_kept_for_elr_members(world: World) -> None:
    world.tell({1: (5, 100), 2: (6, 200), 3: (7, 300)})
    world.fence(2)
    world.fence(3)
    assert world.partition("t").elr == (3,)
    assert world.known == {1: (5, 100), 2: (6, 200), 3: (7, 300)}
    assert all(record.local_logs is None for record in world.written[1:]), "nothing new is known"


def test_local_log_stats_of_old_incarnation_are_dropped(world: World) -> None:
    world.tell({1: (5, 100), 2: (6, 200), 3: (7, 300)})
    world.fence(2)
    world.back(2)
    assert 2 not in world.known
    world.tell({1: (5, 101)}, 1, 2, 3)
    assert world.known == {1: (5, 101), 3: (7, 300)}


def test_an_unclean_registration_takes_what_was_known(world: World) -> None:
    world.tell({1: (5, 100), 2: (6, 200), 3: (7, 300)})
    world.back(3)
    assert [one.broker_id for one in world.partition("t").local_logs.entries] == [1, 2]


def test_local_log_stats_of_removed_replica_are_dropped(world: World) -> None:
    world.tell({1: (5, 100), 2: (6, 200), 3: (7, 300)})
    reassign(world, 1, 2, 4)
    assert set(world.known) == {1, 2, 3}, "3 is one until 4 is in sync"
    world.tell({4: (9, 400)}, 1, 2, 3, 4)
    assert world.partition("t").replicas == (1, 2, 4)
    assert world.known == {1: (5, 100), 2: (6, 200), 4: (9, 400)}


OTHER = b"o" * 16


def assign_directory(world: World, broker_id: int, place: bytes) -> None:
    """Report, in the broker's current incarnation, that its replica of t-0 is in `place`."""
    topic_id = world.image.topics.by_name["t"].id
    data = AssignReplicasToDirsRequest
    partition = data.PartitionData(partition_index=0)
    topic = data.TopicData(topic_id=topic_id, partitions=[partition])
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=world.image.cluster.brokers[broker_id].epoch,
        directories=[data.DirectoryData(id=place, topics=[topic])],
    )
    (outcome,) = world.run(lambda view: decide_assign_directories(view, request))
    assert outcome.error is ErrorCode.NONE


@pytest.mark.parametrize("moved", [1, 2])
def test_known_local_log_goes_when_its_replica_moves_within_one_broker_epoch(moved: int) -> None:
    """KIP-1303: a move to another directory drops the stats, of a leader as of a follower.

    A report of the directory that is on record already changes nothing.
    """
    world = World()
    world.register(moved, log_dirs=[directory(moved), OTHER])
    world.heartbeat(moved)
    world.tell(ALL)
    assert world.known == ALL
    assign_directory(world, moved, directory(moved))
    assert world.known == ALL
    assign_directory(world, moved, OTHER)
    assert world.known == {b: stats for b, stats in ALL.items() if b != moved}
    world.tell({moved: (9, 900)})
    assert world.known == ALL | {moved: (9, 900)}


def reassign(world: World, *replicas: int) -> None:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(replicas=list(replicas))
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    world.run(lambda view: decide_reassign(view, request))


def test_without_a_threshold_nothing_differs() -> None:
    """Without a threshold there is no additional record and no tagged field."""
    world = World(on=False)
    world.tell({1: (5, 100), 2: (6, 200)}, 1, 2)
    plain = World(on=False)
    plain.tell({}, 1, 2)
    assert [encode(r, 2) for r in world.written] == [encode(r, 2) for r in plain.written]
    assert world.partition("t").local_logs == NO_LOCAL_LOGS


def test_local_log_stats_without_threshold_are_removed_with_next_change(world: World) -> None:
    world.tell({1: (5, 100), 2: (6, 200)})
    world.configure(None)
    before, partition = len(world.written), world.partition("t")
    assert partition.local_logs
    elections, topic = ElectionContext(world.view()), world.image.topics.by_name["t"]
    change = elections.change_partition(topic, 0, partition, Cause.BROKER_UNFENCED)
    assert change is None, "that alone is no reason for a record"
    world.tell({1: (5, 101)}, 1, 2)
    assert world.partition("t").local_logs == NO_LOCAL_LOGS
    assert len(world.written) == before + 1
    world.tell({1: (5, 102)}, 1, 2, 3)
    assert world.written[-1].local_logs is None


TOLD: dict[str, Table] = {
    "nothing": {},
    "the leader alone": {1: (5, 100)},
    "all, and enough": {1: (5, 100), 2: (6, 200), 3: (7, 300)},
    "another number": {1: (5, 101), 2: (6, 200), 3: (7, 300)},
    "one has too little": {1: (5, 100), 2: (ONE_MINUTE_AGO, 200), 3: (7, 300)},
    "the preferred one has too little": {1: (ONE_MINUTE_AGO, 100), 2: (6, 200), 3: (7, 300)},
    "one is empty": {1: (5, 100), 2: (6, 200), 3: (-1, 0)},
}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("isr", [(1, 2, 3), (1, 3)])
@pytest.mark.parametrize("target", [Target(isr=(1, 3)), Target(isr=(1, 2, 3)), Target()])
@pytest.mark.parametrize("leaving", [(), (1,)])
def test_shared_decision_equals_single_decisions(
    on: bool, isr: tuple[int, ...], target: Target, leaving: tuple[int, ...]
) -> None:
    """Partitions in the same state share a decision, but each keeps its own local-log stats."""
    cluster = Cluster(elr=True, min_insync_replicas="2")
    cluster.start(1, 2, 3)
    epochs = {broker.id: broker.epoch for broker in cluster.image.cluster.brokers.values()}
    rows = [
        LocalLogTable.of(((b, epochs[b]), *log, 9) for b, log in told.items())
        for told in (*TOLD.values(), *TOLD.values())
    ]
    limit = str(10 * MINUTE_MS) if on else "-1"
    cluster.create_topic("t", *[[1, 2, 3]] * len(rows), **{LOCAL_LOG_MS: limit})
    topic_id = cluster.image.topics.by_name["t"].id
    for index, table in enumerate(rows):
        entries = local_log_entries(PartitionChangeRecord, table)
        record = PartitionChangeRecord(
            topic_id=topic_id, partition_id=index, isr=list(isr), local_logs=entries
        )
        cluster.apply([record])
    view, topic = cluster.view(), cluster.image.topics.by_name["t"]
    change = BrokerChange(leaving=frozenset(leaving))
    together = ElectionContext(view, change)
    tables = set()
    for index, before in topic.partitions.items():
        for told in (None, before.local_logs, rows[2], rows[4], rows[5]) if on else (None,):
            for touch in (True, False):
                made, alone = (
                    elections.change_partition(
                        topic,
                        index,
                        before,
                        Cause.ISR_CHANGE,
                        target=target,
                        touch=touch,
                        reported_logs=told,
                    )
                    for elections in (together, ElectionContext(view, change))
                )
                assert made == alone, (index, told, touch)
                if made is not None:
                    tables.add(repr(made.record.local_logs))
    assert len(tables) >= (4 if on else 1)
