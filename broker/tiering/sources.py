"""Shell: Parts of a closed segment as sources of a copy (KIP-405).

They are read through separate file handles: retention may remove the segment from the log while it
is being copied, and its files stay until they are closed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from storage.files import File
from storage.log.log import Log
from storage.log.producers import CorruptSnapshot, ProducerStates
from storage.log.recovery import producers_at
from storage.log.segment import (
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
)
from storage.objects import FileRange, Source
from storage.tiered.copying import Copyable
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentSources


class SegmentGone(Exception):
    """The segment is not in the log any more, or another one has replaced it."""


def find_segment(log: Log, copyable: Copyable) -> Segment:
    """Return the closed segment of a plan that may be outdated. Raises SegmentGone if the log no
    longer has it."""
    wanted = copyable.segment
    at = log.segments.index_of(wanted.base_offset)
    segment = log.segments[at]
    following = log.segments[at + 1].base_offset if segment is not log.segments.active else -1
    if (segment.base_offset, following) != (wanted.base_offset, wanted.next_offset):
        raise SegmentGone(f"{log.topic}-{log.partition}: {wanted}")
    return segment


async def producer_snapshot(log: Log, next_offset: int, now_ms: int) -> bytes:
    """Return the producers' state at the segment's end. After a crash its file may be missing: then
    it is computed from the previous one and the batches in between.

    Raises:
        CorruptSnapshot: an earlier snapshot is invalid, or the producers at the local log start are
            unknown.
        CorruptLog: a batch is invalid.
        OSError: a disk operation failed.
    """
    if next_offset in log.snapshots.offsets:
        try:
            return await log.files.run(log.files.read, log.snapshots.path(next_offset))
        except FileNotFoundError:
            pass
    if log.producer_history.lacks_beginning:
        raise CorruptSnapshot(f"{log}: producers at its local start are not known")
    producers = ProducerStates(log.producers.expiration_ms)
    producers_at(log.snapshots, producers, list(log.segments), next_offset, now_ms)
    return producers.encode_snapshot()


@contextmanager
def opened(
    log: Log, segment: Segment, copyable: Copyable, lineage: Lineage, snapshot: bytes
) -> Iterator[SegmentSources]:
    """Open the segment's parts until the end of the block. Raises CorruptLog, CorruptIndex or
    OSError if they cannot be read."""
    aborts = bool(segment.txn_index.entries())
    files: list[File] = []

    def part(suffix: str) -> Source:
        path = segment.prefix + suffix
        size = log.files.size(path) if log.files.exists(path) else 0
        if not size:
            return b""
        files.append(log.files.open(path))
        return FileRange(log.files, files[-1], 0, size)

    try:
        yield SegmentSources(
            log=part(LOG_SUFFIX),
            index_interval_bytes=log.config.index_interval_bytes,
            txn_index=part(TXN_INDEX_SUFFIX) if aborts else None,
            producer_snapshot=snapshot,
            epochs=lineage.up_to(copyable.segment.next_offset - 1),
        )
    finally:
        for file in files:
            file.close()
