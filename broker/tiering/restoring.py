"""Shell: Recovery of a tiered log's epochs and producers from the tier after files were lost (F21).

A log without its leader-epoch-checkpoint knows the epochs of the batches on its disk. Without the
earlier ones it cannot determine which copies are its own: nothing is copied, expired or read
remotely. Every copy has the epochs of its log up to its end. So any copy that certainly belongs to
this log has the missing epochs.

A log without any producer snapshot knows only the producers of the batches on its disk. Their
earlier state is in the copy that ends where the local log begins. Without it, a retry of an older
batch would be mistaken for a new one, and nothing could be copied (T2).
"""

from __future__ import annotations

from storage.log.checkpoints import decode_epochs
from storage.log.log import Log
from storage.tiered.cache import SegmentCache
from storage.tiered.layout import Kind
from storage.tiered.lineage import Lineage
from storage.tiered.segment_store import SegmentStore
from storage.tiered.values import RemoteSegment


def lacks_producers(log: Log) -> bool:
    """Return whether the log's producer state begins with the local log."""
    return log.producer_history.lacks_beginning and not log.snapshots.offsets


async def restore_producers(log: Log, cache: SegmentCache, store: SegmentStore) -> bool:
    """Restore the log's producers; return whether it has them again.

    Raises:
        ObjectError, CorruptSegment, CorruptSnapshot, LogFailed: the snapshot cannot be read or
            stored; the caller retries later.
    """
    segment = _copy_before(log, cache)
    if segment is None:
        return False
    manifest = await store.manifest(segment)
    snapshot = await store.read_whole(manifest, Kind.PRODUCER_SNAPSHOT)
    if log.closed or _copy_before(log, cache) is not segment:
        return False
    return log.producer_history.restore(snapshot)


def _copy_before(log: Log, cache: SegmentCache) -> RemoteSegment | None:
    """Return the copy of this log that ends where the local log begins, or None."""
    before = log.local_log_start_offset - 1
    for one in cache.shared_with(Lineage(log.epochs.entries, log.log_end_offset)):
        if one.offsets.last == one.segment.end_offset == before:
            return one.segment
    return None


async def restore_epochs(log: Log, cache: SegmentCache, store: SegmentStore) -> bool:
    """Restore the log's epochs; return whether it has them again. They are written together with
    the other epochs that are not in the file yet; after an earlier crash they are restored again.

    Raises:
        ObjectError, CorruptSegment, CorruptCheckpoint: the epochs cannot be read; the caller
            retries later.
    """
    segment = certain_copy(log, cache)
    if segment is None:
        return False
    manifest = await store.manifest(segment)
    entries = decode_epochs(await store.read_whole(manifest, Kind.LEADER_EPOCHS))
    if log.closed or certain_copy(log, cache) is not segment:
        return False  # truncated, or restarted elsewhere, in the meantime
    return log.history.restore(entries)


def certain_copy(log: Log, cache: SegmentCache) -> RemoteSegment | None:
    """Return a finished copy that certainly belongs to this log up to the local log start, or None.

    It has the first local offset, or the one before, in the epoch of the first local record: then
    all earlier records are the same. If an earlier epoch ended exactly there, a copy of that epoch
    is used only if no other epoch's copy has that offset. The leaders of other epochs may have lost
    it in an unclean election.
    """
    local = log.local_log_start_offset
    epoch = log.epochs.epoch_at(local)
    found = cache.find(epoch, local) or cache.find(epoch, local - 1)
    if found is not None:
        return found
    writers = {
        epoch: segment
        for segment in cache.finished()
        for epoch, first, last in segment.epoch_ranges()
        if first <= local - 1 <= last
    }
    return next(iter(writers.values())) if len(writers) == 1 else None
