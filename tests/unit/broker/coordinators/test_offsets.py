"""Commits, fetches, deletion and expiry of offsets."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinators.group.offsets import is_longer_than
from broker.coordinators.group.records import (
    CommittedOffset,
    OffsetRecord,
    TopicPartition,
    encode_record,
)
from broker.coordinators.group.states import GroupState
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.internal.consumer_group_metadata import ConsumerGroupMetadataKey
from testkit.memory.group_shard import (
    A_ID,
    GROUP,
    WALL_EPOCH_MS,
    ShardWorld,
    subscription,
)

DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 7 * DAY_MS
NONE = ErrorCode.NONE


class TestCommit:
    def test_a_fetch_shows_only_what_is_committed(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1})
        world.hold_commits = True
        second = world.commit({("a", 0): 2})
        assert world.fetch("a", 0) == 1
        assert second not in world.answers
        world.commit_next()
        assert world.fetch("a", 0) == 2
        assert world.commit_codes(second) == {NONE}

    def test_commits_survive_a_move_of_the_coordinator(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1, ("b", 1): 7}, metadata="mine")
        world.commit({("a", 0): 3})
        moved = world.restarted()
        assert (moved.fetch("a", 0), moved.fetch("b", 1)) == (3, 7)
        (topic,) = moved.shard.fetch_offsets(GROUP, [("b", bytes(16), [1])])
        assert topic.partitions[0].metadata == "mine"

    def test_a_refused_append_changes_nothing(self) -> None:
        world = ShardWorld()
        world.refuse_appends = ErrorCode.NOT_COORDINATOR
        ticket = world.commit({("a", 0): 1, ("zzz", 0): 1})
        codes = {
            topic.name: topic.partitions[0].error_code for topic in _topics(world.answers[ticket])
        }
        assert codes == {
            "a": ErrorCode.NOT_COORDINATOR,
            "zzz": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert world.fetch("a", 0) == -1

    def test_topics_and_partitions_that_do_not_exist(self) -> None:
        world = ShardWorld()
        ticket = world.commit({("a", 9): 1, ("zzz", 0): 1, ("a", 1): 4, ("a", -1): 1})
        codes = [
            (partition.partition_index, partition.error_code)
            for topic in _topics(world.answers[ticket])
            for partition in topic.partitions
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [(9, unknown), (1, NONE), (-1, unknown), (0, unknown)]
        assert world.fetch("a", 1) == 4

    def test_topic_ids(self) -> None:
        world = ShardWorld()
        ticket = world.commit({("a", 0): 5, ("zzz", 0): 1}, version=10)
        assert world.commit_codes(ticket) == {NONE, ErrorCode.UNKNOWN_TOPIC_ID}
        stored = world.shard.committed_offset(GROUP, "a", 0)
        assert stored is not None and stored.topic_id == A_ID

    def test_an_offset_of_another_topic_of_the_same_name_is_not_shown(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 5}, version=10)
        shown = world.shard.fetch_offsets(GROUP, [("a", A_ID, [0]), ("a", b"N" * 16, [0])])
        assert [topic.partitions[0].offset for topic in shown] == [5, -1]

    def test_metadata_too_large_is_refused_for_that_partition(self) -> None:
        world = ShardWorld()
        assert world.commit_codes(world.commit({("a", 0): 1}, metadata="x" * 4096)) == {NONE}
        ticket = world.commit({("a", 0): 2}, metadata="x" * 4097)
        assert world.commit_codes(ticket) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert world.fetch("a", 0) == 1

    @pytest.mark.parametrize(
        ("text", "limit", "longer"),
        [
            ("abc", 3, False),
            ("abcd", 3, True),
            ("\U0001f600", 2, False),
            ("\U0001f600", 1, True),
            ("\U0001f600a", 2, True),
            ("ää", 2, False),
        ],
    )
    def test_metadata_is_measured_in_utf_16_units(
        self, text: str, limit: int, longer: bool
    ) -> None:
        assert is_longer_than(text, limit) is longer

    def test_null_metadata_becomes_empty(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1}, metadata=None)
        stored = world.shard.committed_offset(GROUP, "a", 0)
        assert stored is not None and stored.metadata == ""

    @pytest.mark.parametrize(
        ("version", "code"),
        [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
    )
    def test_a_generation_of_a_group_that_does_not_exist(
        self, version: int, code: ErrorCode
    ) -> None:
        world = ShardWorld()
        ticket = world.commit({("a", 0): 1}, generation=3, member_id="m", version=version)
        assert world.commit_codes(ticket) == {code}

    def test_a_commit_of_nothing_that_is_there_is_no_sign_of_life(self) -> None:
        """As in Kafka, a commit that names only unknown partitions does not reach the
        coordinator."""
        world = ShardWorld()
        (member,) = world.stable_group()
        world.advance(9_999)
        ticket = world.commit({("zzz", 0): 1, ("a", 9): 1}, member_id=member, generation=1)
        assert world.commit_codes(ticket) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        world.advance(1)
        assert world.state() is GroupState.EMPTY

    def test_a_member_of_a_simple_group_is_unknown(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1})
        ticket = world.commit({("a", 0): 1}, generation=0, member_id="m")
        assert world.commit_codes(ticket) == {ErrorCode.UNKNOWN_MEMBER_ID}

    def test_members_commit_under_their_generation(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        assert world.commit_codes(world.commit({("a", 0): 1}, member_id=member, generation=1)) == {
            NONE
        }
        assert world.commit_codes(world.commit({("a", 0): 1}, member_id=member, generation=0)) == {
            ErrorCode.ILLEGAL_GENERATION
        }
        assert world.commit_codes(world.commit({("a", 0): 1}, member_id="x", generation=1)) == {
            ErrorCode.UNKNOWN_MEMBER_ID
        }
        assert world.commit_codes(world.commit({("a", 0): 1})) == {ErrorCode.UNKNOWN_MEMBER_ID}

    def test_a_commit_is_a_sign_of_life(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        for _ in range(3):
            world.advance(9_999)
            world.commit({("a", 0): 1}, member_id=member, generation=1)
        assert world.state() is GroupState.STABLE

    def test_the_empty_group_id_is_a_group(self) -> None:
        world = ShardWorld()
        assert world.commit_codes(world.commit({("a", 0): 1}, group="")) == {NONE}
        assert world.fetch("a", 0, group="") == 1


class TestFetch:
    def test_fetch_of_uncommitted_offset_returns_minus_one(self) -> None:
        world = ShardWorld()
        (topic,) = world.shard.fetch_offsets("nobody", [("a", bytes(16), [0])])
        (partition,) = topic.partitions
        assert partition == (0, -1, -1, "", NONE)

    def test_everything(self) -> None:
        world = ShardWorld()
        world.commit({("b", 0): 1, ("a", 2): 2, ("a", 0): 3})
        shown = world.shard.fetch_offsets(GROUP, None)
        assert [
            (topic.name, [(each.partition, each.offset) for each in topic.partitions])
            for topic in shown
        ] == [("a", [(0, 3), (2, 2)]), ("b", [(0, 1)])]


class TestDelete:
    def test_offsets_of_an_empty_group(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1, ("b", 0): 2})
        response = world.answers[world.delete_offsets([("a", 0), ("a", 1), ("zzz", 0)])]
        codes = [topic.partitions[0].error_code for topic in _topics(response)]
        assert codes == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert (world.fetch("a", 0), world.fetch("b", 0)) == (-1, 2)

    def test_offsets_of_topics_that_are_read(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        world.commit({("a", 0): 1, ("b", 0): 2}, member_id=member, generation=1)
        response = world.answers[world.delete_offsets([("a", 0), ("b", 0)])]
        codes = [topic.partitions[0].error_code for topic in _topics(response)]
        assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]
        assert (world.fetch("a", 0), world.fetch("b", 0)) == (1, -1)

    def test_members_whose_subscriptions_cannot_be_read(self) -> None:
        world = ShardWorld()
        how: dict[str, Any] = {"protocol_type": "connect"}
        ids = [world.new_id(**how)]
        world.join(ids[0], **how)
        world.advance(0)
        assert world.code(world.delete_offsets([("a", 0)])) is ErrorCode.NON_EMPTY_GROUP

    def test_no_such_group(self) -> None:
        world = ShardWorld()
        assert world.code(world.delete_offsets([("a", 0)])) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_group_without_a_name(self) -> None:
        world = ShardWorld()
        deleted = world.delete_offsets([("a", 0)], group="")
        assert world.code(deleted) is ErrorCode.INVALID_GROUP_ID

    @pytest.mark.parametrize(
        "metadata", [b"", b"?", b"\xff\xff" + subscription("b")[2:], b"\x00\x00foreign"]
    )
    def test_a_consumer_whose_subscription_cannot_be_read_may_read_everything(
        self, metadata: bytes
    ) -> None:
        world = ShardWorld()
        (member,) = world.stable_group(protocols=[("range", metadata)])
        world.commit({("a", 0): 1}, member_id=member, generation=1)
        response = world.answers[world.delete_offsets([("a", 0)])]
        codes = [topic.partitions[0].error_code for topic in _topics(response)]
        assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]

    def test_a_group_with_all_its_offsets(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        world.commit({("a", 0): 1}, member_id=member, generation=1)
        assert world.delete_group() is ErrorCode.NON_EMPTY_GROUP
        world.leave((member, None))
        assert world.delete_group() is NONE
        assert world.fetch("a", 0) == -1
        assert not world.shard.appended.has_group(GROUP)
        assert world.delete_group() is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_deletion_covers_commits_that_are_under_way(self) -> None:
        world = ShardWorld()
        world.hold_commits = True
        world.commit({("a", 0): 1})
        decision = world.shard.decide_delete_group(GROUP)
        assert [record.value for record in decision.records] == [None]

    def test_offsets_of_deleted_topics_are_not_shown_and_go(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1, ("b", 0): 2})
        world.delete_topics("a")
        assert (world.fetch("a", 0), world.fetch("b", 0)) == (-1, 2)
        assert [one.name for one in world.shard.fetch_offsets(GROUP, None)] == ["b"]
        world.forget()
        assert world.shard.appended.offset_count() == 1

    @pytest.mark.parametrize("how", ["moved", "refused", "moved and refused"])
    def test_offset_of_a_deleted_topic_never_comes_back_for_its_namesake(self, how: str) -> None:
        """G9: neither after a failover ahead of the tombstones, nor when their append is
        refused."""
        world = ShardWorld()
        world.commit({("a", 0): 7, ("b", 0): 2})
        world.delete_topics("a")
        if "moved" in how:
            world = world.restarted()
        if "refused" in how:
            world.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
            world.forget()
            world.refuse_appends = None
        world.topics.topics["a"] = b"N" * 16, 4
        assert world.fetch("a", 0) == -1
        world.commit({("a", 1): 1})
        world.forget()
        assert [world.fetch("a", index) for index in (0, 1)] == [-1, 1]
        world = world.restarted()
        assert [world.fetch("a", index) for index in (0, 1)] == [-1, 1]
        assert world.shard.appended.offset_count() == 2

    def test_offset_without_topic_id_of_a_deleted_topic(self) -> None:
        """Kafka's format has no topic id for commits with their own retention time."""
        world = ShardWorld()
        world.commit({("a", 0): 7, ("a", 1): 7}, version=4, retention_ms=10**9)
        world.delete_topics("a")
        assert world.fetch("a", 0) == -1
        world.topics.topics["a"] = b"N" * 16, 4
        assert world.fetch("a", 0) == -1, "the deletion was seen"
        world.commit({("a", 1): 1}, version=4, retention_ms=10**9)
        world.forget()
        assert [world.fetch("a", index) for index in (0, 1)] == [-1, 1]

    def test_offset_without_topic_id_is_stale_where_the_image_lacks_its_partition(self) -> None:
        world = ShardWorld()
        world.commit({("a", 3): 7, ("b", 1): 7}, version=4, retention_ms=10**9)
        world.topics.topics["a"] = b"N" * 16, 3
        del world.topics.topics["b"]
        world = world.restarted()
        assert (world.fetch("a", 3), world.fetch("b", 1)) == (-1, -1)
        world.forget()
        assert world.shard.appended.offset_count() == 0


