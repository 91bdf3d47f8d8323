"""A follower's answers from its leader: append, truncate, move the high watermark.

- Truncation comes before anything else (KAFKA-14704): an answer that says where the logs part
  moves no high watermark and brings no records.
- The point to cut at is the earlier of the two ends of the epoch that leader and follower share
  (KIP-279). Where the follower does not know that epoch, the next answer says how to go on.
- A log is not cut below its own high watermark by a leader that was elected cleanly. If it has to
  be, acknowledged records are lost: it is done, counted, and said.
- The high watermark is the leader's, as far as the own log reaches, and never goes back.

Plain functions over a partition; nothing waits.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.effects import NOTHING, Effects
from broker.replication.partition import Partition
from protocol.batch.header import HEADER_BYTES, Buffer, parse_header
from runtime.log import get_logger
from runtime.marks import mark
from storage.log.log import Log

_log = get_logger("broker.replicas")


class Appended(NamedTuple):
    """What an answer has changed in the follower's log."""

    size_bytes: int
    record_count: int
    log_start_moved: bool
    effects: Effects
    """What the partition wants done."""


def append_fetched(
    partition: Partition,
    records: Buffer | None,
    *,
    leader_high_watermark: int,
    leader_log_start: int,
) -> Appended:
    """Takes over what the leader sent for the own log end.

    Raises:
        CorruptLog: the bytes cannot follow the own log.
        LogFailed: the disk refused.
    """
    log = partition.log
    before = log.log_end_offset
    effects: Effects = NOTHING
    size = len(records) if records else 0
    if records:
        # What it has begun with was committed, however far behind the leader's marks are.
        begun = _begin_with_whole_batch(log, records)
        leader_high_watermark = max(leader_high_watermark, begun)
        leader_log_start = max(leader_log_start, begun)
        log.append_as_follower(records, max_epoch=partition.leader_epoch)
        if begun >= 0:
            log.write_epochs()  # the mark waits for them, and the start for the mark
        effects = partition.follower_appended(size)
    high_watermark = min(leader_high_watermark, log.log_end_offset)
    if high_watermark > log.high_watermark:
        effects += partition.follow_high_watermark(high_watermark)
    moved = leader_log_start > log.log_start_offset and log.advance_log_start(
        min(leader_log_start, log.high_watermark)
    )
    taken = log.log_end_offset - before
    return Appended(size if taken > 0 else 0, taken, moved, effects)


def _begin_with_whole_batch(log: Log, records: Buffer) -> int:
    """A leader's log may start inside a batch, which it sends whole. An empty log that was to begin
    there begins with that batch; returns where its start is to be once that is appended, or -1."""
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
    """Cuts the log where it leaves the leader's, which has `epoch` end at `end_offset`.

    Where that is below the own log start, nothing here is the leader's, and the log begins anew
    where the leader's does; if it does not say where that is (-1), where they part.

    True if anything went. Raises LogFailed.
    """
    log = partition.log
    own_epoch, own_end = log.end_offset_for_epoch(epoch)
    target = end_offset if own_epoch < 0 else min(own_end, end_offset)
    if target < log.log_start_offset:
        start_at(partition, leader_log_start if leader_log_start >= 0 else target)
        return True
    return truncate(partition, target)


def truncate(partition: Partition, offset: int) -> bool:
    """Cuts the log at `offset`; True if records went. Raises LogFailed."""
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
    """Empties the log: the leader's begins only at `offset`. Raises LogFailed."""
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
    """Brings the log inside the leader's bounds, which the offset asked for was not.

    Behind the leader's log start: the log is emptied and begins there. Beyond its log end, which
    only an unclean election can bring about: it is cut to that end. Raises LogFailed.
    """
    log = partition.log
    if leader_end < log.log_end_offset:
        truncate(partition, max(leader_end, log.log_start_offset))
    if log.log_end_offset < leader_start or leader_end < log.log_start_offset:
        start_at(partition, leader_start)
