"""The transition table, state by event, and the members' results in each state."""

from __future__ import annotations

import itertools

import pytest

from broker.coordinators.group.membership import HEARTBEAT_ANSWERS, SYNC_REFUSALS
from broker.coordinators.group.records import GroupMetadata, GroupRecord, encode_record
from broker.coordinators.group.states import (
    TRANSITIONS,
    GroupEvent,
    GroupState,
    InvalidTransition,
    next_state,
)
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from testkit.memory.group_shard import GROUP, WALL_EPOCH_MS, ShardWorld

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

# Every state x event; None: not allowed.
EXPECTED = {
    EMPTY: {"REBALANCE_STARTED": PREPARING, "REMOVED": DEAD},
    PREPARING: {"JOINED": COMPLETING, "ALL_LEFT": EMPTY, "REMOVED": DEAD},
    COMPLETING: {"REBALANCE_STARTED": PREPARING, "ASSIGNED": STABLE, "REMOVED": DEAD},
    STABLE: {"REBALANCE_STARTED": PREPARING, "REMOVED": DEAD},
    DEAD: {},
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(GroupState, GroupEvent)))
def test_every_state_and_event(state: GroupState, event: GroupEvent) -> None:
    expected = EXPECTED[state].get(event.name)
    assert TRANSITIONS.get((state, event)) is expected
    if expected is None:
        with pytest.raises(InvalidTransition, match=rf"{state.value}.*{event.name}"):
            next_state(state, event)
    else:
        assert next_state(state, event) is expected


def test_names_are_those_of_kafka() -> None:
    names = [state.value for state in GroupState]
    assert names == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]


@pytest.mark.parametrize("table", [HEARTBEAT_ANSWERS, SYNC_REFUSALS])
def test_tables_cover_every_state(table: dict[GroupState, ErrorCode | None]) -> None:
    assert set(table) == set(GroupState)


def group_in(state: GroupState) -> tuple[ShardWorld, str, int]:
    """Return a world with its group in `state`, the member and the generation."""
    world = ShardWorld()
    (member,) = world.stable_group()
    if state is STABLE:
        return world, member, 1
    if state is EMPTY:
        world.leave((member, None))
        return world, member, 2
    world.new_id()
    ticket = world.join(member)
    if state is PREPARING:
        return world, member, 1
    world.advance(10_000)
    assert world.joined(ticket).generation_id == 2
    return world, member, 2


@pytest.mark.parametrize(
    ("state", "heartbeat", "sync", "commit", "delete"),
    [
        (
            EMPTY,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
        ),
        (
            PREPARING,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.NONE,
            ErrorCode.NON_EMPTY_GROUP,
        ),
        (
            COMPLETING,
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.NON_EMPTY_GROUP,
        ),
        (STABLE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP),
    ],
)
def test_member_requests_have_fixed_result_in_each_state(
    state: GroupState,
    heartbeat: ErrorCode,
    sync: ErrorCode,
    commit: ErrorCode,
    delete: ErrorCode,
) -> None:
    world, member, generation = group_in(state)
    assert world.state() is state
    assert world.heartbeat(member, generation) is heartbeat
    ticket = world.commit({("a", 0): 1}, member_id=member, generation=generation)
    assert world.commit_codes(ticket) == {commit}
    assert world.delete_group() is delete
    if state is not EMPTY:
        assert world.code(world.sync(member, generation, {})) is sync


@pytest.mark.parametrize("state", [EMPTY, PREPARING, COMPLETING, STABLE])
def test_outsiders_commit_only_to_empty_groups(state: GroupState) -> None:
    world, _, _ = group_in(state)
    expected = ErrorCode.NONE if state is EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit_codes(world.commit({("a", 0): 1})) == {expected}


def test_a_group_that_contradicts_itself_is_named() -> None:
    world, _, _ = group_in(STABLE)
    world.group().members.clear()
    with pytest.raises(InvariantViolated, match="group g: Stable without members"):
        world.shard.validate()


def test_a_group_of_another_type_does_not_live_here() -> None:
    """Its offsets from its time as a classic group do not expire here. Unknown records are
    skipped."""
    metadata = GroupMetadata("consumer", 1, None, None, WALL_EPOCH_MS)
    log = [
        encode_record(GroupRecord(GROUP, metadata)),
        (b"\x00\x03\x00\x01g", b"\x00\x00anything"),
        (b"\x00\x63abc", b"xyz"),
    ]
    world = ShardWorld(log=log)
    assert GROUP in world.shard.appended.groups and GROUP not in world.shard.core.groups
    world.expire()
    assert GROUP in world.shard.appended.groups
