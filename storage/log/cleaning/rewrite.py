"""Rewriting of one batch: kept whole, thinned, emptied, or dropped.

Offsets never change. A batch that loses records keeps its base offset, last offset delta, epoch and
producer fields, and its remaining records keep their bytes. Length, count, highest timestamp and
CRC are updated.

A batch that has lost all records stays as an empty frame in three cases:

* It is the last batch of an active producer: the sequence must survive a rebuild of the producer
  state.
* It ends at the high watermark: the last offset below it stays in a batch, as in Kafka 4.4.
* A leader epoch begins there. A follower learns the start of an epoch from the first batch of the
  epoch that it receives. If the start were later, the follower, as the next leader, would accept as
  its own history records that another replica has from a leader that lost. Kafka drops this frame.

Tombstones and idle transaction markers get a delete horizon in the first round that keeps them (now
plus `delete.retention.ms`, stored in place of the base timestamp, KIP-534). They are removed in the
first round after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.batch.control import ControlType, read_control_type
from protocol.batch.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from protocol.batch.records import (
    RECORD_BYTES_MAX,
    assemble,
    read_batch,
    rebuild_batch,
    records_payload,
)
from protocol.compression import Codec
from storage.log.cleaning.key_offsets import KeyOffsets
from storage.log.cleaning.transactions import Transactions
from storage.log.cleaning.walk import collect_keys, judge


class LastBatch(NamedTuple):
    """The last known batch of an active producer."""

    last_offset: int | None
    """Offset of its last batch of records; None if only markers are known."""
    epoch: int


@dataclass(slots=True)
class RewriteStats:
    """Records read and kept, for the log line and the metrics."""

    records_read: int = 0
    records_kept: int = 0


@dataclass(slots=True, kw_only=True)
class Rewriter:
    """Rewrites the batches of one round, in offset order from the log's start.

    Attributes:
        newest: key -> offset of the round.
        high_watermark: that of the log when the round began.
        record_bytes_max: `max.decompressed.message.bytes`, the limit of a record that was
            compressed. A larger one is unreadable.
    """

    newest: KeyOffsets
    transactions: Transactions
    active: Mapping[int, LastBatch]
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    record_bytes_max: int = RECORD_BYTES_MAX
    stats: RewriteStats = field(default_factory=RewriteStats)
    leader_epoch: int = 0
    """Leader epoch of the previous batch. The start of epoch 0 needs no frame: no epoch precedes
    it."""

    def remains(self, batch: bytes, header: BatchHeader) -> bytes | None:
        """Return the bytes that replace `batch` (`batch` itself if nothing changes), or None.

        Raises ValueError or ProtocolError for unreadable records, ApiError for broken compression.
        """
        self.stats.records_read += header.record_count
        kept = self._control(batch, header) if header.is_control else self._data(batch, header)
        begins, self.leader_epoch = header.leader_epoch > self.leader_epoch, header.leader_epoch
        if kept is not None:
            return kept
        if self._frame_stays(header):
            return _frame(header)
        return _anonymous_frame(header) if begins else None

    def _frame_stays(self, header: BatchHeader) -> bool:
        if header.next_offset == self.high_watermark:
            return True
        last = self.active.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_offset

    def _is_ripe(self, header: BatchHeader) -> bool:
        """Return whether the batch has a delete horizon that has passed."""
        return header.has_delete_horizon and header.base_timestamp <= self.now_ms

    # Records ---------------------------------------------------------------------------------

    def _data(self, batch: bytes, header: BatchHeader) -> bytes | None:
        if self.transactions.records_are_aborted(header) or not header.record_count:
            return None
        payload = records_payload(batch, 0, header, record_bytes_max=self.record_bytes_max)
        judged = judge(payload, header, self.newest, keep_tombstones=not self._is_ripe(header))
        count = len(judged.offsets)
        self.stats.records_kept += count
        if not count:
            return None
        if judged.tombstones and not header.has_delete_horizon:
            return self._with_horizon(batch, header, judged.offsets)
        if count == header.record_count:
            return batch
        fields = BatchHeader(*header.fields())
        fields.record_count = count
        fields.max_timestamp = judged.max_timestamp
        kept = b"".join([payload[start:end] for start, end in judged.runs])
        return assemble(fields, kept, header.compression)

    def _with_horizon(self, batch: bytes, header: BatchHeader, offsets: list[int]) -> bytes:
        """Return the batch with a delete horizon, to which all timestamps are then relative."""
        stay = set(offsets)
        records = [record for record in read_batch(batch, 0, header) if record.offset in stay]
        return rebuild_batch(
            header, records, delete_horizon_ms=self.now_ms + self.delete_retention_ms
        )

    # Markers ---------------------------------------------------------------------------------

    def _control(self, batch: bytes, header: BatchHeader) -> bytes | None:
        records = list(read_batch(batch, 0, header))
        kind = read_control_type(records[0].key) if records else None
        if kind not in (ControlType.ABORT, ControlType.COMMIT, None):
            idle = False
        else:
            commit = None if kind is None else kind == ControlType.COMMIT
            idle = self.transactions.marker_is_idle(header, commit)
        if not records or (idle and self._is_ripe(header)):
            return None
        self.stats.records_kept += len(records)
        if idle and not header.has_delete_horizon:
            horizon_ms = self.now_ms + self.delete_retention_ms
            return rebuild_batch(header, records, delete_horizon_ms=horizon_ms)
        return batch


def _frame(header: BatchHeader) -> bytes:
    """Return the batch without records."""
    fields = BatchHeader(*header.fields())
    fields.record_count = 0
    fields.base_timestamp = NO_TIMESTAMP
    fields.attributes &= ~DELETE_HORIZON_BIT
    return assemble(fields, b"", Codec.NONE)


def _anonymous_frame(header: BatchHeader) -> bytes:
    """Return the batch without records and without its producer, so that it does not affect the
    producer state."""
    fields = BatchHeader(*header.fields())
    fields.attributes &= ~(TRANSACTIONAL_BIT | CONTROL_BIT)
    fields.producer_id, fields.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    fields.base_sequence = NO_SEQUENCE
    return _frame(fields)


def collect(
    batch: bytes,
    header: BatchHeader,
    transactions: Transactions,
    into: KeyOffsets,
    first: int,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> None:
    """Add the keys of one batch of the dirty section to the map.

    Records of aborted transactions do not count: they would remove records that they never
    replaced. Raises the errors of `Rewriter.remains`.
    """
    if header.is_control:
        marker = next(read_batch(batch, 0, header), None)
        kind = None if marker is None else read_control_type(marker.key)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            transactions.marker_is_idle(header, kind == ControlType.COMMIT)
    elif not transactions.records_are_aborted(header) and header.last_offset >= first:
        payload = records_payload(batch, 0, header, record_bytes_max=record_bytes_max)
        collect_keys(payload, header, into, first)
