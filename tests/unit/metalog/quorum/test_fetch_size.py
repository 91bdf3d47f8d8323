"""A fetch response with many small batches does not hold the event loop."""

from __future__ import annotations

from metalog.quorum.fetch_size import BATCHES_MAX, FetchSize, size_of_first
from protocol.batch import Record, build_batch

BATCH = build_batch([Record(timestamp=1, value=b"x")])
MOST = 1 << 20


def test_size_of_first_counts_whole_batches() -> None:
    assert size_of_first(BATCH * 5, 3) == 3 * len(BATCH)
    assert size_of_first(BATCH * 3, 3) == 3 * len(BATCH)
    assert size_of_first(BATCH * 2 + BATCH[:-1], 2) == 2 * len(BATCH)


def test_size_of_first_leaves_truncated_and_broken_batches_to_the_check() -> None:
    truncated = BATCH * 2 + BATCH[:-1]
    assert size_of_first(truncated, 3) == len(truncated)
    assert size_of_first(BATCH + b"\0" * 100, 3) == len(BATCH) + 100
    assert size_of_first(BATCH + b"\xff" * 100, 3) == len(BATCH) + 100
    assert size_of_first(b"", 3) == 0


def test_response_of_many_batches_is_cut_and_the_next_fetch_requests_as_much() -> None:
    size = FetchSize(MOST)
    assert size.wanted_bytes == MOST
    first = size.cut(BATCH * (BATCHES_MAX * 2))
    assert bytes(first) == BATCH * BATCHES_MAX
    assert size.wanted_bytes == BATCHES_MAX * len(BATCH)


def test_fetches_grow_again_to_their_limit() -> None:
    size = FetchSize(MOST)
    size.cut(BATCH * (BATCHES_MAX + 1))
    small = size.wanted_bytes
    assert size.cut(BATCH) == BATCH
    assert size.wanted_bytes == 2 * small
    for _ in range(10):
        size.cut(BATCH * BATCHES_MAX)
    assert size.wanted_bytes == MOST
