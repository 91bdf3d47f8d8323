"""Shrinking of schedules that are not run: the result is small, and breaks the same promise."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.replication.partition import high_watermark
from broker.replication.partition.effects import NOTHING, Effects
from broker.replication.partition.high_watermark import (
    high_watermark_moved,
)
from broker.replication.partition.partition import Partition
from simulation import find
from simulation.command import Options, main
from simulation.schedule import TROUBLE_MS_MAX, Schedule, draw_schedule
from simulation.shapes.shape import BadShape
from simulation.shrink import (
    STEADY_DISK,
    STEADY_LINK,
    TRIES_MAX,
    Play,
    Shrunk,
    Verdict,
    is_sound,
    shrink,
)

pytestmark = pytest.mark.sim

LARGE = next(
    seed
    for seed, one in enumerate(map(draw_schedule, range(200)))
    if len(one.events) > 4 and len(one.shape.clients) > 2 and len(one.shape.nodes) > 2
)
"""A seed with many events, clients and nodes."""
QUICK = 7
"""A seed whose run is short."""


def breaks_if(holds: Callable[[Schedule], bool], code: str = "P4") -> Play:
    return lambda schedule, _ends_ms: Verdict(code, 1e9) if holds(schedule) else None


def smallest(schedule: Schedule, play: Play) -> Shrunk:
    found = shrink(schedule, play)
    assert found is not None
    return found


def test_shrink_removes_everything_unneeded() -> None:
    found = smallest(draw_schedule(LARGE), breaks_if(lambda _one: True)).schedule
    shape = found.shape
    assert (found.events, found.quiet_from_ms, shape.faults) == ((), 0, {})
    assert len(shape.controllers) == len(shape.brokers) == 1
    assert len(shape.clients) == len(shape.topics) == 1
    assert (shape.topics[0].partitions, shape.topics[0].replication_factor) == (1, 1)
    assert shape.topics[0].configs == {} and not shape.elr
    assert all((one.settings, one.rack, one.link) == ({}, None, None) for one in shape.nodes)
    assert (shape.link, shape.disk) == (STEADY_LINK, STEADY_DISK)


def test_shrink_keeps_events_that_are_needed_together() -> None:
    drawn = draw_schedule(LARGE)
    needed = {drawn.events[1].name, drawn.events[-1].name}
    play = breaks_if(lambda one: needed <= {event.name for event in one.events})
    found = smallest(drawn, play).schedule
    assert {one.name for one in found.events} == needed
    assert found.quiet_from_ms < drawn.quiet_from_ms


def test_another_promise_does_not_count() -> None:
    drawn = draw_schedule(LARGE)

    def play(one: Schedule, _ends_ms: float) -> Verdict:
        return Verdict("P4" if len(one.events) > 3 else "P26", 1e9)

    found = smallest(drawn, play)
    assert (len(found.schedule.events), found.verdict.code) == (4, "P4")


def test_shrink_first_removes_events_after_the_break() -> None:
    drawn = replace(draw_schedule(LARGE), quiet_from_ms=TROUBLE_MS_MAX)
    late = drawn.events[0].at_ms
    played: list[Schedule] = []

    def play(one: Schedule, _ends_ms: float) -> Verdict:
        played.append(one)
        return Verdict("P4", late)

    shrink(drawn, play)
    assert all(event.at_ms <= late for event in played[1].events)
    ends = max(event.at_ms + event.for_ms for event in played[1].events)
    assert played[2].quiet_from_ms == ends < drawn.quiet_from_ms


def test_shrink_limits_a_try_to_the_time_of_the_last_break() -> None:
    asked: list[float] = []

    def play(_one: Schedule, ends_ms: float) -> Verdict:
        asked.append(ends_ms)
        return Verdict("P4", 7000.0 - len(asked))

    shrink(draw_schedule(LARGE), play, tries_max=4)
    assert asked == [inf, 6999.0 + 5000.0, 6998.0 + 5000.0, 6997.0 + 5000.0]


def test_a_schedule_that_holds_has_nothing_to_shrink() -> None:
    assert shrink(draw_schedule(LARGE), breaks_if(lambda _one: False)) is None


def test_the_budget_ends_the_search_with_what_is_found() -> None:
    drawn = draw_schedule(LARGE)
    play = breaks_if(lambda _one: True)
    for most in (1, 2, 7):
        found = shrink(drawn, play, tries_max=most)
        assert found is not None and found.tries == most
    found = shrink(drawn, play, may_go_on=lambda: False)
    assert found is not None and (found.tries, found.schedule) == (1, drawn)


def test_a_client_that_is_acknowledged_and_a_place_for_each_fault_stay() -> None:
    drawn = draw_schedule(LARGE)
    clients = tuple(one for one in drawn.shape.clients if one.kind == "acks 1")
    assert not is_sound(replace(drawn, shape=replace(drawn.shape, clients=clients)))
    kind = "swapped disk"  # needs a broker that is not a controller, and another broker
    swapped = next(
        one for one in map(draw_schedule, range(90)) if any(e.kind == kind for e in one.events)
    )
    found = smallest(swapped, breaks_if(lambda one: any(e.kind == kind for e in one.events)))
    nodes = found.schedule.shape.nodes
    assert len(nodes) == 3 and sum(not one.controls for one in nodes) == 2


@given(st.integers(0, 2**31), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_shrunk_schedule_is_valid_and_breaks_for_any_seed(seed: int, salt: int) -> None:
    """This holds for any deterministic rule: here a pseudo-random one."""
    drawn = draw_schedule(seed)

    def rule(one: Schedule) -> bool:
        return one == drawn or zlib.crc32(f"{salt} {one}".encode()) % 3 > 0

    found = smallest(drawn, breaks_if(rule))
    assert found.tries <= TRIES_MAX
    assert rule(found.schedule)
    assert found.schedule == drawn or is_sound(found.schedule)
    assert len(found.schedule.events) <= len(drawn.events)


# --- finds ----------------------------------------------------------------------------------------


def test_a_find_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = find.Find(draw_schedule(LARGE), "P4", "a follower forgot what it had cut")
    path = tmp_path / "one.json"
    path.write_text(one.text())
    assert find.schedule_of(str(path)) == one.schedule
    with mock.patch.object(find, "FOLDER", tmp_path):
        assert find.names() == ["one"]
        assert find.named("one") == one
        assert find.schedule_of("one") == one.schedule


@pytest.mark.parametrize("text", ["", "[]", "{", '{"promise": "P1"}', '{"version": 1}'])
def test_invalid_find_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(BadShape, match="--schedule"):
        find.schedule_of(str(path))


def test_missing_find_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    with mock.patch.object(find, "FOLDER", tmp_path), pytest.raises(BadShape, match="none yet"):
        find.schedule_of("nothing")


# --- the command ----------------------------------------------------------------------------------


def _shows_all_it_has(partition: Partition) -> Effects:
    """Let a leader not wait for its followers."""
    log = partition.log
    if log.log_end_offset <= log.high_watermark:
        return NOTHING
    log.update_high_watermark(log.log_end_offset)
    return high_watermark_moved(partition, log.log_end_offset)


def test_a_failing_seed_is_shrunken_and_played_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.json"
    with mock.patch.object(high_watermark, "maybe_advance_high_watermark", _shows_all_it_has):
        assert main(Options(seed=QUICK, shrink=True, out=path)) == 1
        (told,) = capsys.readouterr().out.splitlines()
        assert main(Options(schedule=str(path))) == 1
        assert "BROKEN P12" in capsys.readouterr().out
    assert told.startswith("P12 with 0 events, 1 client, ")
    assert told.endswith(f"kraftbox sim --schedule '{path}'")
    assert json.loads(path.read_text())["promise"] == "P12"
    assert main(Options(schedule=str(path))) == 0


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, named in (
        (Options(shrink=True), "--seed or --schedule"),
        (Options(seed=1, runs=2, shrink=True), "--runs"),
        (Options(seed=1, out=tmp_path / "x"), "--out"),
        (Options(schedule="x", minutes=1), "--minutes"),
    ):
        assert main(wrong) == 2
        assert named in capsys.readouterr().err
