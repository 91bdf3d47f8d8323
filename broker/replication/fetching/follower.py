"""Rules by which a follower applies a leader's fetch responses to its log.

- Truncation comes first (KAFKA-14704): a response with a diverging epoch moves no high watermark
  and contains no records.
- The log is truncated to the earlier of the two ends of the epoch that leader and follower share
  (KIP-279). If the follower does not have that epoch, the next response continues the search.
- A cleanly elected leader never makes a follower truncate below its own high watermark. If it
  happens nevertheless, acknowledged records are lost: it is done, counted, and logged.
- The high watermark is the leader's, limited to the local log end, and never goes back.

Plain functions over a partition; none of them blocks.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.partition.effects import NOTHING, Effects
from broker.replication.partition.high_watermark import follow_high_watermark, follower_appended
from broker.replication.partition.partition import Partition
from protocol.batch.header import HEADER_BYTES, Buffer, parse_header
from runtime.log import get_logger
from runtime.marks import mark
from storage.log.log import Log

_log = get_logger("broker.replicas")


class Appended(NamedTuple):
    """Changes that a response has made to the follower's log."""

    size_bytes: int
    record_count: int
    log_start_moved: bool
    effects: Effects
    """Effects that the partition has returned."""


def append_fetched(
    partition: Partition,
    records: Buffer | None,
    *,
    leader_high_watermark: int,
    leader_log_start: int,
) -> Appended:
    """Append the records that the leader sent for the local log end; apply its high watermark and
    log start.

    Raises:
        CorruptLog: the records do not continue the local log.
        LogFailed: a disk operation failed.
    """
    log = partition.log
    before = log.log_end_offset
    effects: Effects = NOTHING
    size = len(records) if records else 0
    if records:
        # The offset where the log begins was committed, however old the leader's offsets are.
        begun = _begin_with_whole_batch(log, records)
        leader_high_watermark = max(leader_high_watermark, begun)
        leader_log_start = max(leader_log_start, begun)
        log.append_as_follower(records, max_epoch=partition.leader_epoch)
        if begun >= 0:
            # the high watermark waits for the epochs' file, and the log start for the high
            # watermark
            log.history.write()
        effects = follower_appended(partition, size)
    high_watermark = min(leader_high_watermark, log.log_end_offset)
    if high_watermark > log.high_watermark:
        effects += follow_high_watermark(partition, high_watermark)
    moved = leader_log_start > log.log_start_offset and log.advance_log_start(
        min(leader_log_start, log.high_watermark)
    )
    taken = log.log_end_offset - before
    return Appended(size if taken > 0 else 0, taken, moved, effects)


def _begin_with_whole_batch(log: Log, records: Buffer) -> int:
    """Start an empty log with the first batch received if the intended start lies inside that
    batch. A leader's log may start inside a batch, which it sends whole. Returns: the intended log
    start once the batch is appended, or -1 if the log does not start there."""
    begin = log.log_end_offset
    if log.log_start_offset != begin or len(records) < HEADER_BYTES:
        return -1
    first = parse_header(records)
    if not 0 <= first.base_offset < begin <= first.last_offset:
        return -1
    mark("replication.begins-inside-batch")
    log.truncate_fully_and_start_at(first.base_offset)
    return begin


def truncate_to_common(
    partition: Partition, epoch: int, end_offset: int, leader_log_start: int
) -> bool:
    """Truncate the log where it diverges from the leader's, in which `epoch` ends at `end_offset`.

    If that is below the local log start, no local record is in the leader's log. The log is then
    emptied and restarts at the leader's log start, or at `end_offset` if that is unknown (-1).

    Returns: True if the log was emptied or records were removed.

    Raises:
        LogFailed: a disk operation failed.
    """
    log = partition.log
    own_epoch, own_end = log.history.end_offset_for(epoch)
    target = end_offset if own_epoch < 0 else min(own_end, end_offset)
    if target < log.log_start_offset:
        start_at(partition, leader_log_start if leader_log_start >= 0 else target)
        return True
    return truncate(partition, target)


def truncate(partition: Partition, offset: int) -> bool:
    """Truncate the log to `offset`; return whether records were removed. Raises LogFailed if a disk
    operation fails."""
    log = partition.log
    if offset < log.high_watermark:
        mark("replication.truncation-shown")
        partition.counters.truncations_below_high_watermark += 1
        _log.warning(
            "committed records are cut off: the leader does not have them",
            topic=partition.topic,
            partition=partition.index,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            high_watermark=log.high_watermark,
            offset=offset,
        )
    before = log.log_end_offset
    cut = log.truncate_to(offset)
    if cut:
        mark("replication.truncation")
        _log.info(
            "log truncated",
            topic=partition.topic,
            partition=partition.index,
            leader_epoch=partition.leader_epoch,
            log_end_before=before,
            log_end=log.log_end_offset,
        )
    return cut


def start_at(partition: Partition, offset: int) -> None:
    """Empty the log and restart it at `offset`, where the leader's begins. Raises LogFailed if a
    disk operation fails."""
    _log.warning(
        "log begins anew where the leader's does",
        topic=partition.topic,
        partition=partition.index,
        log_end_before=partition.log.log_end_offset,
        log_start=offset,
    )
    mark("replication.log-begins-anew")
    partition.log.truncate_fully_and_start_at(offset)


def reset_to(partition: Partition, leader_start: int, leader_end: int) -> None:
    """Bring the log within the leader's bounds, after its log end was outside of them.

    A log that ends before the leader's log start is emptied and restarts there. A log that ends
    beyond the leader's log end, which only an unclean election can cause, is truncated to it.

    Raises:
        LogFailed: a disk operation failed.
    """
    log = partition.log
    if leader_end < log.log_end_offset:
        truncate(partition, max(leader_end, log.log_start_offset))
    if log.log_end_offset < leader_start or leader_end < log.log_start_offset:
        start_at(partition, leader_start)
