"""Reports of replica directories that differ from the controllers' record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.replication.requests.directory_reports import DirectoryReports
from broker.replication.requests.replica_directories import (
    BACK_OFF_FIRST_MS,
    BACK_OFF_MAX_MS,
    PARTITIONS_MAX,
    ReplicaDirectories,
)
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.values import NO_LEADER, PartitionImage
from protocol.errors import ErrorCode
from protocol.ids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from testkit.memory.broker import Harness, NoController, topic_id

NODE, OTHER = 1, 2
MINE, OLD, THEIRS = b"my directory....", b"an old directory", b"their directory."
TOPIC = b"t" * 16


def state(directory: bytes = OLD, *, leader: int = OTHER) -> PartitionImage:
    return PartitionImage(
        replicas=(OTHER, NODE),
        directories=(THEIRS, directory),
        isr=(OTHER,),
        removing=(),
        adding=(),
        elr=(),
        last_known_elr=(),
        leader=leader,
        leader_epoch=1,
        partition_epoch=1,
    )


class World:
    """The core, the newest state of each partition, and the reports sent."""

    def __init__(self) -> None:
        self.core = ReplicaDirectories(NODE, MINE)
        self.now_ms = 100.0
        self.partitions: dict[tuple[bytes, int], PartitionImage] = {}

    def look(self, index: int, partition: PartitionImage, topic: bytes = TOPIC) -> bool:
        self.partitions[topic, index] = partition
        return self.core.look((topic, index), partition)

    def said(self) -> list[tuple[bytes, int]] | None:
        """Return the partitions in the next request, or None if there is no request."""
        request = self.core.next_request(
            7, lambda topic, index: self.partitions.get((topic, index)), self.now_ms
        )
        if request is None:
            return None
        assert (request.broker_id, request.broker_epoch) == (NODE, 7)
        (directory,) = request.directories
        assert directory.id == MINE
        return [(t.topic_id, p.partition_index) for t in directory.topics for p in t.partitions]

    def answer(self, *indexes: int, error: ErrorCode = ErrorCode.NONE) -> None:
        Response = AssignReplicasToDirsResponse
        told = [Response.PartitionData(partition_index=i, error_code=error) for i in indexes]
        topic = Response.TopicData(topic_id=TOPIC, partitions=told)
        directory = Response.DirectoryData(id=MINE, topics=[topic])
        self.core.answered(Response(directories=[directory]), self.now_ms)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("recorded", [OLD, DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING])
def test_a_replica_on_record_elsewhere_is_reported_once(world: World, recorded: bytes) -> None:
    assert world.look(3, state(recorded))
    assert world.core.due_ms() is not None
    assert world.said() == [(TOPIC, 3)]
    assert world.core.due_ms() is None and world.said() is None, "one request at a time"
    world.answer(3)
    assert len(world.core) == 0 and world.said() is None


def test_directory_already_in_the_metadata_is_not_reported(world: World) -> None:
    assert not world.look(0, state(MINE))
    assert not world.look(1, state()._replace(replicas=(OTHER, 9)))
    assert world.core.due_ms() is None


def test_f22_a_partition_without_leader_may_wait_for_the_old_directory(world: World) -> None:
    """Kafka's controllers would elect the empty replica as if it were the lost one."""
    assert not world.look(0, state(leader=NO_LEADER))
    assert world.said() is None
    world.look(0, state())
    assert world.look(1, state(leader=NODE)), "what a leader has is what the partition has"
    assert not world.look(0, state(leader=NO_LEADER))
    assert len(world.core) == 1
    assert world.said() == [(TOPIC, 1)]


def test_directory_report_omits_partitions_that_changed_since(world: World) -> None:
    world.look(0, state())
    world.look(1, state())
    world.look(2, state())
    world.partitions[TOPIC, 0] = state(leader=NO_LEADER)
    del world.partitions[TOPIC, 2]
    assert world.said() == [(TOPIC, 1)]


