from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from controller.brokers.registration import decide_register_broker
from controller.decision import RECORDS_PER_OPERATION_MAX, ControllerView, Decision, Step
from controller.topics.create import decide_create_topics
from controller.writer.writer import Controller
from metalog.image.replay import GrowingImage, TouchedTopics
from metalog.image.values import EMPTY_IMAGE
from metalog.loader import MetadataLoader
from metalog.quorum.node import QuorumNode
from protocol.errors import ApiError, EncodeError, ErrorCode
from protocol.ids import DIRECTORY_MIGRATING
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from runtime.clock import LoopClock
from runtime.errors import InvariantViolated
from runtime.tasks import Supervisor
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from testkit.memory.controller import SESSION_TIMEOUT_MS, registration, settings
from testkit.memory.fake_quorum import FakeQuorum

BOOTSTRAP = FeatureLevelRecord(name="metadata.version", feature_level=30)
FIRST = [
    BeginTransactionRecord(name="Bootstrap records"),
    BOOTSTRAP,
    EndTransactionRecord(),
]


class World:
    def __init__(self, *, commit_at_once: bool = False, **properties: str) -> None:
        loop = asyncio.get_running_loop()
        self.quorum = FakeQuorum(commit_at_once=commit_at_once)
        self.failures: list[BaseException] = []
        self.supervisor = Supervisor(lambda _, error: self.failures.append(error))
        self.loader = MetadataLoader(cast(QuorumNode, self.quorum), self.supervisor)
        self.controller = Controller(
            settings(**properties),
            self.quorum,
            self.loader,
            clock=LoopClock(loop, 1_700_000_000_000),
            rng=random.Random(1),
            supervisor=self.supervisor,
            bootstrap=[BOOTSTRAP],
        )

    def lead(self, epoch: int = 1) -> World:
        self.quorum.become_leader(epoch)
        self.quorum.commit()
        return self

    def register(self, broker_id: int, life: int = 1) -> asyncio.Future[int]:
        request = registration(broker_id, life=life)
        return self.controller.submit(lambda view: decide_register_broker(view, request), same)

    def write(self, *records: Any, **options: Any) -> asyncio.Future[str]:
        return self.controller.submit(lambda view: Decision(records, "done"), same, **options)


def users(count: int) -> list[UserScramCredentialRecord]:
    return [
        UserScramCredentialRecord(name=f"user{index}", mechanism=1, iterations=4096)
        for index in range(count)
    ]


def same(value: Any) -> Any:
    return value


