"""Cleaning plans: the log to clean, its range, and groups of segments."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from storage.log.cleaning.plan import (
    MAX_RELATIVE_OFFSET,
    DirtyRange,
    Weight,
    dirty_range,
    first_dirty_offset,
    grouped,
    weigh,
)
from storage.log.cleaning.throttle import Throttle
from storage.log.config import LogConfig

NOW = 1_000_000


@dataclass
class Piece:
    base_offset: int
    size_bytes: int = 100
    index_bytes: int = 0
    time_index_bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def largest_timestamp_ms(self) -> int:
        return self.last_ms

    def first_timestamp_ms(self) -> int:
        return self.first_ms


def config(**values: object) -> LogConfig:
    return LogConfig(cleanup_policy="compact", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [(None, 10), (5, 10), (10, 10), (30, 30), (50, 50), (51, 10)],
)
def test_a_checkpoint_outside_the_log_counts_for_nothing(checkpoint, expected):
    assert first_dirty_offset(checkpoint, 10, 50) == expected


@pytest.mark.parametrize(
    ("limit", "end"), [(0, 0), (9, 0), (10, 10), (19, 10), (20, 20), (1000, 20)]
)
def test_only_whole_closed_segments_below_the_limit_are_cleaned(limit, end):
    pieces = [Piece(0), Piece(10), Piece(20)]
    assert dirty_range(pieces, config(), NOW, first_dirty=0, limit=limit) == (0, end)


def test_records_younger_than_the_minimum_lag_wait():
    pieces = [Piece(0, last_ms=NOW), Piece(10, last_ms=NOW - 200), Piece(20, last_ms=NOW - 50)]
    pieces.append(Piece(30))
    lagging = config(min_compaction_lag_ms=100)
    # The age of a segment that is already clean does not matter.
    assert dirty_range(pieces, lagging, NOW, first_dirty=10, limit=99) == (10, 20)
    assert dirty_range(pieces, lagging, NOW, first_dirty=0, limit=99) == (0, 0)


def test_dirty_bytes_are_weighed_against_all_that_is_read():
    pieces = [Piece(0, 300), Piece(10, 100), Piece(20, 999)]
    weight = weigh(pieces, config(), NOW, DirtyRange(10, 20))
    assert (weight.clean_bytes, weight.cleanable_bytes, weight.ratio) == (300, 100, 0.25)
    assert not weight.is_due(0.25) and weight.is_due(0.24)


def test_nothing_to_clean_is_never_due():
    assert not Weight(100, 0, 5_000).is_due(0.0)
    assert Weight(0, 0, 0).ratio == 0.0


def test_the_maximum_lag_makes_a_log_due_whatever_its_ratio():
    pieces = [Piece(0, 10_000, first_ms=1), Piece(10, 1, first_ms=NOW - 500), Piece(20)]
    late = weigh(pieces, config(max_compaction_lag_ms=200), NOW, DirtyRange(10, 20))
    assert late.delay_ms == 300 and late.is_due(1.0)
    in_time = weigh(pieces, config(max_compaction_lag_ms=600), NOW, DirtyRange(10, 20))
    assert in_time.delay_ms == 0 and not in_time.is_due(0.5)


def bases(groups: list[list[Piece]]) -> list[list[int]]:
    return [[piece.base_offset for piece in group] for group in groups]


def test_neighbours_are_grouped_up_to_the_size_of_a_segment():
    pieces = [Piece(at, 40) for at in (0, 10, 20, 30, 40)]
    assert bases(grouped(pieces, 50, segment_bytes=100, index_bytes=99)) == [
        [0, 10],
        [20, 30],
        [40],
    ]


@pytest.mark.parametrize("index", ["index_bytes", "time_index_bytes"])
def test_groups_do_not_outgrow_an_index(index):
    pieces = [Piece(at, 1, **{index: 6}) for at in (0, 10, 20)]
    assert bases(grouped(pieces, 30, segment_bytes=999, index_bytes=12)) == [[0, 10], [20]]


def test_groups_do_not_outgrow_a_relative_offset():
    far = MAX_RELATIVE_OFFSET + 1
    pieces = [Piece(0), Piece(10), Piece(far)]
    assert bases(grouped(pieces, far + 10, segment_bytes=999, index_bytes=9)) == [[0, 10], [far]]
    pieces = [Piece(0), Piece(10), Piece(far, 0)]
    empty_last = grouped(pieces, far + 10, segment_bytes=999, index_bytes=9)
    assert bases(empty_last) == [[0, 10, far]], "an empty segment has no offset to be out of reach"


def test_no_segments_make_no_group():
    assert grouped([], 5, segment_bytes=1, index_bytes=1) == []


def test_a_throttle_rests_until_the_rate_is_met():
    throttle = Throttle(1000.0)
    assert throttle.rest_ms(500, 0.0) == 500.0
    assert throttle.rest_ms(500, 800.0) == 200.0
    assert throttle.rest_ms(10, 5000.0) == 0.0