def test_refused_directory_report_is_repeated_with_growing_backoff(world: World) -> None:
    world.look(0, state())
    pauses = []
    for _ in range(20):
        assert world.said() == [(TOPIC, 0)]
        world.answer(0, error=ErrorCode.INELIGIBLE_REPLICA)
        due_ms = world.core.due_ms()
        assert due_ms is not None and world.said() is None
        pauses.append(due_ms - world.now_ms)
        world.now_ms = due_ms
    assert pauses[:3] == [BACK_OFF_FIRST_MS, 2 * BACK_OFF_FIRST_MS, 4 * BACK_OFF_FIRST_MS]
    assert max(pauses) == pauses[-1] == BACK_OFF_MAX_MS
    world.said()
    world.answer(0)
    world.look(1, state())
    assert world.said() == [(TOPIC, 1)]
    world.core.failed(world.now_ms)
    assert world.core.due_ms() == world.now_ms + BACK_OFF_FIRST_MS


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ],
)
def test_directory_report_is_dropped_when_the_partition_does_not_exist(
    world: World, error: ErrorCode
) -> None:
    world.look(0, state())
    world.said()
    world.answer(0, error=error)
    assert world.core.due_ms() is None


def test_directory_report_without_a_response_is_repeated(world: World) -> None:
    world.look(0, state())
    world.look(1, state())
    world.said()
    world.answer(1)
    world.now_ms += BACK_OFF_FIRST_MS
    assert world.said() == [(TOPIC, 0)]
    world.core.answered(AssignReplicasToDirsResponse(error_code=77), world.now_ms)
    assert len(world.core) == 1


def test_a_request_is_bounded(world: World) -> None:
    for index in range(PARTITIONS_MAX + 1):
        world.look(index, state())
    first = world.said()
    assert first is not None and len(first) == PARTITIONS_MAX
    world.answer(*(index for _, index in first))
    last = world.said()
    assert last is not None and len({*first, *last}) == PARTITIONS_MAX + 1


def test_refused_reports_do_not_hold_up_the_others(world: World) -> None:
    """A retry is queued behind the reports that wait: a full request of refused ones does not
    repeat itself."""
    for index in range(PARTITIONS_MAX + 1):
        world.look(index, state())
    first = world.said()
    assert first is not None
    world.answer(*(index for _, index in first), error=ErrorCode.INELIGIBLE_REPLICA)
    world.now_ms += BACK_OFF_FIRST_MS
    second = world.said()
    assert second is not None and set(range(PARTITIONS_MAX + 1)) == {
        index for _, index in (*first, *second)
    }


def test_reports_after_controller_moved_are_sent_without_backoff(world: World) -> None:
    """The backoff of up to 10 s belongs to the controller that refused, not to the next."""
    world.look(0, state())
    for _ in range(10):
        world.now_ms = world.core.due_ms() or 0.0
        assert world.said() == [(TOPIC, 0)]
        world.core.failed(world.now_ms)
    assert world.said() is None
    world.core.controller_moved()
    assert world.said() == [(TOPIC, 0)]


# --- the driver ---------------------------------------------------------------------------------


