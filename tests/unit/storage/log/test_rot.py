"""What a crash can leave of the last writes, and what only a disk does that has not kept them."""

from __future__ import annotations

import pytest

from protocol.batch import Record, build_batch
from protocol.batch.header import CRC_POSITION
from storage.log.rot import PAGE_BYTES, has_rotted
from testkit.records.batches import some_records


def batch(offset: int) -> bytes:
    return build_batch(some_records(3), offset)


def large(offset: int) -> bytes:
    return build_batch([Record(timestamp=1, value=b"v" * 3 * PAGE_BYTES)], offset)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


FIRST, SECOND = batch(10), batch(13)


@pytest.mark.parametrize("at", [8, 11, 16, CRC_POSITION, 22, 30, 45, len(FIRST) - 1])
def test_a_bit_that_flips_before_other_batches_is_rot(at: int) -> None:
    """Whatever it says: with a length that is wrong nobody knows where the next batch begins."""
    assert has_rotted(flipped(FIRST, at) + SECOND, 10)
    assert has_rotted(flipped(FIRST, at) + flipped(SECOND, at) + batch(16), 10)


@pytest.mark.parametrize("at", [CRC_POSITION, 22, 30, 45, len(FIRST) - 1])
def test_so_is_one_in_the_last_batch_where_that_is_all_there(at: int) -> None:
    assert has_rotted(flipped(FIRST, at), 10)


@pytest.mark.parametrize("size", range(1, len(FIRST)))
def test_a_write_that_ended_early_is_none(size: int) -> None:
    assert not has_rotted(FIRST[:size], 10)
    assert not has_rotted(FIRST[:size] + bytes(len(FIRST) - size), 10) or size > len(FIRST) - 8


def test_nor_is_one_that_lacks_a_page_though_others_came() -> None:
    first = large(10)
    torn = first[:100] + bytes(PAGE_BYTES) + first[100 + PAGE_BYTES :]
    assert not has_rotted(torn, 10)
    assert not has_rotted(torn + SECOND, 10)
    assert has_rotted(flipped(first, 100) + SECOND, 10)


def test_old_bytes_that_look_like_a_batch_are_no_proof() -> None:
    """What begins below the log end is left of something else."""
    rubbish = b"\x01" * 70
    assert not has_rotted(rubbish + batch(5), 10)
    assert has_rotted(rubbish + FIRST, 10)
    assert not has_rotted(b"", 10)
