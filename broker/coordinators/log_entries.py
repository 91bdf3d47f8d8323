"""Entries of a coordinator's log: records, and the markers that end transactions among them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from protocol.batch.header import NO_PRODUCER_ID


class LogRecord(NamedTuple):
    """A record of the log; `producer_id` is that of its transaction, if any."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID


class EndOfTransaction(NamedTuple):
    """The marker that ends a producer's transaction in the partition."""

    offset: int
    producer_id: int
    committed: bool


LogEntry: TypeAlias = LogRecord | EndOfTransaction
