"""Shell: Writes of remote log metadata records, each of which waits until it is read back.

The record is matched by its content, not by its offset. So if a record was written twice because
the response was lost, the first one counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.tiering.journal_tasks import JournalTasks
from broker.tiering.topic_link import FAILURES, MetadataLink
from protocol.errors import ApiError
from storage.tiered.cache import Outcome
from storage.tiered.records import encode_record
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentUpdate,
    TierRecord,
)


class TierUnavailable(Exception):
    """A record was not written, or not read back in time; in either case it may be written
    nevertheless."""


class RecordWriter:
    """The records of a journal that are being written.

    Args:
        number_of: returns the topic's partition that has the records of a partition; None while
            the topic does not exist.
        consume_wait_ms: how long a writer waits for its record to be read back.
    """

    def __init__(
        self,
        link: MetadataLink,
        tasks: JournalTasks,
        *,
        number_of: Callable[[RemotePartition], int | None],
        consume_wait_ms: int,
    ) -> None:
        self.consume_wait_ms = consume_wait_ms
        self._link = link
        self._tasks = tasks
        self._number_of = number_of
        self._waiting: dict[TierRecord, list[asyncio.Future[Outcome]]] = {}

    async def write(self, record: TierRecord) -> Outcome:
        """Write a record and wait until it is read back.

        Raises:
            TierUnavailable: the record was not written or not read back in time, or `fail` was
                called.
        """
        partition = partition_of(record)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(record, []).append(future)
        appending = asyncio.ensure_future(self._append(record))
        either: list[asyncio.Future[Any]] = [future, appending]
        try:
            async with asyncio.timeout(self.consume_wait_ms / 1000.0):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    appending.result()
                return await future
        except TimeoutError:
            raise TierUnavailable(f"a record of {partition} was not read back in time") from None
        except FAILURES as error:
            raise TierUnavailable(f"a record of {partition}: {error}") from error
        finally:
            appending.cancel()
            appending.add_done_callback(_look_away)
            waiting = self._waiting.get(record, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(record, None)

    async def _append(self, record: TierRecord) -> None:
        """Append a record, retrying until it is certainly written. Raises ApiError if that is
        impossible."""
        pauses = self._tasks.backoff()
        value = encode_record(record)
        while True:
            number = self._number_of(partition_of(record))
            try:
                if number is not None:
                    await self._link.append(number, value, record.event_timestamp_ms)
                    return
            except ApiError as error:
                if not error.code.retriable:
                    raise
                self._tasks.warn("cannot write", error)
            except FAILURES as error:
                self._tasks.warn("cannot write", error)
            await self._tasks.pause(pauses)

    def answer(self, record: TierRecord, outcome: Outcome) -> None:
        """End the writes of a record that was read back."""
        if not self._waiting:
            return  # comparing records takes time, and a start replays very many
        for future in self._waiting.pop(record, ()):
            if not future.done():
                future.set_result(outcome)

    def fail(self, concerned: Callable[[RemotePartition], bool], why: str = "") -> None:
        """Fail the writes of all concerned partitions with TierUnavailable."""
        for record, futures in list(self._waiting.items()):
            partition = partition_of(record)
            if concerned(partition):
                for future in futures:
                    if not future.done():
                        text = why or f"{partition} was released"
                        future.set_exception(TierUnavailable(text))
                        # Mark the exception as retrieved: there may be no writer left.
                        future.exception()


def partition_of(record: TierRecord) -> RemotePartition:
    """Return the partition of a record. Raises TypeError for an unknown kind of record."""
    if not isinstance(record, RemoteSegment | SegmentUpdate | PartitionDeletion):
        raise TypeError(f"{type(record).__name__} is no record of the topic")
    return record.partition


def _look_away(task: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: the record was read back in the meantime, or its writer has
    gone."""
    if not task.cancelled():
        task.exception()
