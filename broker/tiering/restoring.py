"""Shell: Epochs and producers of a tiered log, put back from the tier where files were lost (F21).

A log whose leader-epoch-checkpoint is gone knows the epochs of the batches on its disk, and without
the others it cannot tell which copies are its own: nothing is copied, expired or read remotely.
Every copy has the epochs of the log that it was made of, up to its end. So what is missing is in
any copy that is of this log for certain.

A log without any producer snapshot knows the producers that its disk has batches of. What they were
before is in the copy that ends where the disk begins; without it a retry of an older batch would be
taken for a new one, and nothing could be copied (T2).
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
    """Whether what is known of producers begins with the disk."""
    return log.lacks_producers and not log.snapshots.offsets


async def restore_producers(log: Log, cache: SegmentCache, store: SegmentStore) -> bool:
    """Whether the log has the producers again. Raises ObjectError, CorruptSegment, CorruptSnapshot,
    LogFailed: to be tried again."""
    segment = _copy_before(log, cache)
    if segment is None:
        return False
    manifest = await store.manifest(segment)
    snapshot = await store.read_whole(manifest, Kind.PRODUCER_SNAPSHOT)
    if log.closed or _copy_before(log, cache) is not segment:
        return False
    return log.restore_producers(snapshot)


def _copy_before(log: Log, cache: SegmentCache) -> RemoteSegment | None:
    """The copy of this log that ends where its disk begins."""
    before = log.local_log_start_offset - 1
    for one in cache.shared_with(Lineage(log.epochs.entries, log.log_end_offset)):
        if one.offsets.last == one.segment.end_offset == before:
            return one.segment
    return None


async def restore_epochs(log: Log, cache: SegmentCache, store: SegmentStore) -> bool:
    """Whether the log has the epochs again. They are written with the others that are not in their
    file yet: whoever crashes before that restores them again.

    Raises ObjectError, CorruptSegment, CorruptCheckpoint: to be tried again.
    """
    segment = certain_copy(log, cache)
    if segment is None:
        return False
    manifest = await store.manifest(segment)
    entries = decode_epochs(await store.read_whole(manifest, Kind.LEADER_EPOCHS))
    if log.closed or certain_copy(log, cache) is not segment:
        return False  # it was cut, or began elsewhere, meanwhile
    return log.restore_epochs(entries)


def certain_copy(log: Log, cache: SegmentCache) -> RemoteSegment | None:
    """A finished copy that is of this log up to where its disk begins.

    It has the first offset on the disk, or the one before, from the epoch that wrote the first:
    then all before is the same. Where an earlier epoch ended just there, a copy by that one is
    taken if there are no copies of that offset by others, who may have lost it in an unclean
    election.
    """
    local = log.local_log_start_offset
    epoch = log.epoch_at(local)
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
