"""Garbage collection: long-lived objects are scanned once, and dead cycles are freed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runtime.collector import LOOK_EVERY_S, Collector, spared

OBJECTS = 800_000
FULL_GENERATION_MAX = 120_000
"""More than seven hundred times ten times ten, the objects that the younger generations hold."""


class Knot:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@contextmanager
def _full_collections() -> Iterator[list[int]]:
    """Yield a list of the numbers of objects that full collections scan."""
    looked_at: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looked_at.append(len(gc.get_objects()))

    gc.callbacks.insert(0, count)
    try:
        yield looked_at
    finally:
        gc.callbacks.remove(count)


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    collector.start()
    collector.settle()
    yield collector
    collector.stop()


def test_a_full_collection_looks_only_at_what_is_new(collector: Collector) -> None:
    held: list[list[list[int]]] = []
    with _full_collections() as looked_at:
        for _ in range(OBJECTS // 2):
            held.append([[1]])
    # The first one comes when there is a quarter as much as the process held before.
    assert len(looked_at) >= 3
    assert max(looked_at[1:]) < FULL_GENERATION_MAX


def test_the_end_of_a_start_does_not_look_at_all_that_was_made(collector: Collector) -> None:
    held = [[[1]] for _ in range(OBJECTS // 2)]
    with _full_collections() as looked_at:
        collector.settle()
    assert len(held) == OBJECTS // 2
    assert [count < FULL_GENERATION_MAX for count in looked_at] == [True]


def test_frozen_object_without_cycles_is_freed_at_once(collector: Collector) -> None:
    class Plain:
        pass

    plain = Plain()
    gc.collect()
    gone = weakref.ref(plain)
    del plain
    assert gone() is None


def test_frozen_cycles_that_died_go_when_much_more_is_frozen(collector: Collector) -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    gc.collect()
    del knot
    gc.collect()
    assert gone() is not None
    assert not collector.look()
    held = [[] for _ in range(gc.get_freeze_count())]
    gc.collect()
    assert collector.look()
    assert gone() is None
    assert not collector.look()
    del held


def test_spared_objects_are_in_no_collection(collector: Collector) -> None:
    """Elements of a large request live through many collections; none visits them."""
    with spared():
        made = [[number] for number in range(1_000)]
    assert len(made) == 1_000
    known = set(map(id, gc.get_objects()))
    assert not known & set(map(id, made))
    assert gc.isenabled()


def test_spared_objects_die_with_their_last_reference(collector: Collector) -> None:
    class Element:
        pass

    with spared():
        made = Element()
    gone = weakref.ref(made)
    del made
    assert gone() is None


def test_young_garbage_is_not_frozen_with_spared_objects(collector: Collector) -> None:
    """A cycle that was dead before would stay in memory until the next `look`."""
    knot = Knot()
    gone = weakref.ref(knot)
    del knot
    with spared():
        assert gone() is None


def test_spared_without_collector_freezes_nothing() -> None:
    """A client runs in a process of others, whose garbage would stay in memory."""
    frozen = gc.get_freeze_count()
    with spared():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


@pytest.mark.parametrize("started", [True, False])
def test_spared_leaves_disabled_collections_disabled(started: bool) -> None:
    collector = Collector()
    if started:
        collector.start()
    gc.disable()
    try:
        with spared():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        if started:
            collector.stop()


def test_cycles_frozen_by_spared_go_at_the_next_look_while_sparing(collector: Collector) -> None:
    """An hour of large requests would otherwise keep the cycles of each: 40 MiB a minute."""
    knots = [Knot() for _ in range(gc.get_freeze_count())]
    gone = weakref.ref(knots[0])
    with spared():
        pass
    del knots
    assert collector.passed(30.0)
    assert gone() is None
    assert not collector.passed(30.0), "nothing was spared since"
    assert collector.passed(LOOK_EVERY_S), "an hour has passed"
