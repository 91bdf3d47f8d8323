"""The entries that a coordinator reads back after an append."""

from __future__ import annotations

from broker.coordinators.log_entries import (
    EndMarker,
    EndOfTransaction,
    LogBatch,
    LogEntry,
    LogRecord,
    TransactionalBatch,
)


def entries_of(batch: LogBatch, base_offset: int) -> list[LogEntry]:
    """Return the entries of a batch in the log at `base_offset`."""
    if isinstance(batch, EndMarker):
        return [EndOfTransaction(base_offset, *batch)]
    producer = batch[:2] if isinstance(batch, TransactionalBatch) else ()
    return [
        LogRecord(offset, *record, *producer)
        for offset, record in enumerate(batch.records, base_offset)
    ]
