"""Scripted rebalances: the members awaited, and the end of each phase."""

from __future__ import annotations

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.states import GroupState
from protocol.errors import ErrorCode
from testkit.memory.group_shard import (
    REBALANCE_MS,
    SESSION_MS,
    ShardWorld,
    subscription,
)

NONE = ErrorCode.NONE


def test_members_that_do_not_rejoin_are_out() -> None:
    world = ShardWorld()
    ids = world.stable_group(3)
    changed = (("range", subscription("b")),)
    joins = [world.join(ids[1], protocols=changed), world.join(ids[2])]
    assert not any(ticket in world.answers for ticket in joins)
    for _ in range(REBALANCE_MS // 5_000):
        assert world.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(5_000)
    answers = [world.joined(ticket) for ticket in joins]
    assert {answer.leader for answer in answers} == {ids[1]}
    assert set(world.group().members) == set(ids[1:])
    assert world.heartbeat(ids[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_times_out_is_replaced() -> None:
    world = ShardWorld()
    ids = world.stable_group(2)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(ids[1], 1) is NONE
    world.advance(1)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(ids[1], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    answer = world.joined(world.join(ids[1]))
    assert answer.leader == ids[1]
    assert answer.generation_id == 2


def test_a_member_that_waits_is_not_expired() -> None:
    world = ShardWorld()
    ids = world.stable_group(2)
    waiting = world.join(ids[0])
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        world.heartbeat(ids[1], 1)
    assert waiting not in world.answers
    world.join(ids[1])
    assert world.code(waiting) is NONE
    # The answer starts the member's session timeout from zero.
    world.advance(SESSION_MS - 1)
    assert ids[0] in world.group().members


def test_a_new_member_that_waits_too_long_is_dropped() -> None:
    """KAFKA-9752: the member cannot heartbeat, so only this deadline detects that it is gone."""
    config = GroupConfig(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=20_000)
    world = ShardWorld(config)
    old = world.stable_group()
    new = world.join(version=3)
    for _ in range(4):
        world.advance(5_000)
        world.heartbeat(old[0], 1)
    assert world.code(new) is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(world.group().members) == set(old)


def test_a_member_that_never_syncs_is_out() -> None:
    """KAFKA-12890: the group must not stay in CompletingRebalance indefinitely."""
    world = ShardWorld()
    ids = [world.new_id(), world.new_id()]
    joins = [world.join(member_id) for member_id in ids]
    world.advance(0)
    assert world.joined(joins[0]).leader == ids[0]
    follower = world.sync(ids[1], 1)
    for _ in range(REBALANCE_MS // 5_000):
        assert world.state() is GroupState.COMPLETING_REBALANCE
        assert world.heartbeat(ids[0], 1) is NONE
        world.advance(5_000)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.code(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(world.group().members) == {ids[1]}
    answer = world.joined(world.join(ids[1]))
    assert answer.leader == ids[1]


def test_a_follower_that_never_syncs_is_out_of_a_stable_group() -> None:
    world = ShardWorld()
    ids = [world.new_id(), world.new_id()]
    for member_id in ids:
        world.join(member_id)
    world.advance(0)
    world.sync(ids[0], 1, {})
    assert world.state() is GroupState.STABLE
    for _ in range(REBALANCE_MS // 5_000):
        world.heartbeat(ids[0], 1)
        world.heartbeat(ids[1], 1)
        world.advance(5_000)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert set(world.group().members) == {ids[0]}


def test_synced_member_stays_longer_than_rebalance_timeout() -> None:
    world = ShardWorld()
    ids = world.stable_group(2)
    for _ in range(REBALANCE_MS // 5_000 + 1):
        assert [world.heartbeat(member_id, 1) for member_id in ids] == [NONE, NONE]
        world.advance(5_000)
    assert world.state() is GroupState.STABLE


def test_the_group_becomes_empty_and_lives_again() -> None:
    world = ShardWorld()
    (member,) = world.stable_group()
    world.leave((member, None))
    assert world.state() is GroupState.EMPTY
    record = world.shard.appended.groups["g"]
    assert (record.generation, record.protocol, record.leader) == (2, None, None)
    assert (record.protocol_type, record.members) == ("consumer", ())
    # A member with another protocol type may join an empty group.
    again = world.new_id(protocol_type="connect")
    ticket = world.join(again, protocol_type="connect")
    world.advance(0)
    assert world.joined(ticket).generation_id == 3
    assert world.joined(ticket).protocol_type == "connect"
