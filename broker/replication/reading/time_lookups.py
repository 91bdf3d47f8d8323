"""Shell: Lookups of offsets by time that do not block the event loop (ListOffsets).

A lookup in the recent part of a partition with small batches takes a fraction of a millisecond and
is answered at once. Any other is done step by step (`storage.log.timestamps`), with other work of
the loop between the steps. A big batch is read, decompressed and searched in a worker thread.
Workers are few, and flushes and cold reads need them too, so batches are searched one at a time, in
the order of the requests.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

from broker.replication.reading.walk_limits import is_heavy
from protocol.errors import ApiError
from storage.files import Files
from storage.log.errors import LogFailed
from storage.log.log import Log
from storage.log.timestamps import Search, TimestampOffset, Wanted, look_into


class _Later(Enum):
    LATER = 0


LATER: Final = _Later.LATER
"""The lookup takes too long for the event loop."""


class TimeLookups:
    """Lookups of one broker. `records_walked` counts on the event loop alone, `batches_in_worker`
    in workers."""

    def __init__(self, files: Files) -> None:
        self.records_walked = 0
        self.batches_in_worker = 0
        self._files = files
        self._one_at_a_time = asyncio.Semaphore(1)

    def at_once(self, log: Log, timestamp_ms: int | None) -> TimestampOffset | None | _Later:
        """Return the offset if it can be found on the event loop, otherwise LATER. `timestamp_ms`
        None requests the highest timestamp.

        Raises LogFailed if a disk operation fails, and ApiError(INVALID_RECORD) at a record above
        `max.decompressed.message.bytes`.
        """
        search = log.reader.search_time(timestamp_ms)
        try:
            wanted = next(search)
            if wanted is None or _is_heavy(wanted):
                return LATER
            wanted = search.send(self._look(log, wanted))
        except StopIteration as done:
            result: TimestampOffset | None = done.value
            return result
        return LATER

    async def find(self, log: Log, timestamp_ms: int | None) -> TimestampOffset | None:
        """Return the offset, however long it takes. Raises the errors of `at_once`."""
        while True:
            generation = log.segments.generation
            try:
                found = await self._search(log, log.reader.search_time(timestamp_ms), generation)
            except (LogFailed, ApiError):
                if generation == log.segments.generation:
                    raise
                continue  # the segment was removed while it was being read
            if found is not LATER:
                return found

    async def _search(
        self, log: Log, search: Search, generation: int
    ) -> TimestampOffset | None | _Later:
        """Run a search. Returns: LATER if segments were removed in the meantime, so it must start
        again."""
        try:
            wanted = next(search)
            while True:
                found = None
                if wanted is None:
                    await asyncio.sleep(0)
                elif _is_heavy(wanted):
                    found = await self._look_in_worker(log, wanted)
                else:
                    found = self._look(log, wanted)
                if generation != log.segments.generation:
                    return LATER
                wanted = search.send(found)
        except StopIteration as done:
            result: TimestampOffset | None = done.value
            return result

    def _look(self, log: Log, wanted: Wanted) -> TimestampOffset | None:
        try:
            data = wanted.segment.log.pread(wanted.header.size_bytes, wanted.position)
        except OSError as error:
            raise LogFailed(log.directory, error) from error
        looked = look_into(data, wanted, log.config.max_decompressed_message_bytes)
        self.records_walked += looked.records
        return looked.found

    async def _look_in_worker(self, log: Log, wanted: Wanted) -> TimestampOffset | None:
        async with self._one_at_a_time:
            self.batches_in_worker += 1
            size = wanted.header.size_bytes
            try:
                data = await self._files.pread(wanted.segment.log, size, wanted.position)
            except OSError as error:
                raise LogFailed(log.directory, error) from error
            limit = log.config.max_decompressed_message_bytes
            return (await self._files.run(look_into, data, wanted, limit)).found


def _is_heavy(wanted: Wanted) -> bool:
    return is_heavy(wanted.header, wanted.header.size_bytes)