def code_of(call: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        call()
    return refusal.value.code


def in_steps(left: int) -> Callable[[ControllerView], Decision[str] | Step[str]]:
    """Decide in `left` batches of two records and a last one of one, whose offset is the reply."""

    def decide(view: ControllerView) -> Decision[str] | Step[str]:
        if left == 0:
            return Decision((NoOpRecord(),), f"offset {view.next_offset}")
        return Step((NoOpRecord(), NoOpRecord()), in_steps(left - 1))

    return decide


async def turns(count: int) -> None:
    """Let the event loop run `count` iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


def touched_topics_held() -> int:
    """Return the number of touched-topic ids that are referenced in this process."""
    return sum(len(o.partitions) for o in gc.get_objects() if isinstance(o, TouchedTopics))


def run_in_virtual_time(main: Callable[[], Any]) -> None:
    loop = VirtualLoop(Network(random.Random(1)))
    try:
        loop.run_world(main())
    finally:
        loop.close()


class TestLeadership:
    async def test_an_empty_log_begins_with_the_first_records_in_a_transaction(self) -> None:
        """KIP-1170, KIP-868: the records of ActivationRecordsGenerator of 4.4.0."""
        world = World()
        assert not world.controller.is_active
        world.quorum.become_leader(1)
        assert world.controller.is_active
        assert world.quorum.records() == FIRST
        assert world.quorum.metadata_versions == [30]
        assert world.controller.view().image.metadata_version == 30
        assert world.controller.committed_image.metadata_version is None
        world.quorum.commit()
        assert world.controller.committed_image.metadata_version == 30

    async def test_a_log_with_metadata_is_not_bootstrapped_again(self) -> None:
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.lead(2)
        assert world.quorum.records() == [BOOTSTRAP]

    async def test_controller_killed_between_append_and_commit_writes_first_records_once(
        self,
    ) -> None:
        """KIP-1170: the next start finds the uncommitted records in its log, and commits them."""
        world = World()
        world.quorum.add(1, FIRST)
        world.quorum._leader = (100, 2)
        world.quorum.add(2, (), control_count=1)
        world.controller.handle_leader_change(100, 2)
        assert not world.controller.is_active
        world.quorum.commit()
        assert world.controller.is_active
        assert world.quorum.records() == FIRST
        assert world.controller.committed_image.metadata_version == 30

    @pytest.mark.parametrize("at_once", [False, True])
    async def test_takeover_between_two_batches_of_first_records_repeats_none_of_them(
        self, at_once: bool
    ) -> None:
        """KIP-868: no node shows a part of the records; the next controller aborts and rewrites."""
        crowd = users(RECORDS_PER_OPERATION_MAX)
        world = World(commit_at_once=at_once)
        world.controller._bootstrap = [BOOTSTRAP, *crowd]
        world.quorum.become_leader(1)
        first, second = (batch.records for batch in world.quorum.batches[1:])
        assert (len(first), len(second)) == (RECORDS_PER_OPERATION_MAX, 3)
        world.quorum.commit()
        assert len(world.controller.committed_image.scram) == len(crowd)

        other = World()
        other.controller._bootstrap = [BOOTSTRAP, *crowd]
        other.quorum.add(1, first)
        other.lead(2)
        written = other.quorum.records()[len(first) :]
        assert written[0] == AbortTransactionRecord(reason="Controller failover")
        assert written[1:] == [FIRST[0], BOOTSTRAP, *crowd, FIRST[-1]]
        assert set(other.controller.view().image.scram) == {(1, one.name) for one in crowd}

    async def test_part_of_the_first_records_is_invisible_until_their_transaction_ends(
        self,
    ) -> None:
        world = World()
        world.controller._bootstrap = [BOOTSTRAP, *users(RECORDS_PER_OPERATION_MAX)]
        world.quorum.become_leader(1)
        world.quorum.commit(1)
        assert world.controller.committed_image.metadata_version is None
        assert not world.controller.committed_image.scram
        world.quorum.commit()
        assert world.controller.committed_image.metadata_version == 30

    async def test_first_records_below_the_level_of_transactions_survive_a_takeover(self) -> None:
        """`metadata.version` is in the last batch: without it the next controller writes all."""
        old = FeatureLevelRecord(name="metadata.version", feature_level=12)
        crowd = users(RECORDS_PER_OPERATION_MAX)
        world = World()
        world.controller._bootstrap = [old, *crowd]
        world.quorum.become_leader(1)
        records = world.quorum.records()
        assert len(records) == len(crowd) + 1
        assert records[-1] == old

        other = World()
        other.controller._bootstrap = [old, *crowd]
        other.quorum.add(1, crowd)
        other.lead(2)
        assert other.controller.committed_image.metadata_version == 12

    async def test_new_leader_is_active_after_commit_of_its_log(self) -> None:
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.quorum.add(1, [TopicRecord(name="t", topic_id=b"t" * 16)])
        world.quorum._leader = (100, 2)
        world.quorum.add(2, (), control_count=1)
        world.controller.handle_leader_change(100, 2)
        world.quorum.commit(2)
        assert not world.controller.is_active
        world.quorum.commit()
        assert world.controller.is_active
        assert "t" in world.controller.view().image.topics.by_name

    async def test_a_standby_remembers_no_topics_that_were_touched(self) -> None:
        """Without a consumer of touched topics a long-lived standby would grow with each topic."""
        gc.collect()
        before = touched_topics_held()
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        for number in range(200):
            topic_id = number.to_bytes(16, "big")
            world.quorum.add(1, [TopicRecord(name="t", topic_id=topic_id)])
            world.quorum.add(1, [RemoveTopicRecord(topic_id=topic_id)])
        world.quorum.commit()
        assert not world.controller.is_active
        assert touched_topics_held() == before

    @pytest.mark.parametrize("leads", [True, False])
    async def test_each_record_is_replayed_once(
        self, leads: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Publishers of images do not replay the records of this leader or of another one again."""
        world = World()
        topics: list[int] = []
        world.loader.add_publisher(lambda delta, _: topics.append(len(delta.topics)))
        replayed: list[Any] = []
        add = GrowingImage.add
        monkeypatch.setattr(
            GrowingImage, "add", lambda self, record: (replayed.append(record), add(self, record))
        )
        many = [TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big")) for n in range(1, 11)]
        if leads:
            world.lead()
        else:
            world.quorum.add(1, [BOOTSTRAP])
        for record in many:
            if leads:
                world.write(record)
            else:
                world.quorum.add(1, [record])
        world.quorum.commit()
        # The first records are in a transaction, which is visible only once it is committed.
        assert replayed == [*(FIRST if leads else ()), BOOTSTRAP, *many]
        assert sum(topics) == len(many)
        image = world.controller.committed_image
        assert image is world.loader.image
        assert len(image.topics.by_name) == len(many)
        world.controller.stop()

    async def test_a_leader_change_that_was_missed(self) -> None:
        """Leadership was lost and won again before a notification: another leader's records reveal
        it."""
        world = World().lead()
        waiting = world.register(1)
        world.quorum.truncate()
        world.quorum.add(2, [TopicRecord(name="t", topic_id=b"t" * 16)])
        world.quorum.become_leader(3)
        with pytest.raises(ApiError) as lost:
            await waiting
        assert lost.value.code is ErrorCode.NOT_CONTROLLER
        assert world.controller.is_active and world.controller.epoch == 3
        assert not world.controller.view().image.cluster.brokers
        assert "t" in world.controller.view().image.topics.by_name
        world.controller.stop()

    async def test_requests_wait_for_it_to_catch_up(self) -> None:
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.quorum._leader = (100, 2)
        assert world.controller.is_leading
        assert not world.controller.is_active
        served = world.register(1)
        world.controller.handle_leader_change(100, 2)
        refused = world.register(1, life=2)
        given_up = world.register(2)
        given_up.cancel()
        assert not served.done()
        world.quorum.commit()
        assert 2 not in world.controller.view().image.cluster.brokers
        world.quorum.commit()
        assert await served == 1
        assert await refused == 2

    async def test_requests_that_waited_in_vain(self) -> None:
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.quorum._leader = (100, 2)
        raised = world.register(1)
        answered = world.write(NoOpRecord(), fail=lambda error: error.code.name)
        world.quorum.follow(7, 3)
        assert await answered == "NOT_CONTROLLER"
        with pytest.raises(ApiError):
            await raised
        assert world.controller.stats.lost_leadership == 1

    async def test_a_request_that_waited_too_long_changes_nothing_later(self) -> None:
        """KIP-966: an election request whose timeout is over elects nothing."""
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.quorum._leader = (100, 2)
        decided: list[ControllerView] = []

        def decide(view: ControllerView) -> Decision[None]:
            decided.append(view)
            return Decision((NoOpRecord(),), None)

        with pytest.raises(ApiError) as refusal:
            await world.controller.submit(decide, same, timeout_ms=0)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        world.controller.handle_leader_change(100, 2)
        world.quorum.commit()
        assert world.controller.is_active
        assert decided == []

    async def test_exception_of_timed_out_decision_is_retrieved(self) -> None:
        """The exception of a decision that timed out before its commit is retrieved, so none is
        logged."""
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.quorum._leader = (100, 2)
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unhandled.append(what))
        waits = world.write(NoOpRecord(), timeout_ms=20)
        world.controller.handle_leader_change(100, 2)
        world.quorum.commit()
        assert world.controller.is_active
        with pytest.raises(ApiError, match="not ready within 20 ms"):
            await waits
        await asyncio.sleep(0.05)
        world.quorum.commit()
        gc.collect()
        assert unhandled == []

    async def test_a_request_that_waited_may_still_be_refused(self) -> None:
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.quorum._leader = (100, 2)
        world.controller.handle_leader_change(100, 2)
        request = registration(1, cluster_id="another")
        future = world.controller.submit(lambda view: decide_register_broker(view, request), same)
        world.quorum.commit()
        with pytest.raises(ApiError) as refusal:
            await future
        assert refusal.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID

    async def test_inactive_controller_refuses_and_names_active_one(self) -> None:
        world = World()
        assert code_of(lambda: world.write(NoOpRecord())) is ErrorCode.NOT_CONTROLLER
        world.quorum.follow(7, 3)
        with pytest.raises(ApiError, match="node 7 is active in epoch 3"):
            world.write()
        assert world.controller.leader_id == 7

    async def test_losing_it_fails_who_waits_and_drops_what_was_not_committed(self) -> None:
        world = World().lead()
        waiting = [world.register(1), world.register(2)]
        assert 1 in world.controller.view().image.cluster.brokers
        world.quorum.follow(7, 2)
        for future in waiting:
            with pytest.raises(ApiError) as lost:
                await future
            assert lost.value.code is ErrorCode.NOT_CONTROLLER
        assert not world.controller.is_active
        assert len(world.controller.committed_image.cluster.brokers) == 0
        assert world.loader.log_image.working is world.controller.committed_image
        world.quorum.truncate()
        world.quorum.add(2, [TopicRecord(name="t", topic_id=b"t" * 16)])
        world.quorum.commit()
        assert "t" in world.controller.committed_image.topics.by_name

    async def test_a_batch_that_survives_a_lost_leadership_is_replayed(self) -> None:
        world = World().lead()
        future = world.register(1)
        world.quorum.follow(7, 2)
        world.quorum.commit()
        assert 1 in world.controller.committed_image.cluster.brokers
        with pytest.raises(ApiError):
            await future

    async def test_report_epochs_are_dropped_with_leadership(self) -> None:
        """P15: another leader may have set another ISR under the same partition epoch."""
        world = World().lead()
        topic_id = b"t" * 16
        log = PartitionChangeRecord.ReplicaLocalLog(broker_id=1, size_bytes=1)
        world.write(
            TopicRecord(name="t", topic_id=topic_id),
            PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1),
        )
        world.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, local_logs=[log]))
        epochs = world.controller.view().report_epochs
        assert epochs.of(topic_id, 0) == 0
        world.controller.handle_leader_change(101, 2)
        assert epochs.of(topic_id, 0) == -1

    async def test_moves_between_directories_are_forgotten_with_the_leadership(self) -> None:
        """KIP-858: while this node is not the leader, others write moves that it does not
        record."""
        world = World().lead()
        topic_id, one, two = b"t" * 16, b"first directory.", b"second directory"
        world.write(
            RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=[one, two]),
            TopicRecord(name="t", topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                directories=[one],
            ),
        )
        world.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[two]))
        moves = world.controller.view().directory_moves
        assert len(moves) == 1
        world.controller.handle_leader_change(101, 2)
        assert len(moves) == 0

    async def test_an_append_that_finds_it_lost(self) -> None:
        world = World().lead()
        world.quorum._leader = (7, 2)
        assert code_of(lambda: world.register(1)) is ErrorCode.NOT_CONTROLLER
        assert not world.controller.is_active

    async def test_leading_again_in_a_later_epoch(self) -> None:
        world = World().lead(1)
        future = world.register(1)
        world.quorum.commit()
        await future
        world.quorum.follow(7, 2)
        world.lead(3)
        assert world.controller.is_active
        assert world.controller.epoch == 3
        assert 1 in world.controller.view().image.cluster.brokers

    async def test_a_transaction_that_was_left_open_is_aborted(self) -> None:
        world = World()
        world.quorum.add(1, [BOOTSTRAP])
        world.quorum.add(1, [BeginTransactionRecord(name="t")])
        world.quorum.add(1, [TopicRecord(name="t", topic_id=b"t" * 16)])
        world.lead(2)
        assert isinstance(world.quorum.records()[-1], AbortTransactionRecord)
        assert not world.controller.view().image.topics.by_name
        world.quorum.commit()
        assert not world.controller.committed_image.topics.by_name

    async def test_stop_answers_who_waits(self) -> None:
        world = World().lead()
        future = world.register(1)
        world.controller.stop()
        with pytest.raises(ApiError):
            await future
        world.quorum.follow(100, 5)
        assert not world.controller.is_active


