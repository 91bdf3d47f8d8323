"""Shell: Port of a coordinator to its replicated log, one per partition of its topic.

The coordinator decides records and appends them. The future of an append is done when the records
are committed (below the high watermark, with acks=all semantics). Appending is a synchronous call,
so that "decide, append, replay" happens without an await in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from broker.coordinators.log_entries import LogBatch, LogEntry


class CoordinatorListener(Protocol):
    """Receiver of changes in this broker's leadership of the coordinator's partitions."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Note that this broker leads `partition`, so its records may be loaded. A leader that
        continues in a newer epoch is elected again without `resigned`: only its own appends have
        changed its log."""

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Note that this broker no longer leads `partition`; `leader_epoch` is the new one (None:
        deleted)."""


class Appended(NamedTuple):
    """A batch in the log: the offset of its first record, and a future that is done when the batch
    is committed. The future fails with an ApiError otherwise: NOT_LEADER_OR_FOLLOWER when
    leadership was lost before that."""

    base_offset: int
    committed: asyncio.Future[None]


class TopicCreation(Protocol):
    """Creator of internal topics through the controller."""

    async def ensure(self, name: str) -> None:
        """Return when the topic exists. Raises ApiError if it cannot be created."""


class CoordinatorLog(Protocol):
    """Storage of one coordinator: the partitions of one internal topic."""

    def partition_count(self) -> int | None:
        """Return the number of partitions of the topic, None while the topic does not exist."""

    async def ensure_topic(self) -> None:
        """Create the topic through the controller if it does not exist.

        Raises:
            ApiError: the controller refused, or was not reachable in time.
        """

    def append(self, partition: int, batch: LogBatch, timestamp_ms: int) -> Appended:
        """Append records as a plain batch, records as the batch of a producer's transaction, or the
        marker that ends a transaction.

        Raises:
            ApiError: nothing was appended: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
                MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR, or
                INVALID_PRODUCER_EPOCH if the log has a newer epoch of the producer.
        """

    def leader_epoch(self, partition: int) -> int | None:
        """Return the leader epoch of `partition` if this broker leads it, otherwise None."""

    def read_all(self, partition: int) -> AsyncIterator[LogEntry]:
        """Yield all records up to the log end, and the markers that end transactions among them.
        Files are read and batches decompressed in worker threads. In that time the caller's loop
        can do other work.

        Ends when all of them are committed: a new leader may hold records that its followers do not
        have yet, and state built from them must not be visible before.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER when leadership ends during the read.
            ProtocolError: a record cannot be parsed.
        """

    def add_listener(self, listener: CoordinatorListener) -> None:
        """Register `listener`; the partitions led already are reported at once."""
