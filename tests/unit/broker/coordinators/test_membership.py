"""SyncGroup, Heartbeat and LeaveGroup: what a member does between rebalances."""

from __future__ import annotations

from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from testkit.memory.group_shard import (
    SESSION_MS,
    ShardWorld,
)

NONE = ErrorCode.NONE


def test_a_pending_id_may_leave() -> None:
    world = ShardWorld()
    ids = world.stable_group()
    pending = world.new_id()
    rejoin = world.join(ids[0])
    left = world.leave((pending, None))
    assert world.code(left) is NONE
    assert world.joined(rejoin).generation_id == 2


def test_a_delayed_heartbeat_still_counts() -> None:
    world = ShardWorld()
    (member,) = world.stable_group()
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(member, 1) is NONE
    world.advance(SESSION_MS)
    assert world.state() is GroupState.EMPTY
    assert world.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_sync_of_one_member_takes_the_place_of_the_first() -> None:
    world = ShardWorld()
    ids = [world.new_id(), world.new_id()]
    for member_id in ids:
        world.join(member_id)
    world.advance(0)
    first, second = world.sync(ids[1], 1), world.sync(ids[1], 1)
    assert world.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(ids[0], 1, {ids[1]: b"x"})
    assert world.synced(second).assignment == b"x"


class TestRefusals:
    def test_unknown_member(self) -> None:
        world = ShardWorld()
        assert world.code(world.join("nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.code(world.sync("nobody", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
        world.stable_group()
        assert world.code(world.join("nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.code(world.sync("nobody", 1)) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_stale_generation(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        assert world.heartbeat(member, 0) is ErrorCode.ILLEGAL_GENERATION
        assert world.heartbeat(member, 2) is ErrorCode.ILLEGAL_GENERATION
        assert world.code(world.sync(member, 2)) is ErrorCode.ILLEGAL_GENERATION

    def test_sync_with_another_protocol(self) -> None:
        world = ShardWorld()
        (member,) = world.stable_group()
        wrong_type = world.sync(member, 1, protocol_type="connect")
        wrong_name = world.sync(member, 1, protocol="roundrobin")
        unsaid = world.sync(member, 1, protocol=None)
        older = world.sync(member, 1, protocol_type=None, protocol=None, version=4)
        assert world.code(wrong_type) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.code(wrong_name) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.code(unsaid) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.synced(older).assignment == member.encode()

    def test_leave_of_nobody(self) -> None:
        world = ShardWorld()
        answer = world.answers[world.leave(("x", None), ("", "i"))]
        assert [(each.member_id, each.error_code) for each in answer.members] == [
            ("x", ErrorCode.UNKNOWN_MEMBER_ID),
            ("", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
        old = world.leave(("x", None), version=2)
        assert world.code(old) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_leave_in_batch_judges_each_member(self) -> None:
        world = ShardWorld()
        ids = world.stable_group(3)
        answer = world.answers[world.leave((ids[0], None), ("x", None), (ids[1], None))]
        codes = [each.error_code for each in answer.members]
        assert codes == [NONE, ErrorCode.UNKNOWN_MEMBER_ID, NONE]
        assert answer.error_code == NONE
        assert set(world.group().members) == {ids[2]}

    def test_a_member_that_is_removed_while_it_waits_is_told(self) -> None:
        world = ShardWorld()
        ids = world.stable_group(3)
        waiting = world.join(ids[0])
        world.leave((ids[0], None))
        assert world.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID
