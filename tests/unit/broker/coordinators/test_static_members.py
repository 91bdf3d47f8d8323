"""Static members (KIP-345), recognised by their instance id in any process."""

from __future__ import annotations

import pytest

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.rebalance import NOBODY_LEADS_MS_MIN
from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from testkit.memory.group_shard import (
    REBALANCE_MS,
    SESSION_MS,
    ShardWorld,
    subscription,
)


def static_group(world: ShardWorld, *instances: str) -> list[str]:
    """Form a stable group of static members; the first leads."""
    tickets = [world.join(instance=instance) for instance in instances]
    world.advance(0)
    ids = [world.joined(ticket).member_id for ticket in tickets]
    world.sync_all(ids, 1)
    assert world.state() is GroupState.STABLE
    return ids


def test_the_member_id_begins_with_the_instance_id() -> None:
    world = ShardWorld()
    assert static_group(world, "i1") == ["i1-uuid-1"]


def test_a_restart_keeps_generation_and_assignment() -> None:
    world = ShardWorld()
    leader, follower = static_group(world, "i1", "i2")
    answer = world.joined(world.join(instance="i2"))
    assert (answer.generation_id, answer.leader) == (1, leader)
    assert answer.member_id not in (leader, follower)
    assert (answer.skip_assignment, answer.members) == (False, [])
    assert world.state() is GroupState.STABLE
    synced = world.synced(world.sync(answer.member_id, 1, instance="i2"))
    assert synced.assignment == follower.encode()
    stored = {member.member_id for member in world.shard.appended.groups["g"].members}
    assert stored == {leader, answer.member_id}


def test_the_former_self_is_fenced() -> None:
    world = ShardWorld()
    _, follower = static_group(world, "i1", "i2")
    world.join(instance="i2")
    assert world.heartbeat(follower, 1, "i2") is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.code(world.sync(follower, 1, instance="i2")) is ErrorCode.FENCED_INSTANCE_ID
    assert world.code(world.join(follower, instance="i2")) is ErrorCode.FENCED_INSTANCE_ID
    ticket = world.commit({("a", 0): 5}, member_id=follower, generation=1, instance="i2")
    assert world.commit_codes(ticket) == {ErrorCode.FENCED_INSTANCE_ID}
    left = world.answers[world.leave((follower, "i2"))]
    assert left.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_returning_leader_skips_the_assignment_from_version_9() -> None:
    world = ShardWorld()
    leader, _ = static_group(world, "i1", "i2")
    answer = world.joined(world.join(instance="i1", version=9))
    assert answer.leader == answer.member_id != leader
    assert answer.skip_assignment
    assert len(answer.members) == 2


def test_a_returning_leader_before_version_9_takes_itself_for_a_follower() -> None:
    world = ShardWorld()
    leader, _ = static_group(world, "i1", "i2")
    answer = world.joined(world.join(instance="i1", version=8))
    assert answer.leader == leader != answer.member_id
    assert (answer.skip_assignment, answer.members) == (False, [])
    assert world.group().leader == answer.member_id


def test_a_restart_with_another_protocol_starts_a_rebalance() -> None:
    world = ShardWorld()
    both = (("range", subscription("a")), ("rr", subscription("a")))
    tickets = [world.join(instance=name, protocols=both) for name in ("i1", "i2")]
    world.advance(0)
    ids = [world.joined(ticket).member_id for ticket in tickets]
    world.sync_all(ids, 1)
    ticket = world.join(instance="i2", protocols=(("rr", subscription("a")),))
    assert ticket not in world.answers
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_restart_in_the_sync_phase_starts_over() -> None:
    world = ShardWorld()
    tickets = [world.join(instance=name) for name in ("i1", "i2")]
    world.advance(0)
    first, second = (world.joined(ticket).member_id for ticket in tickets)
    waiting = world.sync(second, 1, instance="i2")
    back = world.join(instance="i2")
    assert world.code(waiting) is ErrorCode.FENCED_INSTANCE_ID
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.join(first, instance="i1")
    assert world.joined(back).generation_id == 2


def test_a_restart_in_the_join_phase_takes_over_the_place() -> None:
    world = ShardWorld()
    leader, follower = static_group(world, "i1", "i2")
    world.join(leader, instance="i1")
    old = world.join(follower, instance="i2")
    # Both are back, so the second rebalance has ended; the third waits for i2.
    assert world.joined(old).generation_id == 2
    world.sync_all([leader, follower], 2)
    waiting = world.join(leader, instance="i1")
    new = world.join(instance="i2")
    assert world.joined(waiting).generation_id == world.joined(new).generation_id == 3


def test_a_static_member_that_is_away_stays_until_its_session_ends() -> None:
    world = ShardWorld()
    leader, follower = static_group(world, "i1", "i2")
    world.advance(SESSION_MS - 1)
    world.heartbeat(leader, 1, "i1")
    assert follower in world.group().members
    world.advance(1)
    assert follower not in world.group().members


def test_static_members_that_do_not_rejoin_are_kept_by_the_join_phase() -> None:
    world = ShardWorld()
    leader, follower = static_group(world, "i1", "i2")
    waiting = world.join(leader, instance="i1")
    for _ in range(REBALANCE_MS // 5_000):
        assert world.heartbeat(follower, 1, "i2") is ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(5_000)
    assert world.joined(waiting).generation_id == 2
    assert set(world.group().members) == {leader, follower}


def test_rebalance_without_returned_members_waits_for_session_end() -> None:
    world = ShardWorld()
    ids = static_group(world, "i1", "i2")
    world.leave(("", "i2"))
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert set(world.group().members) == {ids[0]}
    for _ in range(REBALANCE_MS // 5_000):
        world.heartbeat(ids[0], 1, "i1")
        world.advance(5_000)
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.advance(SESSION_MS)
    assert world.state() is GroupState.EMPTY


def test_a_rebalance_timeout_of_zero_does_not_keep_the_timers_busy() -> None:
    """G8: a join phase of static members alone, none of which is back, is checked again later."""
    world = ShardWorld()
    static_group(world, "i1", "i2")
    for instance in ("i1", "i2"):
        assert world.code(world.join(instance=instance, rebalance_ms=0)) is ErrorCode.NONE
    world.leave(("", "i2"))
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.serve() == 1
    due_ms = world.shard.next_deadline_ms()
    assert due_ms == world.now_ms + NOBODY_LEADS_MS_MIN
    ticket = world.join(instance="i1", rebalance_ms=0)
    assert world.joined(ticket).generation_id == 2


@pytest.mark.parametrize("rebalance_ms", [-(2**31), -1, 0, 1, 2**31 - 1])
@pytest.mark.parametrize("session_ms", [0, 1, 2**31 - 1])
@pytest.mark.parametrize("delay_ms", [0, 1, 2**31 - 1])
def test_groups_with_extreme_timeouts_come_to_rest(
    rebalance_ms: int, session_ms: int, delay_ms: int
) -> None:
    config = GroupConfig(
        min_session_timeout_ms=0,
        max_session_timeout_ms=2**31 - 1,
        initial_rebalance_delay_ms=delay_ms,
    )
    world = ShardWorld(config)
    how = {"rebalance_ms": rebalance_ms, "session_ms": session_ms}
    for instance in ("i1", "i2", None, "i1"):
        world.join(instance=instance, **how)
        world.serve()
    for instance in ("i1", "i2"):
        world.leave(("", instance))
        world.serve()
    world.now_ms += 2**32
    while (due_ms := world.shard.next_deadline_ms()) is not None and due_ms <= world.now_ms:
        world.serve()
        world.now_ms += NOBODY_LEADS_MS_MIN
    assert not world.shard.core.groups or not world.group().members


def test_an_administrator_removes_by_instance_id() -> None:
    world = ShardWorld()
    leader, follower = static_group(world, "i1", "i2")
    answer = world.answers[world.leave(("", "i2"))]
    assert [(each.member_id, each.group_instance_id) for each in answer.members] == [("", "i2")]
    assert answer.members[0].error_code == ErrorCode.NONE
    assert set(world.group().members) == {leader}


def test_unknown_instance_id_is_refused() -> None:
    world = ShardWorld()
    (member,) = static_group(world, "i1")
    assert world.heartbeat(member, 1, "other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.code(world.join(member, instance="other")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_and_dynamic_members_together() -> None:
    """KAFKA-14422: a returning static member causes no rebalance in a group with dynamic
    members."""
    world = ShardWorld()
    static = world.join(instance="i1")
    dynamic_id = world.new_id()
    dynamic = world.join(dynamic_id)
    world.advance(0)
    ids = [world.joined(static).member_id, world.joined(dynamic).member_id]
    world.sync_all(ids, 1)
    back = world.joined(world.join(instance="i1"))
    assert back.generation_id == 1
    assert world.heartbeat(dynamic_id, 1) is ErrorCode.NONE
    world.join(back.member_id, instance="i1")
    rejoined = world.join(dynamic_id)
    assert world.joined(rejoined).generation_id == 2


def test_a_new_id_that_cannot_be_stored_is_taken_back() -> None:
    world = ShardWorld()
    leader, follower = static_group(world, "i1", "i2")
    world.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ticket = world.join(instance="i2")
    assert world.code(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(world.group().members) == {leader, follower}
    assert world.heartbeat(follower, 1, "i2") is ErrorCode.NONE


def test_the_answer_waits_until_the_new_id_is_committed() -> None:
    world = ShardWorld()
    static_group(world, "i1", "i2")
    world.hold_commits = True
    ticket = world.join(instance="i2")
    assert ticket not in world.answers
    world.commit_next()
    assert world.joined(ticket).generation_id == 1