class TestOperations:
    @pytest.mark.parametrize("at_once", [False, True])
    async def test_the_reply_comes_with_the_commit(self, at_once: bool) -> None:
        world = World(commit_at_once=at_once).lead()
        future = world.register(1)
        assert future.done() is at_once
        world.quorum.commit()
        epoch = await future
        assert world.controller.committed_image.cluster.brokers[1].epoch == epoch
        (record,) = [r for r in world.quorum.records() if type(r) is RegisterBrokerRecord]
        assert record.broker_epoch == epoch

    async def test_an_operation_in_steps_lets_others_have_their_turn(self) -> None:
        """The reply follows the commit of the last step; each step sees changes made before it."""
        world = World().lead()
        future = world.controller.submit(in_steps(3), same)
        world.write(NoOpRecord())
        assert [len(b.records) for b in world.quorum.batches[2:]] == [2, 1]
        await turns(3)
        assert [len(b.records) for b in world.quorum.batches[2:]] == [2, 1, 2, 2, 1]
        world.quorum.commit(len(world.quorum.batches) - 3)
        assert not future.done()
        world.quorum.commit()
        assert await future == "offset 11"
        await turns(3)
        assert len(world.quorum.batches) == 7

    async def test_a_leadership_lost_between_steps_fails_who_waits(self) -> None:
        world = World().lead()
        raised = world.controller.submit(in_steps(3), same)
        told = world.controller.submit(in_steps(3), same, fail=lambda e: e.code.name)
        await turns(1)
        world.quorum.follow(7, 2)
        await turns(1)
        assert await told == "NOT_CONTROLLER"
        with pytest.raises(ApiError):
            await raised
        assert len(world.quorum.batches) == 6

    async def test_steps_stop_after_caller_cancelled(self) -> None:
        world = World().lead()
        future = world.controller.submit(in_steps(3), same)
        future.cancel()
        await turns(3)
        assert len(world.quorum.batches) == 3

    async def test_decisions_see_each_other_before_they_are_committed(self) -> None:
        world = World().lead()
        request = CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=0)]
        )
        seen = []

        def decide(view: ControllerView) -> Decision[None]:
            seen.append(view.next_offset)
            decide_create_topics(view, request)
            return Decision((NoOpRecord(),), None)

        futures = [world.controller.submit(decide, same) for _ in range(3)]
        assert seen == [seen[0], seen[0] + 1, seen[0] + 2]
        world.quorum.commit(1)
        assert [f.done() for f in futures] == [True, False, False]
        world.quorum.commit()
        await asyncio.gather(*futures)

    async def test_a_reply_without_records_waits_for_what_it_may_have_seen(self) -> None:
        world = World().lead()
        assert world.write().done()
        first = world.register(1)
        read = world.write()
        assert not read.done()
        world.quorum.commit()
        await first
        assert read.done()

    async def test_fields_that_log_cannot_store_are_not_used(self) -> None:
        """An older metadata.version cannot store the value, so another controller could not take it
        over."""
        world = World().lead()
        world.write(FeatureLevelRecord(name="metadata.version", feature_level=16))
        topic_id = b"t" * 16
        named = PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], directories=[b"d" * 16]
        )
        world.write(TopicRecord(name="t", topic_id=topic_id), named)
        written = world.quorum.records()[-1]
        partition = world.controller.view().image.topics.by_name["t"].partitions[0]
        assert written.directories == PartitionRecord().directories
        assert partition.directories == (DIRECTORY_MIGRATING,)
        assert world.quorum.metadata_versions[-1] == 16
        world.controller.stop()

    async def test_a_refusal_is_raised_or_becomes_a_response(self) -> None:
        world = World().lead()

        def refuse(view: ControllerView) -> Decision[None]:
            raise ApiError(ErrorCode.INVALID_REQUEST, "no")

        assert code_of(lambda: world.controller.submit(refuse, same)) is ErrorCode.INVALID_REQUEST
        future = world.controller.submit(refuse, same, fail=lambda error: error.code)
        assert await future is ErrorCode.INVALID_REQUEST

    async def test_a_lost_leadership_becomes_a_response(self) -> None:
        world = World().lead()
        future = world.write(NoOpRecord(), fail=lambda error: error.code.name)
        world.quorum.follow(None, 2)
        assert await future == "NOT_CONTROLLER"

    async def test_a_decision_that_does_not_replay_stops_the_node(self) -> None:
        world = World().lead()
        end = world.quorum.log_end_offset
        with pytest.raises(InvariantViolated, match="RemoveTopicRecord"):
            world.write(RemoveTopicRecord(topic_id=b"x" * 16))
        assert len(world.failures) == 1
        assert world.quorum.log_end_offset == end

    async def test_a_committed_record_that_does_not_replay_stops_the_node(self) -> None:
        world = World()
        world.quorum.add(1, [RemoveTopicRecord(topic_id=b"x" * 16)])
        with pytest.raises(InvariantViolated, match="offset 0"):
            world.quorum.commit()

    async def test_offsets_and_provenance_move_with_commits(self) -> None:
        world = World().lead()
        world.register(1)
        committed = world.controller.last_committed_offset
        assert world.controller.last_applied_offset == committed + 1
        world.quorum.commit()
        assert world.controller.last_committed_offset == committed + 1
        image = world.controller.committed_image
        assert image.provenance.offset == world.controller.last_committed_offset
        assert image.provenance.epoch == 1

    async def test_committed_images_are_published(self) -> None:
        world = World(commit_at_once=True)
        seen = [EMPTY_IMAGE]
        world.loader.add_publisher(lambda _, image: seen.append(image))
        world.lead()
        await world.register(1)
        assert 1 in seen[-1].cluster.brokers
        offsets = [image.provenance.offset for image in seen]
        assert offsets == sorted(offsets)

    async def test_a_record_that_cannot_be_written_fails_its_decision_alone(self) -> None:
        world = World().lead()
        append = world.quorum.append

        def refuse(*_: Any, **__: Any) -> int:
            raise EncodeError("TopicRecord.Name", "t" * 40_000, "32767 bytes")

        world.quorum.append = refuse  # type: ignore[method-assign]
        refused = world.write(
            TopicRecord(name="t", topic_id=b"t" * 16), fail=lambda error: error.code.name
        )
        world.quorum.append = append  # type: ignore[method-assign]
        assert await refused == "UNKNOWN_SERVER_ERROR"
        assert world.controller.stats.metadata_errors == 1
        assert world.controller.is_active
        written = world.write(TopicRecord(name="t", topic_id=b"u" * 16))
        world.quorum.commit()
        assert await written == "done"
        assert world.controller.committed_image.topics.by_name["t"].id == b"u" * 16
        world.controller.stop()
        assert world.failures == []