class TestExpiry:
    def test_a_group_without_members_ever(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1})
        world.advance(DAY_MS)
        world.commit({("a", 1): 1})
        world.advance(RETENTION_MS - DAY_MS - 1)
        world.expire()
        assert world.fetch("a", 0) == 1
        world.advance(1)
        world.expire()
        assert (world.fetch("a", 0), world.fetch("a", 1)) == (-1, 1)

    @pytest.mark.slow
    def test_offsets_live_as_long_as_the_group_and_then_their_time(self) -> None:
        """KAFKA-8069, KAFKA-13636: retention of offsets begins when the group becomes empty."""
        world = ShardWorld()
        (member,) = world.stable_group()
        world.commit({("a", 0): 1}, member_id=member, generation=1)
        for _ in range(RETENTION_MS // 3_600_000 + 1):
            for _ in range(400):
                world.now_ms += 9_000
                world.heartbeat(member, 1)
        world.expire()
        assert world.fetch("a", 0) == 1
        world.leave((member, None))
        world.advance(RETENTION_MS - 1)
        world.expire()
        assert world.fetch("a", 0) == 1
        moved = world.restarted()
        moved.now_ms = world.now_ms + 1
        moved.expire()
        assert moved.fetch("a", 0) == -1
        assert not moved.shard.core.groups
        assert not moved.shard.appended.has_group(GROUP)

    def test_offsets_of_unsubscribed_topics_expire_in_stable_group(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        world.commit({("a", 0): 1, ("b", 0): 2}, member_id=member, generation=1)
        world.now_ms += RETENTION_MS
        world.heartbeat(member, 1)
        world.expire()
        assert (world.fetch("a", 0), world.fetch("b", 0)) == (1, -1)

    def test_nothing_expires_in_a_rebalance(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        world.commit({("b", 0): 2}, member_id=member, generation=1)
        world.now_ms += RETENTION_MS
        world.new_id()
        world.join(member)
        assert world.state() is GroupState.PREPARING_REBALANCE
        world.expire()
        assert world.fetch("b", 0) == 2

    def test_nothing_expires_when_subscriptions_cannot_be_read(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group(protocols=(("range", b"\x00\x00garbage"),))
        world.commit({("b", 0): 2}, member_id=member, generation=1)
        world.now_ms += RETENTION_MS
        world.heartbeat(member, 1)
        world.expire()
        assert world.fetch("b", 0) == 2

    def test_an_end_of_the_clients_own_choice(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1}, version=4, retention_ms=60_000)
        stored = world.shard.committed_offset(GROUP, "a", 0)
        assert stored is not None
        assert stored.expire_timestamp_ms == WALL_EPOCH_MS + 60_000
        world.advance(59_999)
        world.expire()
        assert world.fetch("a", 0) == 1
        world.advance(1)
        world.expire()
        assert world.fetch("a", 0) == -1

    @pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 1 - WALL_EPOCH_MS])
    def test_an_end_beyond_the_end_of_time(self, retention_ms: int) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1}, version=4, retention_ms=retention_ms)
        stored = world.shard.committed_offset(GROUP, "a", 0)
        assert stored is not None
        assert stored.expire_timestamp_ms == 2**63 - 1

    @pytest.mark.parametrize("retention_ms", [0, -2, -(2**63)])
    def test_an_end_in_the_past(self, retention_ms: int) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1}, version=4, retention_ms=retention_ms)
        world.expire()
        assert world.fetch("a", 0) == -1

    def test_a_commit_under_way_is_not_expired_with_the_old_one(self) -> None:
        world = ShardWorld()
        world.commit({("a", 0): 1})
        world.advance(RETENTION_MS)
        world.hold_commits = True
        world.commit({("a", 0): 2})
        world.expire()
        world.commit_next()
        assert world.fetch("a", 0) == 2

    def test_a_group_about_to_be_joined_is_left_alone(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        world.leave((member, None))
        world.advance(RETENTION_MS)
        again = world.new_id()
        world.expire()
        world.join(again)
        world.advance(0)
        assert world.group().generation == 3

    def test_tombstones_come_in_batches(self) -> None:
        world = ShardWorld()
        at = [TopicPartition("a", index) for index in range(2_500)]
        log = [
            encode_record(OffsetRecord(GROUP, each, CommittedOffset(1, -1, "", 0))) for each in at
        ]
        world = ShardWorld(log=log)
        decisions = world.shard.decide_expired([GROUP], world.now)
        assert [len(decision.records) for decision in decisions] == [500] * 5 + [0]


class TestForeignGroups:
    """Groups of another coordinator in the log, with a protocol that this broker does not run."""

    def world(self) -> ShardWorld:
        key = b"\x00\x03" + encode(ConsumerGroupMetadataKey(group_id=GROUP), 0)
        offset = OffsetRecord(GROUP, TopicPartition("a", 0), CommittedOffset(9, -1, "", 0))
        return ShardWorld(log=[(key, b"\x00\x00\x00\x00\x00\x01\x00"), encode_record(offset)])

    def test_other_group_type_cannot_be_joined(self) -> None:
        world = self.world()
        assert world.code(world.join()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_other_group_type_offsets_can_be_read_and_do_not_expire(self) -> None:
        world = self.world()
        world.expire()
        assert world.fetch("a", 0) == 9

    def test_other_group_type_cannot_be_changed(self) -> None:
        world = self.world()
        assert world.commit_codes(world.commit({("a", 0): 1})) == {ErrorCode.GROUP_ID_NOT_FOUND}
        assert world.code(world.delete_offsets([("a", 0)])) is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.delete_group() is ErrorCode.GROUP_ID_NOT_FOUND

    def test_other_group_type_is_not_described_as_classic(self) -> None:
        described = self.world().shard.describe_group(GROUP, 6)
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == f"Group {GROUP} is not a classic group."


def _topics(response: Any) -> list[Any]:
    topics: list[Any] = response.topics
    return topics


def test_the_subscription_may_be_of_any_version() -> None:
    world = ShardWorld()
    newer = b"\x00\x09" + subscription("a", "q")[2:] + b"\x00" * 40
    world.stable_group(protocols=(("range", newer),))
    assert world.group().is_subscribed("q")
    assert not world.group().is_subscribed("other")


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 2, -(2**63)])
def test_a_retention_of_ages_is_written_as_the_last_moment_there_is(retention_ms: int) -> None:
    world = ShardWorld()
    codes = world.commit_codes(world.commit({("a", 0): 5}, version=4, retention_ms=retention_ms))
    assert codes == {ErrorCode.NONE}
    world.check()
