"""SyncGroup, Heartbeat and LeaveGroup: requests of members between rebalances."""

from __future__ import annotations

from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from testkit.memory.group_shard import GROUP, SESSION_MS, ShardWorld

NONE = ErrorCode.NONE


def test_a_pending_id_may_leave() -> None:
    world = ShardWorld()
    ids = world.stable_group()
    pending = world.new_id()
    rejoin = world.join(ids[0])
    left = world.leave((pending, None))
    assert world.code(left) is NONE
    assert world.joined(rejoin).generation_id == 2


def test_a_group_that_only_a_pending_id_was_in_is_forgotten() -> None:
    world = ShardWorld()
    assert world.code(world.leave((world.new_id(), None))) is NONE
    assert GROUP not in world.shard.core.groups


def test_an_id_of_a_group_that_was_deleted_means_nothing_to_the_one_made_again() -> None:
    """The timer of the deleted group's pending id is still running."""
    for again in (False, True):
        world = ShardWorld()
        (member,) = world.stable_group()
        world.leave((member, None))
        world.new_id()
        assert world.delete_group() is NONE
        world.advance(1)
        later = world.new_id() if again else ""
        world.advance(SESSION_MS - 1)
        assert (GROUP in world.shard.core.groups) is again
        assert not again or world.group().pending == {later}


def test_pending_id_with_an_instance_id_may_not_leave() -> None:
    """A request changes nothing unless its member id and instance id belong together."""
    world = ShardWorld()
    pending = world.new_id()
    left = world.leave((pending, "i1"))
    assert world.leave_codes(left) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.group().pending == {pending}


def test_pending_id_that_leaves_a_stable_group_does_not_rebalance_it() -> None:
    world = ShardWorld()
    (member,) = world.stable_group()
    assert world.leave_codes(world.leave((world.new_id(), None))) == [NONE]
    assert world.state() is GroupState.STABLE
    assert world.heartbeat(member, 1) is NONE


def completing(world: ShardWorld) -> tuple[str, str]:
    """Return leader and follower of a group in its sync phase."""
    ids = [world.new_id(), world.new_id()]
    for member_id in ids:
        world.join(member_id)
    world.advance(0)
    if world.state() is GroupState.PREPARING_REBALANCE:
        world.advance(1)
    assert world.state() is GroupState.COMPLETING_REBALANCE
    leader = world.group().leader
    assert leader is not None
    ids.remove(leader)
    return leader, ids[0]


def test_repeated_assignment_of_a_generation_is_not_appended() -> None:
    """G8, G10: a second SyncGroup of the leader is not appended before the first is committed.

    It was, so that memory had the first assignment and the log the second.
    """
    world = ShardWorld()
    leader, other = completing(world)
    world.hold_commits = True
    size = len(world.log)
    first = world.sync(leader, 1, {leader: b"P0", other: b"P1"})
    waiting = world.sync(other, 1)
    second = world.sync(leader, 1, {leader: b"P1", other: b"P0"})
    assert len(world.log) == size + 1
    assert world.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    world.commit_next()
    assert world.synced(second).assignment == b"P0"
    assert world.synced(waiting).assignment == b"P1"
    members = world.restarted().group().members
    assert {one.member_id: one.assignment for one in members.values()} == {
        leader: b"P0",
        other: b"P1",
    }


def test_assignment_that_was_refused_or_late_does_not_block_the_next_generation() -> None:
    for refused in (True, False):
        world = ShardWorld()
        leader, other = completing(world)
        world.hold_commits = True
        if refused:
            world.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.sync(leader, 1, {leader: b"P0", other: b"P1"})
        world.refuse_appends = None
        if not refused:
            decision, _, _ = world.in_flight[0]
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            world.run(world.shard.timed_out(decision, code, world.now))
        for member_id in (leader, other):
            world.join(member_id)
        assert world.state() is GroupState.COMPLETING_REBALANCE
        assert world.group().generation == 2
        second = world.sync(leader, 2, {leader: b"P1", other: b"P0"})
        while world.in_flight:
            world.commit_next()
        assert world.synced(second).assignment == b"P1"


def test_assignment_of_a_deleted_group_is_not_that_of_its_namesake() -> None:
    """G8: an event belongs to the group object for which it was decided."""
    world = ShardWorld()
    leader, other = completing(world)
    world.hold_commits = True
    world.sync(leader, 1, {leader: b"P0", other: b"P1"})
    world.leave((leader, None), (other, None))
    assert world.state() is GroupState.EMPTY
    world.delete_group_later()
    leader, other = completing(world)
    assert world.group().generation == 1
    world.commit_next()
    assert world.state() is GroupState.COMPLETING_REBALANCE
    synced = world.sync(leader, 1, {leader: b"P0", other: b"P1"})
    while world.in_flight:
        world.commit_next()
    assert world.synced(synced).assignment == b"P0"


def test_empty_group_that_could_not_be_stored_is_forgotten() -> None:
    world = ShardWorld()
    leader, other = completing(world)
    world.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.leave((leader, None), (other, None))
    assert not world.shard.core.groups
    assert len(world.shard.core.timers) == 0


def test_sync_of_old_generation_is_not_left_waiting() -> None:
    """This holds whether the assignment is committed after all or times out."""
    world = ShardWorld()
    leader, other = world.new_id(), world.new_id()
    world.join(leader)
    world.advance(0)
    world.hold_commits = True
    synced = world.sync(leader, 1, {leader: b"x"})
    world.join(other)
    assert world.code(synced) is ErrorCode.REBALANCE_IN_PROGRESS
    decision, _, _ = world.in_flight[0]
    world.run(world.shard.timed_out(decision, ErrorCode.REQUEST_TIMED_OUT, world.now))
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.commit_next()
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.group().members[leader].assignment == b""


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

    def test_leave_of_unknown_member_is_refused(self) -> None:
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

    def test_waiting_join_of_removed_member_fails(self) -> None:
        world = ShardWorld()
        ids = world.stable_group(3)
        waiting = world.join(ids[0])
        world.leave((ids[0], None))
        assert world.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID
