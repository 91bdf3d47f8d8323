"""Lists of aborted transactions for read_committed fetches: content and cost (T5)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch.control import build_end_txn_marker
from protocol.batch.header import iter_batches
from protocol.batch.records import Producer
from storage.files import MemoryFiles
from storage.log import indexes
from storage.log.indexes import TXN_ENTRY_BYTES, AbortedTxn, TxnIndex
from storage.log.log import Log
from storage.log.producers import Origin
from testkit.memory.logs import DIRECTORY, T0, append, batch, make_log

PATH = "/d/0.txnindex"
MANY = 20_000


class CountedFiles(MemoryFiles):
    """Files in memory that count the bytes read and the paths looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.looked_up: list[str] = []

    def seen(self, inode, position, size_bytes):
        self.bytes_read += size_bytes
        return super().seen(inode, position, size_bytes)

    def exists(self, path):
        if path.endswith(".txnindex"):
            self.looked_up.append(path)
        return super().exists(path)


def index_of(txns: Iterable[AbortedTxn], files: MemoryFiles | None = None) -> TxnIndex:
    files = files or MemoryFiles()
    files.mkdirs("/d")
    index = TxnIndex(files, PATH)
    for txn in txns:
        index.append(txn)
    return index


def one_after_another(count: int) -> list[AbortedTxn]:
    return [AbortedTxn(1, 2 * at, 2 * at + 1, 2 * at + 2) for at in range(count)]


def collected(index: TxnIndex, start: int, end: int) -> list[AbortedTxn]:
    found: list[AbortedTxn] = []
    index.collect(start, end, found)
    return found


def overlapping(txns: Iterable[AbortedTxn], start: int, end: int) -> list[AbortedTxn]:
    return [txn for txn in txns if txn.last_offset >= start and txn.first_offset < end]


def drawn(rng: random.Random, count: int) -> list[AbortedTxn]:
    """Draw transactions that overlap each other; some stay open for a long time."""
    open_txns: dict[int, int] = {}
    found: list[AbortedTxn] = []
    offset = 0
    while len(found) < count:
        if len(open_txns) < 3 and rng.random() < 0.6:
            open_txns[offset] = offset
        elif open_txns:
            first = rng.choice([*open_txns][-2:])
            del open_txns[first]
            found.append(AbortedTxn(first, first, offset, min(open_txns, default=offset + 1)))
        offset += 1
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 40), st.integers(1, 7))
def test_txn_index_searched_in_blocks_equals_search_of_all(
    seed: int, count: int, block: int
) -> None:
    rng = random.Random(seed)
    txns = drawn(rng, count)
    was = indexes._BLOCK
    indexes._BLOCK = block
    try:
        index = index_of(txns)
        for _ in range(12):
            start = rng.randrange(0, 60)
            end = start + rng.randrange(0, 40)
            found: list[AbortedTxn] = []
            done = index.collect(start, end, found)
            assert found == overlapping(txns, start, end)
            assert not done or txns[-1].last_stable_offset >= end
            if rng.random() < 0.2 and txns:
                cut = rng.randrange(0, txns[-1].last_offset + 3)
                index.truncate_to(cut)
                txns = [txn for txn in txns if txn.last_offset < cut]
                assert index.entries() == txns
            elif rng.random() < 0.3:
                at = txns[-1].last_offset + 1 if txns else 0
                txns.append(AbortedTxn(9, at, at + 1, at + 2))
                index.append(txns[-1])
    finally:
        indexes._BLOCK = was


def test_search_of_large_txn_index_reads_few_bytes() -> None:
    """A fetch must not decode an index of 100,000 transactions."""
    files = CountedFiles()
    txns = one_after_another(MANY)
    index_of(txns, files).close()
    index = TxnIndex(files, PATH)
    for start in (0, MANY, 2 * MANY - 200):
        files.bytes_read = 0
        assert collected(index, start, start + 100) == overlapping(txns, start, start + 100)
        assert files.bytes_read < 4 * indexes._BLOCK * TXN_ENTRY_BYTES


