"""Validation of batches on their way into the log, and assignment of offsets and epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from protocol.batch.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    crc_ok,
    iter_batches,
    patch,
)
from protocol.errors import ProtocolError
from runtime.errors import InvariantViolated
from storage.log.errors import CorruptLog
from storage.log.producers import EndMarker, end_marker

MAX_INT64: Final = 2**63 - 1
NO_MARKERS: Final[dict[int, EndMarker]] = {}


class AppendInfo(NamedTuple):
    """Result of an append. For a `duplicate`, the offsets are those of the original append."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


def whole_batches(buf: Buffer) -> list[BatchHeader]:
    """Parse the headers of validated batches that a leader appends.

    Raises InvariantViolated if `buf` is not a sequence of whole batches.
    """
    headers = []
    end = 0
    for header, pos in iter_batches(buf):
        headers.append(header)
        end = pos + header.size_bytes
    if not headers or end != len(buf):
        raise InvariantViolated("an append of something else than whole, validated batches")
    return headers


def patched(buf: Buffer, headers: Sequence[BatchHeader]) -> list[Buffer]:
    """Return the bytes to write, with the offsets and epochs of the headers.

    A writable buffer is patched in place; a read-only one is split, and only headers are copied.
    """
    view = memoryview(buf)
    if len(headers) == 1 and not view.readonly:
        patch(view, headers[0].base_offset, headers[0].leader_epoch)
        return [buf]
    pos = 0
    if not view.readonly:
        for header in headers:
            patch(view, header.base_offset, header.leader_epoch, pos)
            pos += header.size_bytes
        return [buf]
    parts: list[Buffer] = []
    for header in headers:
        head = bytearray(view[pos : pos + HEADER_BYTES])
        patch(head, header.base_offset, header.leader_epoch)
        parts.append(head)
        parts.append(view[pos + HEADER_BYTES : pos + header.size_bytes])
        pos += header.size_bytes
    return parts


def judge_fetched(
    buf: Buffer, max_epoch: int | None, next_offset: int, epoch: int
) -> list[BatchHeader]:
    """Return the headers of the whole batches that a follower may append at `next_offset`.

    Raises CorruptLog for bytes that are not a batch, a wrong CRC, and an offset or epoch that
    decreases.
    """
    headers = []
    for header, pos in _whole(buf):
        if max_epoch is not None and header.leader_epoch > max_epoch:
            break
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptLog(f"fetched offset {header.base_offset}, {next_offset} is next")
        if header.leader_epoch < epoch:
            raise CorruptLog(f"fetched epoch {header.leader_epoch} after {epoch}")
        if header.last_offset >= MAX_INT64:
            raise CorruptLog(
                f"fetched offset {header.last_offset}, the highest there is: no offset can follow"
            )
        if not crc_ok(buf, pos, header.size_bytes):
            raise CorruptLog(f"wrong CRC in the batch at offset {header.base_offset}")
        next_offset, epoch = header.next_offset, header.leader_epoch
        headers.append(header)
    return headers


def _whole(buf: Buffer) -> Iterator[tuple[BatchHeader, int]]:
    try:
        yield from iter_batches(buf)
    except ProtocolError as error:
        raise CorruptLog(f"fetched bytes that are no batch: {error}") from error


def end_markers(headers: Sequence[BatchHeader], parts: Sequence[Buffer]) -> dict[int, EndMarker]:
    """Return the contents of the end-of-transaction batches, by their index in `headers`."""
    for header in headers:
        if header.attributes & CONTROL_BIT and header.producer_id >= 0:
            break
    else:
        return NO_MARKERS
    whole = memoryview(b"".join(parts))
    markers = {}
    pos = 0
    for at, header in enumerate(headers):
        if header.is_control and header.producer_id >= 0:
            marker = end_marker(whole, pos, header)
            if marker is not None:
                markers[at] = marker
        pos += header.size_bytes
    return markers
