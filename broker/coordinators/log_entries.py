"""Entries of a coordinator's log: records, and the markers that end transactions among them.

A coordinator reads `LogEntry` values. It appends records as a plain batch, records as the batch of
a producer's transaction, or one marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from protocol.batch.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class LogRecord(NamedTuple):
    """A record of the log; `producer_id` and `producer_epoch` are those of its transaction, if
    any."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class EndOfTransaction(NamedTuple):
    """The marker that ends a producer's transaction in the partition. `coordinator_epoch` is the
    leader epoch of the transaction coordinator that wrote it."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


LogEntry: TypeAlias = LogRecord | EndOfTransaction

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""The bytes of a record; a value of None is a tombstone."""


class PlainBatch(NamedTuple):
    """Records outside of a transaction."""

    records: Sequence[KeyValue]


class TransactionalBatch(NamedTuple):
    """Records of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    records: Sequence[KeyValue]


class EndMarker(NamedTuple):
    """The end of a producer's transaction in the partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


LogBatch: TypeAlias = PlainBatch | TransactionalBatch | EndMarker
