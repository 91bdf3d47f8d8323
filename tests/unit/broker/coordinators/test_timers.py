"""Timers that move far more often than they expire, each bound to the object that set it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.states import GroupState
from broker.coordinators.group.timers import (
    AGAIN_MS_MIN,
    TIMER_STATES,
    TimerKey,
    TimerKind,
    Timers,
)
from protocol.errors import ErrorCode
from testkit.memory.group_shard import GROUP, SESSION_MS, ShardWorld


def key(name: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, "g", 1, name)


def test_a_moved_timer_fires_once_at_its_last_deadline() -> None:
    timers = Timers()
    for deadline_ms in (10.0, 20.0, 5.0, 30.0):
        timers.set(key("m"), deadline_ms)
    assert timers.next_deadline_ms() == 5.0
    assert timers.pop_due(29.9) is None
    assert timers.next_deadline_ms() == 30.0
    assert timers.pop_due(30.0) == key("m")
    assert timers.pop_due(1e9) is None
    assert timers.next_deadline_ms() is None


def test_a_cancelled_timer_does_not_fire() -> None:
    timers = Timers()
    timers.set(key("m"), 10.0)
    timers.cancel(key("m"))
    timers.cancel(key("never"))
    assert timers.pop_due(100.0) is None
    timers.set(key("m"), 20.0)
    assert timers.pop_due(20.0) == key("m")


def test_timer_set_while_serving_is_due_later() -> None:
    timers = Timers()
    timers.set(key("m"), 5.0)
    assert timers.pop_due(5.0) == key("m")
    with timers.serving(5.0):
        timers.set(key("m"), 5.0)
        timers.set(key("n"), -7.0)
    assert timers.pop_due(5.0) is None
    assert timers.next_deadline_ms() == 5.0 + AGAIN_MS_MIN
    timers.set(key("o"), 5.0)
    assert timers.pop_due(5.0) == key("o")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "cancel", "pop"]),
            st.sampled_from("abc"),
            st.integers(0, 50),
        ),
        max_size=60,
    )
)
def test_like_a_plain_dictionary(steps: list[tuple[str, str, int]]) -> None:
    timers = Timers()
    model: dict[TimerKey, float] = {}
    now_ms = 0.0
    for what, name, value in steps:
        if what == "set":
            timers.set(key(name), now_ms + value)
            model[key(name)] = now_ms + value
        elif what == "cancel":
            timers.cancel(key(name))
            model.pop(key(name), None)
        else:
            now_ms += value
            fired = set()
            while (due := timers.pop_due(now_ms)) is not None:
                assert due not in fired
                fired.add(due)
            assert fired == {each for each, at_ms in model.items() if at_ms <= now_ms}
            model = {each: at_ms for each, at_ms in model.items() if at_ms > now_ms}
        assert len(timers) == len(model)
        if model:
            next_ms = timers.next_deadline_ms()
            assert next_ms is not None and next_ms <= min(model.values())


def in_state(state: GroupState) -> ShardWorld:
    """Return a world with its group in `state`; in Empty it has a record."""
    world = ShardWorld()
    (member,) = world.stable_group()
    if state is GroupState.EMPTY:
        world.leave((member, None))
    elif state is not GroupState.STABLE:
        world.new_id()
        rejoin = world.join(member)
        if state is GroupState.COMPLETING_REBALANCE:
            world.leave(*((one, None) for one in list(world.group().pending)))
            assert world.joined(rejoin).generation_id == 2
    assert world.state() is state
    return world


@pytest.mark.parametrize("state", [each for each in GroupState if each is not GroupState.DEAD])
@pytest.mark.parametrize("kind", list(TimerKind))
def test_timer_of_another_group_object_changes_nothing(kind: TimerKind, state: GroupState) -> None:
    """G8: a timer belongs to the group object that set it, not to a later group of the same
    name."""
    world = in_state(state)
    group = world.group()
    before = group.persisted(), group.state, set(group.pending)
    for member_id in ["", *group.members, *group.pending]:
        world.shard.core.timers.set(
            TimerKey(kind, GROUP, group.incarnation - 1, member_id), float(world.now_ms)
        )
    while (decision := world.shard.on_deadline(world.now)) is not None:
        assert not decision.records
        assert not decision.answers
        world.run(decision)
    assert (group.persisted(), group.state, set(group.pending)) == before


@pytest.mark.parametrize("state", [each for each in GroupState if each is not GroupState.DEAD])
@pytest.mark.parametrize("kind", list(TimerKind))
def test_timer_outside_its_states_changes_nothing(kind: TimerKind, state: GroupState) -> None:
    """G8: a timer belongs to the state that set it."""
    if state in TIMER_STATES[kind]:
        return
    world = in_state(state)
    group = world.group()
    before = group.persisted(), group.state
    world.shard.core.timers.set(TimerKey(kind, GROUP, group.incarnation, ""), float(world.now_ms))
    decision = world.shard.on_deadline(world.now)
    assert decision is not None
    assert (decision.records, decision.answers) == ([], [])
    assert (group.persisted(), group.state) == before


def test_dropped_group_leaves_no_timer() -> None:
    world = ShardWorld()
    (member,) = world.stable_group()
    world.leave((member, None))
    world.new_id()
    assert len(world.shard.core.timers) == 1
    assert world.delete_group() is ErrorCode.NONE
    assert len(world.shard.core.timers) == 0


def test_state_change_cancels_the_timers_of_the_phase_before() -> None:
    world = in_state(GroupState.PREPARING_REBALANCE)
    timers = world.shard.core.timers
    of_group = {kind: TimerKey(kind, GROUP, world.group().incarnation, "") for kind in TimerKind}
    assert of_group[TimerKind.JOIN] in timers
    assert of_group[TimerKind.SYNC] not in timers
    world = in_state(GroupState.COMPLETING_REBALANCE)
    timers = world.shard.core.timers
    assert of_group[TimerKind.JOIN] not in timers
    assert of_group[TimerKind.SYNC] in timers


def test_join_timer_of_a_dropped_group_spares_its_namesake() -> None:
    """Regression: five ordinary requests ended the node with InvalidTransition."""
    world = ShardWorld(GroupConfig(initial_rebalance_delay_ms=3_000))
    member = world.new_id()
    waiting = world.join(member)
    world.leave((member, None))
    assert world.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.code(world.join(member)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert GROUP not in world.shard.core.groups
    assert len(world.shard.core.timers) == 0
    later = world.new_id()
    world.advance(3_000)
    assert world.group().pending == {later}
    world.advance(SESSION_MS)
    assert not world.shard.core.groups
