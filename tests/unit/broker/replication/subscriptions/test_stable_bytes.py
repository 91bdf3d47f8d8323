"""Bytes that a move of the last stable offset makes readable (T5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.replication.subscriptions import stable_bytes
from broker.replication.subscriptions.stable_bytes import StableBytes


def test_bytes_behind_a_standing_last_stable_offset_are_counted_when_it_moves() -> None:
    counter = StableBytes()
    counter.stable_offset = 5
    assert counter.moved(8, 30, 5) is None
    assert counter.moved(9, 10, 5) is None
    assert bool(counter)
    assert counter.moved(11, 20, 11) == 60
    assert not counter


def test_part_that_is_stable_up_to_its_middle_is_counted_whole_each_time() -> None:
    """The count must not be too low, or a fetch would wait for its deadline."""
    counter = StableBytes()
    assert counter.moved(10, 100, 0) is None
    assert counter.moved(20, 50, 4) == 100
    assert counter.moved(21, 1, 10) == 100
    assert counter.moved(22, 1, 12) == 50
    assert counter.moved(23, 1, 23) == 53


def test_cleared_counter_has_no_bytes() -> None:
    counter = StableBytes()
    counter.moved(10, 100, 0)
    counter.clear()
    assert counter.moved(12, 7, 12) == 7


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 99), st.sampled_from([0, 0, 0, 2, 99])),
        max_size=60,
    ),
    st.integers(2, 6),
)
def test_counted_bytes_are_never_fewer_than_those_that_became_stable(
    moves: list[tuple[int, int, int]], parts_max: int
) -> None:
    """Each offset has `size` bytes; at most `parts_max` parts are kept."""
    was = stable_bytes.PARTS_MAX
    stable_bytes.PARTS_MAX = parts_max  # type: ignore[misc]
    try:
        counter, sizes = StableBytes(), []
        high_watermark = stable = 0
        for offsets, size, ahead in moves:
            sizes += [size] * offsets
            high_watermark += offsets
            before, stable = stable, min(high_watermark, stable + ahead)
            counted = counter.moved(high_watermark, size * offsets, stable)
            assert (counted is None) is (before == stable)
            if counted is not None:
                assert counted >= sum(sizes[before:stable])
            assert len(counter._parts) <= parts_max
    finally:
        stable_bytes.PARTS_MAX = was  # type: ignore[misc]
