"""Windows on a log: the parts given to fetches, and the order of eviction."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from broker.tiering.windows import KeptWindows, Place, Stream, Window, window_of
from protocol.batch.header import iter_batches
from protocol.batch.records import Record, build_batch
from storage.log.indexes import AbortedTxn
from storage.tiered.batches import MARKED_BYTES, own_batches

END = Place(b"segment", 7)
STREAM = Stream(b"topic", 0, committed=False)
LOG: Any = SimpleNamespace()


def log_of(rng: random.Random, batches: int) -> bytes:
    """Return batches of one to three records of any size, with gaps."""
    data, offset = b"", 100
    for _ in range(batches):
        count = rng.randrange(1, 4)
        size = rng.choice((0, 10, 500, 20_000))
        records = [Record(at, 1, None, rng.randbytes(size)) for at in range(count)]
        data += build_batch(records, offset, leader_epoch=3)
        offset += count + rng.choice((0, 0, 5))
    return data


def walked(data: bytes, offset: int, max_bytes: int) -> tuple[int, int, int] | None:
    """Walk a log without marks. Returns: start, end, last offset of each batch."""
    start, end, last = -1, -1, -1
    for header, at in iter_batches(data):
        if header.last_offset < offset:
            continue
        if start < 0:
            start = at
        elif at + header.size_bytes - start > max_bytes:
            break
        end, last = at + header.size_bytes, header.last_offset
    return None if start < 0 else (start, end, last)


def test_a_cut_is_what_a_walk_from_the_beginning_finds() -> None:
    rng = random.Random(1)
    for batches in (1, 3, 200):
        data = log_of(rng, batches)
        checked = own_batches(data)
        assert len(checked.marks) <= len(data) / MARKED_BYTES
        for _ in range(100):
            begin = rng.randrange(95, checked.next_offset)
            window = window_of(data, checked, begin, END)
            assert window is not None
            assert (window.last_offset, window.last_epoch) == (checked.next_offset - 1, 3)
            assert window.end is END
            offset = rng.randrange(begin, checked.next_offset)
            limit = rng.choice((-1, 0, 61, 1_000, MARKED_BYTES, 50_000, 1 << 20, 1 << 31))
            expected, cut = walked(data, offset, limit), window.cut(offset, limit)
            assert expected is not None
            assert cut is not None
            start, end, last_offset = expected
            assert (bytes(cut.records), cut.last_offset) == (data[start:end], last_offset)
        assert window_of(data, checked, checked.next_offset, END) is None


def test_batches_behind_the_last_whole_one_are_not_there() -> None:
    data = log_of(random.Random(2), 20)
    window = window_of(data[:-1], own_batches(data[:-1]), 100, END)
    assert window is not None
    *_, (last, at) = iter_batches(data)
    assert window.last_offset < last.base_offset
    assert len(window.records) == at
    assert window.cut(last.base_offset, 100) is None


def test_aborted_transactions_are_those_that_overlap_the_cut() -> None:
    """A transaction that ended before the part must be omitted: a consumer would wait for its
    marker."""
    data = b"".join(build_batch([Record(0, 1, None, b"a")], at) for at in range(10))
    aborted = tuple(AbortedTxn(7, at, at + 1, 0) for at in range(9))
    made = window_of(data, own_batches(data), 0, END)
    assert made is not None
    window = Window(
        records=made.records, first_offset=0, last_offset=9, last_epoch=0, held_bytes=1, end=END,
        aborted=aborted,
    )  # fmt: skip
    size = len(data) // 10
    cut = window.cut(4, 2 * size)
    assert cut is not None
    assert [one.first_offset for one in cut.aborted] == [3, 4, 5]


def window(first: int, last: int, held_bytes: int = 10) -> Window:
    return Window(
        records=b"", first_offset=first, last_offset=last, last_epoch=0, held_bytes=held_bytes,
        end=END,
    )  # fmt: skip


def test_kept_window_is_found_by_each_of_its_offsets() -> None:
    kept = KeptWindows()
    first, second = window(0, 9), window(10, 19)
    for one in (second, first):
        kept.add(STREAM, LOG, one, 0.0)
    assert [kept.find(STREAM, LOG, offset) for offset in (0, 9, 10, 19, 20)] == [
        *(first, first, second, second, None)
    ]
    assert kept.find(STREAM._replace(committed=True), LOG, 5) is None
    assert kept.find(STREAM, SimpleNamespace(), 5) is None  # type: ignore[arg-type]
    kept.remove(first)
    kept.remove(first)
    assert kept.find(STREAM, LOG, 5) is None
    assert (len(kept), kept.bytes, kept.unread_bytes) == (1, 10, 10)


def test_those_that_were_read_to_the_end_go_first_and_then_the_oldest() -> None:
    kept = KeptWindows()
    windows = [window(at, at) for at in range(4)]
    for at, one in enumerate(windows):
        kept.add(STREAM, LOG, one, float(at))
    kept.spend(windows[2], 4.0)
    kept.spend(windows[2], 5.0)
    assert (kept.bytes, kept.unread_bytes) == (40, 30)
    kept.remove_one()
    kept.remove_one()
    assert [kept.find(STREAM, LOG, at) for at in range(4)] == [None, windows[1], None, windows[3]]
    kept.remove_older(1.0)
    assert [kept.find(STREAM, LOG, at) for at in range(4)] == [None, None, None, windows[3]]
    kept.remove_one()
    assert (len(kept), kept.bytes, kept.unread_bytes) == (0, 0, 0)


def test_windows_with_equal_begins_are_distinct() -> None:
    kept = KeptWindows()
    short, long = window(0, 4), window(0, 9)
    kept.add(STREAM, LOG, short, 0.0)
    kept.add(STREAM, LOG, long, 0.0)
    kept.remove(short)
    assert kept.find(STREAM, LOG, 9) is long
    kept.remove(long)
    assert not kept