class TestTimers:
    """Timers on virtual time: seconds of waiting take none."""

    def test_a_request_that_is_not_committed_in_time(self) -> None:
        async def main() -> None:
            world = World().lead()
            future = world.write(NoOpRecord(), timeout_ms=500)
            with pytest.raises(ApiError) as late:
                await future
            assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
            world.quorum.commit()
            answered = world.write(NoOpRecord(), timeout_ms=0, fail=lambda error: error.code.name)
            assert await answered == "REQUEST_TIMED_OUT"
            world.controller.stop()

        run_in_virtual_time(main)

    def test_a_silent_broker_is_fenced_and_a_talking_one_is_not(self) -> None:
        async def main() -> None:
            world = World(commit_at_once=True, metadata_max_idle_interval_ms="0").lead()
            epochs = {broker_id: await world.register(broker_id) for broker_id in (1, 2)}
            for broker_id, epoch in epochs.items():
                await heartbeat(world, broker_id, epoch)
            for _ in range(4):
                await asyncio.sleep(SESSION_TIMEOUT_MS / 4000.0)
                await heartbeat(world, 2, epochs[2])
            await asyncio.sleep(0.001)
            brokers = world.controller.committed_image.cluster.brokers
            assert {b.id: b.fenced for b in brokers.values()} == {1: True, 2: False}
            assert world.controller.stats.timed_out_heartbeats == 1
            await asyncio.sleep(SESSION_TIMEOUT_MS / 1000.0 + 0.001)
            assert all(b.fenced for b in world.controller.committed_image.cluster.brokers.values())
            world.controller.stop()

        run_in_virtual_time(main)

    def test_refused_write_is_retried_after_backoff(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A disk that refuses writes stops the node; until then the retry backoff leaves the loop
        free."""
        refusals = []

        def refuse(*_: Any, **__: Any) -> int:
            refusals.append(1)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

        async def main() -> None:
            world = World(commit_at_once=True, metadata_max_idle_interval_ms="0").lead()
            await heartbeat(world, 1, await world.register(1))
            with monkeypatch.context() as patch:
                patch.setattr(world.quorum, "append", refuse)
                await asyncio.sleep(SESSION_TIMEOUT_MS / 1000.0 + 1.001)
            assert 10 <= len(refusals) <= 11
            await asyncio.sleep(0.2)
            assert world.controller.committed_image.cluster.brokers[1].fenced
            world.controller.stop()

        run_in_virtual_time(main)

    def test_a_new_controller_gives_everyone_a_whole_session(self) -> None:
        async def main() -> None:
            world = World(commit_at_once=True, metadata_max_idle_interval_ms="0").lead()
            epoch = await world.register(1)
            await heartbeat(world, 1, epoch)
            await asyncio.sleep(SESSION_TIMEOUT_MS / 1000.0 - 1)
            world.quorum.follow(7, 2)
            await asyncio.sleep(5)
            world.lead(3)
            await asyncio.sleep(SESSION_TIMEOUT_MS / 1000.0 - 1)
            assert not world.controller.committed_image.cluster.brokers[1].fenced
            await asyncio.sleep(1.001)
            assert world.controller.committed_image.cluster.brokers[1].fenced
            world.controller.stop()

        run_in_virtual_time(main)

    def test_an_idle_log_gets_a_record_now_and_then(self) -> None:
        async def main() -> None:
            world = World(commit_at_once=True).lead()
            before = world.quorum.log_end_offset
            await asyncio.sleep(5.1)
            written = world.quorum.records()[-10:]
            assert world.quorum.log_end_offset == before + 10
            assert all(type(record) is NoOpRecord for record in written)
            world.quorum.commit_at_once = False
            await asyncio.sleep(5)
            assert world.quorum.log_end_offset == before + 11
            world.controller.stop()

        run_in_virtual_time(main)


class TestBigDecisions:
    """Decisions about ten thousand partitions and more: several batches, one reply."""

    def records(self, count: int) -> list[Any]:
        topics = [
            TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big")) for n in range(1, count + 1)
        ]
        return list(topics)

    async def test_large_decision_is_appended_in_several_batches(self) -> None:
        world = World().lead()
        before = world.quorum.log_end_offset
        done = world.write(*self.records(20_001))
        assert world.quorum.log_end_offset == before + 20_001
        assert [len(batch.records) for batch in world.quorum.batches[-3:]] == [10_000, 10_000, 1]
        world.quorum.commit(1)
        world.quorum.commit(1)
        await asyncio.sleep(0)
        assert not done.done()
        world.quorum.commit()
        assert await done == "done"
        assert len(world.controller.committed_image.topics.by_name) == 20_001
        world.controller.stop()

    async def test_a_quorum_of_one_commits_each_at_once(self) -> None:
        world = World(commit_at_once=True).lead()
        assert await world.write(*self.records(20_001)) == "done"
        assert len(world.controller.committed_image.topics.by_name) == 20_001
        world.controller.stop()


class FakeConnection:
    """The part of a connection that the controller uses."""

    def __init__(self) -> None:
        self.closed_by_peer = False
        self.callbacks: list[Callable[[], None]] = []

    def add_close_callback(self, fn: Callable[[], None]) -> None:
        self.callbacks.append(fn)

    def end(self, *, by_peer: bool = True) -> None:
        self.closed_by_peer = by_peer
        for fn in self.callbacks:
            fn()


class TestConnectionLoss:
    """kraftbox.broker.connection.loss.fence.ms: silence after a closed connection fences
    earlier."""

    FENCE = {"kraftbox_broker_connection_loss_fence_ms": "100"}

    async def world(self, **properties: str) -> tuple[World, int, FakeConnection]:
        """Return a world with broker 1 unfenced and 2 leading nothing, each with its own
        connection."""
        world = World(commit_at_once=True, **properties)
        world.lead()
        connection = FakeConnection()
        for broker_id in (1, 2):
            epoch = await world.register(broker_id)
            carried = connection if broker_id == 1 else FakeConnection()
            await heartbeat(world, broker_id, epoch, carried)
        return world, world.controller.view().image.cluster.brokers[1].epoch, connection

    def fenced(self, world: World) -> bool:
        return world.controller.view().image.cluster.brokers[1].fenced

    def test_the_peer_closes_and_nothing_follows(self) -> None:
        async def main() -> None:
            world, _, connection = await self.world(**self.FENCE)
            connection.end()
            await asyncio.sleep(0.099)
            assert not self.fenced(world)
            await asyncio.sleep(0.002)
            assert self.fenced(world)
            assert not world.controller.view().image.cluster.brokers[2].fenced
            world.controller.stop()

        run_in_virtual_time(main)

    def test_a_heartbeat_on_another_connection_in_time(self) -> None:
        async def main() -> None:
            world, epoch, connection = await self.world(**self.FENCE)
            connection.end()
            await asyncio.sleep(0.09)
            await heartbeat(world, 1, epoch, FakeConnection())
            await asyncio.sleep(1)
            assert not self.fenced(world)
            world.controller.stop()

        run_in_virtual_time(main)

    def test_connection_closed_by_controller_fences_no_broker(self) -> None:
        async def main() -> None:
            world, _, connection = await self.world(**self.FENCE)
            connection.end(by_peer=False)
            await asyncio.sleep(1)
            assert not self.fenced(world)
            world.controller.stop()

        run_in_virtual_time(main)

    def test_off_by_default(self) -> None:
        async def main() -> None:
            world, _, connection = await self.world()
            assert connection.callbacks == []
            connection.end()
            await asyncio.sleep(8.9)
            assert not self.fenced(world)
            await asyncio.sleep(0.2)
            assert self.fenced(world)
            world.controller.stop()

        run_in_virtual_time(main)

    def test_deposed_controller_fences_no_broker(self) -> None:
        async def main() -> None:
            world, _, connection = await self.world(**self.FENCE)
            world.quorum.follow(7, 2)
            end = world.quorum.log_end_offset
            connection.end()
            await asyncio.sleep(20)
            assert world.quorum.log_end_offset == end
            world.controller.stop()

        run_in_virtual_time(main)

    def test_a_loss_known_to_the_controller_before_is_not_held_against_the_broker(self) -> None:
        """The controller steps down and is elected again: every broker gets a whole session from
        then on."""

        async def main() -> None:
            world, _, connection = await self.world(**self.FENCE)
            connection.end()
            world.quorum.follow(7, 2)
            world.lead(3)
            await asyncio.sleep(1)
            assert not self.fenced(world)
            world.controller.stop()

        run_in_virtual_time(main)


class TestATakeover:
    """A broker that died with the previous controller gets a shorter session than the others."""

    FENCE = {
        "kraftbox_broker_connection_loss_fence_ms": "100",
        "controller_quorum_fetch_timeout_ms": "1000",
    }

    async def world(self, **properties: str) -> World:
        """Return a world with brokers 1 and 2 unfenced, in which another controller has led
        since."""
        world = World(commit_at_once=True, **(properties or self.FENCE))
        world.lead()
        for broker_id in (1, 2):
            epoch = await world.register(broker_id)
            await heartbeat(world, broker_id, epoch, FakeConnection())
        world.quorum.follow(7, 2)
        return world

    def brokers(self, world: World) -> dict[int, Any]:
        return dict(world.controller.view().image.cluster.brokers)

    def fenced(self, world: World) -> list[int]:
        return [broker_id for broker_id, b in sorted(self.brokers(world).items()) if b.fenced]

    def test_silent_broker_is_fenced_after_first_timeout(self) -> None:
        async def main() -> None:
            world = await self.world()
            world.lead(3)
            await asyncio.sleep(1.09)
            await heartbeat(world, 2, self.brokers(world)[2].epoch, FakeConnection())
            assert self.fenced(world) == []
            await asyncio.sleep(0.02)
            assert self.fenced(world) == [1]
            await asyncio.sleep(5)
            assert self.fenced(world) == [1], "who has spoken has a session"
            world.controller.stop()

        run_in_virtual_time(main)

    def test_takeover_without_setting_keeps_whole_sessions(self) -> None:
        async def main() -> None:
            world = await self.world(controller_quorum_fetch_timeout_ms="1000")
            world.lead(3)
            world.controller.contacts.process_gone(1)
            await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 0.1)
            assert self.fenced(world) == []
            await asyncio.sleep(0.2)
            assert self.fenced(world) == [1, 2]
            world.controller.stop()

        run_in_virtual_time(main)

    @pytest.mark.parametrize("early", [True, False])
    def test_a_voter_whose_port_is_closed_takes_its_broker_with_it(self, early: bool) -> None:
        """The refused connection may be seen before this controller has caught up with its log."""

        async def main() -> None:
            world = await self.world()
            if early:
                world.quorum._leader = (100, 3)
                world.controller.contacts.process_gone(1)
            world.lead(3)
            if not early:
                world.controller.contacts.process_gone(1)
            world.controller.contacts.process_gone(9)
            await asyncio.sleep(0.099)
            assert self.fenced(world) == []
            await asyncio.sleep(0.002)
            assert self.fenced(world) == [1]
            world.controller.stop()

        run_in_virtual_time(main)

    def test_heartbeat_before_controller_is_active_counts(self) -> None:
        async def main() -> None:
            world = await self.world()
            epochs = {broker.id: broker.epoch for broker in self.committed(world)}
            world.quorum._leader = (100, 3)
            connections = {broker_id: FakeConnection() for broker_id in (1, 2, 77)}
            for broker_id, connection in connections.items():
                world.controller.contacts.touch(
                    broker_id,
                    epoch=epochs.get(broker_id, 0),
                    metadata_offset=0,
                    connection=connection,  # type: ignore[arg-type]
                )
            assert world.controller.contacts.early_count == 2, "only registered brokers are kept"
            world.lead(3)
            await asyncio.sleep(2)
            assert self.fenced(world) == []
            connections[1].end()
            await asyncio.sleep(0.2)
            assert self.fenced(world) == [1], "its connection is known"
            world.controller.stop()

        run_in_virtual_time(main)

    def test_an_early_heartbeat_of_another_epoch_takes_no_place_of_the_brokers_own(self) -> None:
        """P16: the broker epoch of a request is compared before the request counts."""

        async def main() -> None:
            world = await self.world()
            epochs = {broker.id: broker.epoch for broker in self.committed(world)}
            world.quorum._leader = (100, 3)
            for broker_id, epoch in epochs.items():
                for claimed in (epoch, epoch + 7, 2**63 - 1, -1):
                    world.controller.contacts.touch(
                        broker_id,
                        epoch=claimed,
                        metadata_offset=0,
                        connection=FakeConnection(),  # type: ignore[arg-type]
                    )
            world.lead(3)
            await asyncio.sleep(2)
            assert self.fenced(world) == []
            world.controller.stop()

        run_in_virtual_time(main)

    def test_heartbeat_offset_beyond_log_end_is_limited(self) -> None:
        """Shutdowns of other brokers wait until each broker has applied the new leaders.

        A heartbeat with a metadata offset beyond the log end must not count as proof of that.
        """

        async def main() -> None:
            world = await self.world()
            world.lead(3)
            for broker in self.committed(world):
                world.controller.contacts.touch(
                    broker.id, epoch=broker.epoch, metadata_offset=2**63 - 1
                )
            brokers = self.committed(world)
            lowest = world.controller.heartbeats.lowest_active_metadata_offset(brokers)
            assert lowest is not None and lowest <= world.quorum.log_end_offset
            world.controller.stop()

        run_in_virtual_time(main)

    def committed(self, world: World) -> list[Any]:
        return list(world.controller.committed_image.cluster.brokers.values())

    def test_lost_process_before_failed_election_is_forgotten(self) -> None:
        async def main() -> None:
            world = await self.world()
            world.quorum._leader = (100, 3)
            world.controller.contacts.process_gone(1)
            world.quorum.follow(7, 4)
            world.lead(5)
            await asyncio.sleep(0.5)
            assert self.fenced(world) == []
            world.controller.stop()

        run_in_virtual_time(main)

    def test_heartbeats_that_move_between_two_connections_leave_one_callback_on_each(self) -> None:
        async def main() -> None:
            world = await self.world()
            world.lead(3)
            connections = FakeConnection(), FakeConnection()
            epoch = self.brokers(world)[1].epoch
            for turn in range(10):
                await heartbeat(world, 1, epoch, connections[turn % 2])
            assert [len(dict.fromkeys(one.callbacks)) for one in connections] == [1, 1]
            world.controller.stop()

        run_in_virtual_time(main)


class TestAStall:
    """A stalled controller process, with requests of brokers received but not yet read."""

    async def world(self, **properties: str) -> tuple[World, dict[int, int]]:
        world = World(commit_at_once=True, **properties)
        world.lead()
        epochs = {broker_id: await world.register(broker_id) for broker_id in (1, 2)}
        for broker_id, epoch in epochs.items():
            await heartbeat(world, broker_id, epoch)
        return world, epochs

    def fenced(self, world: World) -> list[int]:
        brokers = world.controller.view().image.cluster.brokers
        return sorted(broker.id for broker in brokers.values() if broker.fenced)

    def stand_still(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.now_s += seconds

    def test_brokers_that_spoke_in_time_stay(self) -> None:
        async def main() -> None:
            world, epochs = await self.world()
            self.stand_still(30)
            await asyncio.sleep(0.1)
            assert self.fenced(world) == []
            await heartbeat(world, 1, epochs[1])
            await asyncio.sleep(1)
            assert self.fenced(world) == [2]
            world.controller.stop()

        run_in_virtual_time(main)

    def test_grace_after_stall_is_no_longer_than_stall(self) -> None:
        async def main() -> None:
            world, _ = await self.world()
            await asyncio.sleep(8.9)
            self.stand_still(0.3)
            await asyncio.sleep(0.21)
            assert self.fenced(world) == [1, 2]
            world.controller.stop()

        run_in_virtual_time(main)


class TestUpkeep:
    def test_a_new_controller_elects_where_the_one_before_had_not_come(self) -> None:
        """The log ends between the unfencing of a broker and an election that follows from it."""

        async def main() -> None:
            world = World(commit_at_once=True).lead()
            await asyncio.sleep(1.0)
            await heartbeat(world, 1, await world.register(1))
            partition = PartitionRecord(
                partition_id=0,
                topic_id=b"t" * 16,
                replicas=[1],
                isr=[1],
                leader=-1,
                directories=[DIRECTORY_MIGRATING],
            )
            await world.write(TopicRecord(name="t", topic_id=b"t" * 16), partition)
            await asyncio.sleep(1.0)
            topics = world.controller.view().image.topics
            assert topics.by_name["t"].partitions[0].leader == -1
            world.quorum.follow(7, 2)
            world.lead(3)
            await asyncio.sleep(0.01)
            topics = world.controller.view().image.topics
            assert topics.by_name["t"].partitions[0].leader == 1
            world.controller.stop()

        run_in_virtual_time(main)

    def test_unclean_election_begins_when_it_becomes_allowed(self) -> None:
        async def main() -> None:
            world = World(commit_at_once=True)
            world.lead()
            epochs = {b: await world.register(b) for b in (1, 2)}
            for broker_id, epoch in epochs.items():
                await heartbeat(world, broker_id, epoch)
            topic_id = b"t" * 16
            partition = PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[3, 2],
                isr=[3],
                leader=-1,
                leader_epoch=4,
                partition_epoch=4,
                directories=[bytes(16), bytes(16)],
            )
            await world.write(TopicRecord(name="t", topic_id=topic_id), partition)
            await world.write(
                ConfigRecord(
                    resource_type=2,
                    resource_name="t",
                    name="unclean.leader.election.enable",
                    value="true",
                )
            )
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            after = world.controller.view().image.topics.by_name["t"].partitions[0]
            assert (after.leader, after.isr) == (2, (2,))
            world.controller.stop()

        run_in_virtual_time(main)

    @pytest.mark.parametrize("enabled", [True, False])
    def test_leadership_goes_back_by_itself(self, enabled: bool) -> None:
        async def main() -> None:
            world = World(
                commit_at_once=True,
                leader_imbalance_check_interval_seconds="5",
                auto_leader_rebalance_enable=str(enabled).lower(),
                broker_session_timeout_ms="60000",
            )
            world.lead()
            for broker_id in (1, 2):
                await heartbeat(world, broker_id, await world.register(broker_id))
            topic_id = b"t" * 16
            partition = PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=[2, 1],
                leader=2,
                leader_epoch=4,
                partition_epoch=4,
                directories=[bytes(16), bytes(16)],
            )
            await world.write(TopicRecord(name="t", topic_id=topic_id), partition)
            await asyncio.sleep(4.9)
            topics = world.controller.view().image.topics
            assert topics.by_name["t"].partitions[0].leader == 2
            await asyncio.sleep(0.2)
            topics = world.controller.view().image.topics
            assert topics.by_name["t"].partitions[0].leader == (1 if enabled else 2)
            world.controller.stop()

        run_in_virtual_time(main)


async def heartbeat(world: World, broker_id: int, epoch: int, connection: Any = None) -> None:
    from controller.brokers.registration import decide_heartbeat
    from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        current_metadata_offset=world.quorum.log_end_offset - 1,
    )
    world.controller.contacts.touch(
        broker_id,
        epoch=epoch,
        metadata_offset=request.current_metadata_offset,
        connection=connection,
    )
    await world.controller.submit(lambda view: decide_heartbeat(view, request), same)
