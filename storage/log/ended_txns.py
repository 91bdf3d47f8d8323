"""Transactions that ended at or above the high watermark before a restart.

A producer snapshot does not contain them, but they are unstable until the high watermark has passed
their markers: without them the last stable offset would be too high (T5). Kafka forgets them.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.log.producer_snapshots import ProducerSnapshots
from storage.log.producers import NO_COORDINATOR_EPOCH, ProducerStates, end_marker
from storage.log.recovery import replay_producers
from storage.log.segment import Segment
from storage.log.unstable import EndedTxn


def ended_since(
    high_watermark: int,
    states: ProducerStates,
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    now_ms: int,
) -> list[EndedTxn]:
    """Return the transactions with a marker between the high watermark and the newest snapshot.

    Usually there are few batches in between, and no marker. Only if there is one, the batches from
    an earlier snapshot on are read, to find the first offsets. Raises CorruptLog, OSError.

    Args:
        states: the producers at the log end; without any that has ever ended a transaction, nothing
        is read.
    """
    newest = snapshots.offsets[-1] if snapshots.offsets else -1
    if newest <= high_watermark:
        return []
    if all(state.coordinator_epoch == NO_COORDINATOR_EPOCH for state in states):
        return []
    if not _has_marker(segments, high_watermark, newest):
        return []
    then = ProducerStates(states.expiration_ms)
    taken = snapshots.load_up_to(high_watermark, then, now_ms)
    replay_producers(then, segments, taken, newest)
    then.on_high_watermark(high_watermark)
    return list(then.unstable.ended)


def _has_marker(segments: Sequence[Segment], start: int, end: int) -> bool:
    """Return whether a transaction ends in [start, end)."""
    for segment in segments:
        if segment.base_offset >= end:
            return False
        found = segment.find(max(start, segment.base_offset))
        if found is None:
            continue
        scan = segment.headers(found[1])
        for header, _ in scan:
            if header.base_offset >= end:
                return False
            if (
                header.is_control
                and header.producer_id >= 0
                and end_marker(scan.batch(header), 0, header) is not None
            ):
                return True
    return False
