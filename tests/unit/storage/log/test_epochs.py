"""The leader-epoch cache, compared with a deliberately simple second implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.epochs import EpochCache

steps = st.lists(
    st.tuples(
        st.sampled_from(["assign", "from end", "from start"]),
        st.integers(0, 12),
        st.integers(0, 30),
    ),
    max_size=25,
)


class Dumb:
    """A map from each offset below 60 to its epoch, None where unknown."""

    def __init__(self):
        self.entries = []

    def assign(self, epoch, start):
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start:
            return
        self.entries = [(e, s) for e, s in self.entries if e < epoch and s < start]
        self.entries.append((epoch, start))

    def from_end(self, end):
        self.entries = [(e, s) for e, s in self.entries if s < end]

    def from_start(self, start):
        before = [entry for entry in self.entries if entry[1] <= start]
        after = [entry for entry in self.entries if entry[1] > start]
        self.entries = [(before[-1][0], start), *after] if before else after


@given(steps)
def test_epoch_cache_equals_a_naive_model(actions):
    cache, dumb = EpochCache(), Dumb()
    for kind, epoch, offset in actions:
        before = cache.entries
        changes = cache.changes
        if kind == "assign":
            assert cache.assign(epoch, offset) == (cache.entries != before)
            dumb.assign(epoch, offset)
        elif kind == "from end":
            assert cache.truncate_from_end(offset) == (cache.entries != before)
            dumb.from_end(offset)
        else:
            assert cache.truncate_from_start(offset, 1000) == (cache.entries != before)
            dumb.from_start(offset)
        assert cache.entries == dumb.entries
        assert (cache.changes != changes) == (cache.entries != before)
    entries = cache.entries
    for earlier, later in zip(entries, entries[1:], strict=False):
        assert earlier.epoch < later.epoch and earlier.start_offset < later.start_offset
    for offset in range(35):
        known = [epoch for epoch, start in entries if start <= offset]
        assert cache.epoch_at(offset) == (known[-1] if known else -1)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),  # undefined
        (0, (0, 10)),  # before the first known epoch: it ends where that begins
        (2, (2, 20)),
        (3, (2, 20)),  # unknown: the largest one below
        (5, (5, 30)),
        (8, (8, 44)),  # the latest ends at the log end
        (9, (-1, -1)),  # from the future
    ],
)
def test_end_offsets(asked, answer):
    cache = EpochCache([(2, 10), (5, 20), (8, 30)])
    assert cache.end_offset_for(asked, 44) == answer


def test_the_epoch_of_the_last_batch_stays_when_the_batch_has_gone():
    cache = EpochCache([(2, 10), (5, 20), (8, 30)])  # epoch 8 has no batch
    assert cache.truncate_from_start(30, 30)
    assert cache.entries == [(5, 29), (8, 30)]
    assert cache.epoch_at(29) == 5
    assert not cache.truncate_from_start(30, 30)
    assert [cache.end_offset_for(epoch, 30) for epoch in (2, 5, 8)] == [(2, 29), (5, 30), (8, 30)]
    assert cache.truncate_from_start(30, 40)
    assert cache.entries == [(8, 30)]
    assert not EpochCache().truncate_from_start(0, 0)


def test_nothing_is_known_of_an_empty_cache():
    cache = EpochCache()
    assert cache.end_offset_for(0, 5) == (-1, -1)
    assert (cache.latest_epoch, cache.epoch_at(3), len(cache)) == (-1, -1, 0)
    assert not cache.dirty


def test_undefined_values_are_not_entries():
    cache = EpochCache()
    assert not cache.assign(-1, 5)
    assert not cache.assign(3, -1)
    assert cache.entries == []


def test_saving_is_noted():
    cache = EpochCache()
    cache.assign(1, 0)
    assert cache.dirty
    cache.saved = cache.changes
    assert not cache.dirty
    cache.assign(1, 5)
    assert not cache.dirty
    cache.clear()
    assert cache.dirty