class Channel(NoController):
    """A channel that answers at once."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self.clock = clock

    async def pause(self, pause_ms: float) -> None:
        self.clock.advance(pause_ms)
        await asyncio.sleep(0)


def reports(h: Harness, channel: Any) -> DirectoryReports:
    made = DirectoryReports(
        MINE,
        node_id=NODE,
        broker_epoch=lambda: 7,
        metadata=h.metadata,
        channel=channel,
        clock=h.clock,
        supervisor=h.supervisor,
    )
    h.connect(role_given=made.look)
    return made


def taken_down(request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    Response = AssignReplicasToDirsResponse
    return Response(
        directories=[
            Response.DirectoryData(
                id=one.id,
                topics=[
                    Response.TopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            Response.PartitionData(partition_index=p.partition_index)
                            for p in topic.partitions
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in request.directories
        ]
    )


async def test_directory_reports_are_sent_until_the_controller_accepts_them() -> None:
    h = Harness()
    h.replay(FeatureLevelRecord(name="metadata.version", feature_level=DIRECTORY_ASSIGNMENT_LEVEL))
    channel = Channel(h.clock)
    reports(h, channel)
    answers = [None, AssignReplicasToDirsResponse(error_code=999)]

    def answer(request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return (answers.pop() if answers else None) or taken_down(request)

    channel.answer = answer
    h.create_topic(partitions=2, replicas=(OTHER, NODE), leader=OTHER)
    h.create_topic("led", number=2, replicas=(NODE,))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(channel.requests) == 2, "the first was refused"
    first, again = channel.requests
    assert first == again and first.broker_epoch == 7
    (directory,) = first.directories
    assert directory.id == MINE
    assert [(t.topic_id, len(t.partitions)) for t in directory.topics] == [
        (topic_id(1), 2),
        (topic_id(2), 1),
    ]
    assert h.failures == []
    h.create_topic("waits", number=3, replicas=(OTHER, NODE), leader=NO_LEADER)
    await asyncio.sleep(0)
    assert len(channel.requests) == 2
    h.change(number=3, leader=OTHER)
    await asyncio.sleep(0)
    assert len(channel.requests) == 3
    await h.supervisor.close()


async def test_directory_reports_need_a_metadata_version_with_directories() -> None:
    h = Harness()
    h.replay(
        FeatureLevelRecord(name="metadata.version", feature_level=DIRECTORY_ASSIGNMENT_LEVEL - 1)
    )
    channel = Channel(h.clock)
    made = reports(h, channel)
    h.create_topic(replicas=(NODE,))
    await asyncio.sleep(0)
    assert channel.requests == [] and len(made.replicas) == 0


@pytest.mark.parametrize(
    ("level", "epoch"), [(DIRECTORY_ASSIGNMENT_LEVEL, 9), (DIRECTORY_ASSIGNMENT_LEVEL - 1, 7)]
)
async def test_replicas_are_not_reported_at_another_registration(level: int, epoch: int) -> None:
    """A new process reports each replica when it gets its role; below the level no record can hold
    it."""
    h = Harness()
    h.replay(
        FeatureLevelRecord(name="metadata.version", feature_level=level),
        RegisterBrokerRecord(broker_id=NODE, broker_epoch=7),
    )
    channel = Channel(h.clock)
    made = reports(h, channel)
    h.connect(role_given=lambda *_: None)
    h.create_topic(replicas=(OTHER, NODE), leader=OTHER)
    before = h.metadata.image
    assert made.lacks_directories(before) is (level == DIRECTORY_ASSIGNMENT_LEVEL)
    h.replay(RegisterBrokerRecord(broker_id=NODE, broker_epoch=epoch, log_dirs=[MINE]))
    made.published(before, h.replicas)
    assert len(made.replicas) == 0
    await h.supervisor.close()


async def test_every_replica_is_reported_once_the_registration_names_the_directory() -> None:
    """KIP-858: metadata.version was raised while the replicas had their roles.

    Partitions without a leader wait, as before.
    """
    h = Harness()
    h.replay(
        FeatureLevelRecord(name="metadata.version", feature_level=DIRECTORY_ASSIGNMENT_LEVEL - 1),
        RegisterBrokerRecord(broker_id=NODE, broker_epoch=7),
    )
    channel = Channel(h.clock)
    channel.answer = taken_down
    made = reports(h, channel)

    def publish(*records: Any) -> None:
        before = h.metadata.image
        h.replay(*records)
        made.published(before, h.replicas)

    for number, leader in enumerate((OTHER, NODE, NO_LEADER), 1):
        h.create_topic(f"t{number}", number=number, replicas=(OTHER, NODE), leader=leader)
    publish(FeatureLevelRecord(name="metadata.version", feature_level=DIRECTORY_ASSIGNMENT_LEVEL))
    await asyncio.sleep(0)
    assert made.lacks_directories(h.metadata.image)
    assert channel.requests == []
    publish(RegisterBrokerRecord(broker_id=NODE, broker_epoch=7, log_dirs=[MINE]))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not made.lacks_directories(h.metadata.image)
    (request,) = channel.requests
    (named,) = request.directories
    assert [topic.topic_id for topic in named.topics] == [topic_id(1), topic_id(2)]
    publish(RegisterBrokerRecord(broker_id=NODE, broker_epoch=7, log_dirs=[MINE], rack="r"))
    publish(RegisterBrokerRecord(broker_id=OTHER, broker_epoch=8, log_dirs=[THEIRS]))
    await asyncio.sleep(0)
    assert len(channel.requests) == 1 and len(made.replicas) == 0
    await h.supervisor.close()
