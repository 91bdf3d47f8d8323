"""Sparse indexes: Kafka's bytes, searches compared with a linear one, truncation, damaged files."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files import MemoryFiles
from storage.log import indexes
from storage.log.indexes import (
    AbortedTxn,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
)

BASE = 1000


def fresh(kind, max_bytes=1 << 20):
    files = MemoryFiles()
    files.mkdirs("/d")
    index = kind(files, "/d/index", BASE, max_bytes)
    index.create()
    return files, index


def reopened(kind, files):
    index = kind(files, "/d/index", BASE, 1 << 20)
    index.load()
    return index


def test_the_bytes_are_kafkas():
    files, index = fresh(OffsetIndex)
    index.append(BASE + 5, 77)
    index.close()
    assert files.read("/d/index") == struct.pack(">ii", 5, 77)
    files, index = fresh(TimeIndex)
    index.maybe_append(123456789012, BASE + 5)
    index.close()
    assert files.read("/d/index") == struct.pack(">qi", 123456789012, 5)


steps = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), max_size=900)


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(0, 900), st.booleans())
def test_offset_lookup_equals_a_linear_search(deltas, written, again):
    files, index = fresh(OffsetIndex)
    entries = []
    offset, position = BASE, 0
    for at, (step, size) in enumerate(deltas):
        offset, position = offset + step, position + size
        index.append(offset, position)
        entries.append((offset, position))
        if at == written:
            index.write_out()
    if again:
        index.close()
        index = reopened(OffsetIndex, files)
    assert index.entries() == entries
    assert index.count == len(entries)
    assert index.last() == (entries[-1] if entries else (BASE, 0))
    for wanted in {
        BASE,
        offset,
        offset + 1,
        *[o for o, _ in entries[::7]],
        *range(BASE, BASE + 50),
    }:
        expected = [entry for entry in entries if entry[0] <= wanted]
        assert index.lookup(wanted) == (expected[-1] if expected else (BASE, 0))


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(0, 900), st.integers(0, 20000))
def test_truncation_keeps_what_is_below(deltas, written, cut):
    files, index = fresh(OffsetIndex)
    entries = []
    offset, position = BASE, 0
    for at, (step, size) in enumerate(deltas):
        offset, position = offset + step, position + size
        index.append(offset, position)
        entries.append((offset, position))
        if at == written:
            index.write_out()
    index.truncate_to(BASE + cut)
    kept = [entry for entry in entries if entry[0] < BASE + cut]
    assert index.entries() == kept
    index.append(BASE + 40000, 1)
    index.close()
    assert reopened(OffsetIndex, files).entries() == [*kept, (BASE + 40000, 1)]


@given(st.lists(st.tuples(st.integers(-1, 50), st.integers(1, 3)), max_size=60))
def test_time_index_holds_rising_times(steps):
    _, index = fresh(TimeIndex)
    offset, highest, expected = BASE, -1, []
    for timestamp, step in steps:
        offset += step
        if timestamp > highest:
            highest = timestamp
            expected.append((timestamp, offset))
        index.maybe_append(timestamp, offset)
    assert index.entries() == expected
    assert index.last() == (expected[-1] if expected else (-1, BASE))
    for wanted in range(-1, 52):
        before = [entry for entry in expected if entry[0] <= wanted]
        assert index.lookup(wanted) == (before[-1] if before else (-1, BASE))
    index.truncate_to(BASE + 20)
    assert index.entries() == [entry for entry in expected if entry[1] < BASE + 20]
    assert index.last() == (index.entries()[-1] if index.count else (-1, BASE))


def test_the_last_time_entry_has_a_place_of_its_own():
    _, index = fresh(TimeIndex, max_bytes=12 * 3)
    for at in range(1, 5):
        index.maybe_append(at, BASE + at)
    assert index.count == 2 and index.is_full
    index.maybe_append(9, BASE + 9, final=True)
    assert index.entries()[-1] == (9, BASE + 9)


def test_fullness():
    _, index = fresh(OffsetIndex, max_bytes=8 * 2 + 7)
    index.append(BASE + 1, 1)
    assert not index.is_full
    index.append(BASE + 2, 2)
    assert index.is_full


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_a_file_cut_at_any_byte_is_whole_entries_or_corrupt(kind):
    files, index = fresh(kind)
    for at in range(1, 6):
        if kind is OffsetIndex:
            index.append(BASE + at, at * 10)
        else:
            index.maybe_append(at, BASE + at)
    index.close()
    whole = files.read("/d/index")
    for end in range(len(whole) + 1):
        file = files.open("/d/index")
        file.truncate(0)
        file.append(whole[:end])
        if end % kind.entry_bytes:
            with pytest.raises(CorruptIndex):
                reopened(kind, files)
        else:
            assert reopened(kind, files).count == end // kind.entry_bytes


def test_impossible_last_entries():
    files, index = fresh(OffsetIndex)
    files.open("/d/index", create=True).append(struct.pack(">ii", -5, 3))
    with pytest.raises(CorruptIndex):
        reopened(OffsetIndex, files)
    files, index = fresh(TimeIndex)
    files.open("/d/index", create=True).append(struct.pack(">qiqi", 9, 1, 3, 2))
    with pytest.raises(CorruptIndex):
        reopened(TimeIndex, files)
    with pytest.raises(FileNotFoundError):
        OffsetIndex(files, "/d/none", 0, 99).load()


def test_transactions():
    files = MemoryFiles()
    files.mkdirs("/d")
    index = TxnIndex(files, "/d/x")
    assert index.entries() == []
    index.truncate_to(5)
    index.reset()
    assert not files.exists("/d/x")
    first, second = AbortedTxn(7, 1, 5, 3), AbortedTxn(8, 2, 9, 10)
    index.append(first)
    index.append(second)
    assert files.read("/d/x")[:34] == struct.pack(">hqqqq", 0, 7, 1, 5, 3)
    index.close()
    index = TxnIndex(files, "/d/x")
    assert index.entries() == [first, second]
    files.open("/d/x").append(b"torn")
    assert index.entries() == [first, second]
    index.truncate_to(9)
    assert index.entries() == [first]
    index.append(second)
    assert TxnIndex(files, "/d/x").entries() == [first, second]
    files.open("/d/x").pwrite(b"\x00\x01", 0)
    with pytest.raises(CorruptIndex):
        index.entries()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_search_after_another_finds_the_same_as_the_first(data):
    """Lookups cache their last entries, and must notice appends and truncations in between."""
    draw = data.draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "_WINDOW_ENTRIES", 4)
        _, index = fresh(OffsetIndex)
        entries = []
        for _ in range(draw(st.integers(1, 30))):
            action = draw(st.sampled_from(["append", "append", "look", "look", "place", "cut"]))
            last, position = entries[-1] if entries else (BASE, 0)
            wanted = draw(st.integers(BASE - 1, last + 3))
            if action == "append":
                for step in draw(st.lists(st.integers(1, 3), max_size=12)):
                    last, position = last + step, position + step
                    index.append(last, position)
                    entries.append((last, position))
            elif action == "look":
                below = [entry for entry in entries if entry[0] <= wanted]
                assert index.lookup(wanted) == (below[-1] if below else (BASE, 0))
            elif action == "place":
                below = [entry for entry in entries if entry[1] <= wanted - BASE]
                assert index.offset_at(wanted - BASE) == (below[-1][0] if below else BASE)
            else:
                index.truncate_to(wanted)
                entries = [entry for entry in entries if entry[0] < wanted]
            assert index.count == len(entries)


class Counted(MemoryFiles):
    """Files that count written bytes."""

    def __init__(self):
        super().__init__()
        self.changes = 0

    def open(self, path, create=False):
        file = super().open(path, create)
        files = self

        class Watched(type(file)):
            __slots__ = ()

            def truncate(self, size_bytes):
                files.changes += 1
                super().truncate(size_bytes)

            def append(self, data):
                files.changes += 1
                return super().append(data)

        file.__class__ = Watched
        return file


@given(st.lists(st.integers(1, 40), max_size=20), st.lists(st.integers(1, 40), max_size=20))
@settings(max_examples=60, deadline=None)
def test_rebuilt_index_is_written_only_if_its_bytes_differ(first, second):
    """A start after a crash rebuilds the index of every partition."""
    files = Counted()
    files.mkdirs("/d")
    for deltas in (first, second, second):
        before = files.read("/d/index") if files.exists("/d/index") else None
        files.changes = 0
        index = OffsetIndex(files, "/d/index", BASE, 1 << 20)
        index.create()
        offset, entries = BASE, []
        for delta in deltas:
            offset += delta
            index.append(offset, offset)
            entries.append((offset, offset))
        assert index.entries() == entries
        assert files.changes == 0
        index.close()
        wanted = b"".join(struct.pack(">ii", at - BASE, at) for at, _ in entries)
        assert files.read("/d/index") == wanted
        assert (files.changes == 0) is (before == wanted or (before is None and not wanted))
        assert reopened(OffsetIndex, files).entries() == entries