def test_search_below_transaction_that_spans_the_index_reads_each_block_once() -> None:
    """The last stable offset stands still: only the summaries of the blocks show where to stop."""
    files = CountedFiles()
    txns = [AbortedTxn(1, at, at + 1, 1) for at in range(2, 2 * MANY, 2)]
    txns.append(AbortedTxn(2, 1, 2 * MANY, 2 * MANY + 1))
    index = index_of(txns, files)
    assert collected(index, 0, 100) == overlapping(txns, 0, 100)
    files.bytes_read = 0
    assert collected(index, 100, 200) == overlapping(txns, 100, 200)
    assert files.bytes_read < 4 * indexes._BLOCK * TXN_ENTRY_BYTES


def test_append_to_torn_txn_index_keeps_entries_aligned() -> None:
    files = MemoryFiles()
    txns = one_after_another(3)
    index_of(txns[:2], files).close()
    files.open(PATH).append(b"torn")
    index = TxnIndex(files, PATH)
    index.append(txns[2])
    assert TxnIndex(files, PATH).entries() == txns


# In a log ------------------------------------------------------------------------------------


def abort_one(log: Log, sequence: int, *, size: int = 10) -> None:
    append(log, batch(size=size, producer=Producer(1, 0, sequence, transactional=True)))
    marker = build_end_txn_marker(1, 0, commit=False, coordinator_epoch=1, timestamp_ms=T0)
    append(log, marker, origin=Origin.COORDINATOR)


def aborting(log: Log, count: int, **options: int) -> Log:
    for at in range(count):
        abort_one(log, at, **options)
    log.update_high_watermark(log.log_end_offset)
    return log


def end_of(data: bytes) -> int:
    return max(header.last_offset + 1 for header, _ in iter_batches(data))


@pytest.mark.parametrize("segment_bytes", [1 << 20, 2_000])
@pytest.mark.parametrize("interval", [1, 300])
def test_aborted_list_of_a_read_covers_the_data_and_little_more(
    segment_bytes: int, interval: int
) -> None:
    log = aborting(
        make_log(segment_bytes=segment_bytes, index_interval_bytes=interval), 100, size=30
    )
    end = log.last_stable_offset
    for offset in range(0, end, 7):
        data = log.read(offset, 500, max_offset=end)
        listed = log.reader.aborted_in(offset, len(data), end)
        needed = log.reader.aborted_transactions(offset, end_of(data))
        assert listed[: len(needed)] == needed
        assert len(listed) <= len(needed) + 2 + interval // 100


def test_aborted_list_with_a_damaged_offset_index_is_complete() -> None:
    """An index entry that points elsewhere must not hide an aborted transaction."""
    log = aborting(make_log(index_interval_bytes=200), 100)
    index = log.segments.active.offset_index
    index.write_out()
    assert index.file is not None
    for at in range(2, index.count):
        index.file.pwrite((3).to_bytes(4, "big"), at * 8)
    index._window = b""
    end = log.last_stable_offset
    data = log.read(0, 3_000, max_offset=end)
    needed = log.reader.aborted_transactions(0, end_of(data))
    assert log.reader.aborted_in(0, len(data), end)[: len(needed)] == needed


def test_log_without_aborted_transactions_looks_for_no_index() -> None:
    """Segments without an index are known from the start, and after a roll."""
    files = CountedFiles()
    log = make_log(files, segment_bytes=300)
    for at in range(20):
        append(log, batch(producer=Producer(1, 0, at)))
    log.close()
    log = make_log(files, clean=True, segment_bytes=300)
    files.looked_up.clear()
    assert log.reader.aborted_in(0, 500, 20) == []
    assert files.looked_up == []
    append(log, batch(size=200))
    files.looked_up.clear()
    assert log.reader.aborted_transactions(0, 20) == []
    assert files.looked_up == []


def test_aborted_transactions_of_closed_segments_are_found_after_each_change() -> None:
    log = aborting(make_log(segment_bytes=400), 12)
    assert len(log.segments) > 4
    whole = log.reader.aborted_transactions(0, 99)
    assert [txn.first_offset for txn in whole] == list(range(0, 24, 2))
    log.truncate_to(9)
    assert log.reader.aborted_transactions(0, 99) == whole[:4]
    log.update_high_watermark(8)
    log.advance_log_start(7)
    log.retention(T0)
    assert log.reader.aborted_transactions(7, 99) == whole[3:4]
    log.roll()
    assert log.reader.aborted_transactions(7, 99) == whole[3:4]
    assert f"{DIRECTORY}/{0:020d}.txnindex" not in log.files.listdir(DIRECTORY)
