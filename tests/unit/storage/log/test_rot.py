"""Bit rot and torn writes: the damage that a crash can leave, and that only a disk causes."""

from __future__ import annotations

import pytest

from protocol.batch import Record, build_batch
from protocol.batch.header import CRC_POSITION
from storage.files import MemoryFiles
from storage.log.errors import LogFailed
from storage.log.rot import PAGE_BYTES, has_rotted
from testkit.memory.logs import DIRECTORY, append, fill, make_log
from testkit.records.batches import some_records

LENGTH_LAST = 11
"""The byte with the lowest bits of a batch's length."""
LAST_OFFSET_DELTA_LAST = CRC_POSITION + 9
"""The byte with the lowest bits of a batch's last offset delta."""


def batch(offset: int) -> bytes:
    return build_batch(some_records(3), offset)


def large(offset: int) -> bytes:
    return build_batch([Record(timestamp=1, value=b"v" * 3 * PAGE_BYTES)], offset)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


FIRST, SECOND = batch(10), batch(13)


@pytest.mark.parametrize("at", [8, 11, 16, CRC_POSITION, 22, 30, 45, len(FIRST) - 1])
def test_a_bit_that_flips_before_other_batches_is_rot(at: int) -> None:
    """A batch with a wrong length hides the start of the next batch."""
    assert has_rotted(flipped(FIRST, at) + SECOND, 10)
    assert has_rotted(flipped(FIRST, at) + flipped(SECOND, at) + batch(16), 10)


@pytest.mark.parametrize("at", [CRC_POSITION, 22, 30, 45, len(FIRST) - 1])
def test_so_is_one_in_the_last_batch_where_that_is_all_there(at: int) -> None:
    assert has_rotted(flipped(FIRST, at), 10)


@pytest.mark.parametrize("size", range(1, len(FIRST)))
def test_has_rotted_is_false_for_a_torn_write(size: int) -> None:
    assert not has_rotted(FIRST[:size], 10)
    assert not has_rotted(FIRST[:size] + bytes(len(FIRST) - size), 10) or size > len(FIRST) - 8


def test_nor_is_one_that_lacks_a_page_though_others_came() -> None:
    first = large(10)
    torn = first[:100] + bytes(PAGE_BYTES) + first[100 + PAGE_BYTES :]
    assert not has_rotted(torn, 10)
    assert not has_rotted(torn + SECOND, 10)
    assert has_rotted(flipped(first, 100) + SECOND, 10)


def test_has_rotted_ignores_batches_below_the_log_end() -> None:
    """A batch that begins below the log end is left of earlier content."""
    rubbish = b"\x01" * 70
    assert not has_rotted(rubbish + batch(5), 10)
    assert has_rotted(rubbish + FIRST, 10)
    assert not has_rotted(b"", 10)


def test_p18_batch_with_a_corrupt_last_offset_hides_no_later_batches() -> None:
    """P18, M: a bit of a last offset flips below the range that is read.

    The search for the end of a read stopped at that batch, and returned no later records (seed
    1918).
    """
    files = MemoryFiles()
    log = make_log(files)
    fill(log, 6)
    path = f"{DIRECTORY}/{0:020d}.log"
    _, at = log.segments.active.find(2) or (None, 0)
    log.segments.active.find(0)
    lied = files.open(path)
    lied.pwrite(b"\x10", at + CRC_POSITION + 6)
    assert [log.read(one, 1, max_offset=one + 1)[7] for one in (3, 4, 5)] == [3, 4, 5]
    assert log.read(4, 4096, max_offset=4) == b""
    log.roll()  # a closed segment caches no positions
    with pytest.raises(LogFailed, match="wrong CRC of the batch at offset 2"):
        log.read(2, 1, max_offset=5)


def test_a_batch_that_was_read_wrongly_once_is_found_where_it_is_the_next_time() -> None:
    """P26, F20: a follower fetched at the offset behind the batch and got that batch again,
    indefinitely.

    It had the batch already (seed 4560).
    """
    files = MemoryFiles()
    log = make_log(files)
    fill(log, 4)
    log.roll()  # a closed segment caches no positions
    segment = log.segments[0]
    path, at = segment.log.path, LAST_OFFSET_DELTA_LAST
    right = files.read(path)[at : at + 1]
    rotten = files.open(path)
    rotten.pwrite(bytes([right[0] | 2]), at)
    wrong = segment.find(2)
    assert wrong is not None and wrong[0].base_offset == 0
    rotten.pwrite(right, at)
    found = segment.find(2)
    assert found is not None and found[0].base_offset == 2
    assert segment.find(2) is found, "it is remembered while it reads as it did"


def test_the_highest_time_of_what_was_read_wrongly_is_not_remembered() -> None:
    """S8, F20: the disk read a wrong length once.

    From then on searches, retention and the segment's copy missed the times of later batches (seed
    4386).
    """
    files = MemoryFiles()
    log = make_log(files)
    for number in range(4):
        append(log, build_batch([Record(timestamp=number, value=b"v")], 0))
    log.roll()
    segment = log.segments[0]
    segment.doubt_times()
    _, second = segment.find(1) or (None, 0)
    path, at = segment.log.path, second + LENGTH_LAST
    right = files.read(path)[at : at + 1]
    rotten = files.open(path)
    rotten.pwrite(bytes([right[0] ^ 0x80]), at)
    assert segment.max_timestamp() < (3, 3)
    rotten.pwrite(right, at)
    assert segment.max_timestamp() == (3, 3)


def test_a_limit_inside_a_batch_ends_before_it() -> None:
    log = make_log(MemoryFiles())
    append(log, batch(0))
    append(log, batch(0))
    assert log.read(3, 4096, max_offset=5) == b""
    assert len(log.read(0, 4096, max_offset=5)) == len(batch(0))
