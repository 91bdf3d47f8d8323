"""Garbage collection: long-lived objects are scanned once, and dead cycles are freed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runtime.collector import Collector, collect_young, postpone_full, resume_full

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


def test_postponed_full_collections_come_again_after_the_last_reason(collector: Collector) -> None:
    usual = gc.get_threshold()
    with _full_collections() as looked_at:
        postpone_full()
        postpone_full()
        held = [[[1]] for _ in range(OBJECTS // 2)]
        resume_full()
        assert not looked_at
        resume_full()
        held += [[[1]] for _ in range(OBJECTS // 2)]
        assert looked_at
    assert len(held) == OBJECTS
    assert gc.get_threshold() == usual


def test_postponed_full_collections_are_rare_but_do_not_stop(collector: Collector) -> None:
    """A request may be served for hours."""
    postpone_full()
    try:
        with _full_collections() as looked_at:
            for _ in range(2_500):
                collect_young()
            gc.collect(0)
            held = [[[1]] for _ in range(OBJECTS // 2)]
        assert looked_at
        assert held
    finally:
        resume_full()


def test_stopped_collector_ends_the_postponement(collector: Collector) -> None:
    usual = gc.get_threshold()
    postpone_full()
    assert gc.get_threshold() != usual
    collector.stop()
    assert gc.get_threshold() == usual
    resume_full()
    collector.start()


def test_postponement_without_a_collector_changes_nothing() -> None:
    usual = gc.get_threshold()
    postpone_full()
    assert gc.get_threshold() == usual
    resume_full()


def test_collected_young_objects_are_visited_again_by_full_collections_alone(
    collector: Collector,
) -> None:
    held = [[[1]] for _ in range(1_000)]
    collect_young()
    young = {id(one) for generation in (0, 1) for one in gc.get_objects(generation=generation)}
    assert young.isdisjoint(map(id, held))
