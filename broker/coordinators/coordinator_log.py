"""Shell: The port of a coordinator to its replicated log, one per partition of its topic.

The coordinator decides records and hands them over; the future of `append` is done when the
records are committed (below the high watermark, with acks=all semantics). Appending is a plain
call, so that "decide, append, replay" happens without an interleaving await.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from protocol.batch.header import NO_PRODUCER_ID


class LogRecord(NamedTuple):
    """A record of the log; producer_id is that of the transaction it belongs to, if any."""

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


class CoordinatorListener(Protocol):
    """Told when this broker begins or ends to lead a partition of the coordinator's topic."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads `partition` from now on; its records may be loaded. A leader that goes
        on in a newer epoch is elected again without `resigned`: nothing but its own appends has
        changed its log."""

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """This broker leads `partition` no longer; `leader_epoch` is new (None: deleted)."""


class TopicCreation(Protocol):
    """Asks the controller for internal topics."""

    async def ensure(self, name: str) -> None:
        """Returns when `name` exists; raises ApiError if it cannot be made."""


class CoordinatorLog(Protocol):
    """Storage of one coordinator: the partitions of one internal topic."""

    def partition_count(self) -> int | None:
        """Number of partitions of the topic, None while the topic does not exist."""

    async def ensure_topic(self) -> None:
        """Creates the topic through the controller if it does not exist.

        Raises:
            ApiError: the controller refused, or was not to be reached in time.
        """

    def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int
    ) -> asyncio.Future[None]:
        """Appends one batch of (key, value) records; a value of None is a tombstone.

        The future is done when the batch is committed, or fails with an ApiError:
        NOT_LEADER_OR_FOLLOWER when leadership was lost before that.

        Raises:
            ApiError: nothing was appended: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
                MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR.
        """

    def leader_epoch(self, partition: int) -> int | None:
        """Leader epoch of `partition` if this broker leads it, else None."""

    def read_all(self, partition: int) -> AsyncIterator[LogEntry]:
        """Yields all records up to the log end, and the markers that end transactions among them.
        Files are read and batches unpacked off the loop; the loop is given other work where that
        happens, so that the caller handles the records between them.

        Ends when all of them are committed: a new leader may hold records that its followers do
        not have yet, and what is built on them must not be shown before. Raises ApiError
        NOT_LEADER_OR_FOLLOWER when leadership ends in the middle, ProtocolError for what cannot be
        read.
        """

    def add_listener(self, listener: CoordinatorListener) -> None:
        """Registers `listener`; it is told at once about the partitions led already."""
