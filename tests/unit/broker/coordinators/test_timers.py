"""Timers that move far more often than they fire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.group.timers import AGAIN_MS_MIN, TimerKey, TimerKind, Timers


def key(name: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, "g", name)


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


def test_what_is_set_while_a_timer_is_served_is_due_later() -> None:
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
