"""Shell: Loading of one shard: its records are replayed in slices, then its keys are revived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic

from broker.coordinators.coordinator_log import CoordinatorLog
from broker.coordinators.log_entries import LogEntry, LogRecord
from broker.coordinators.runtime.decision import Now
from broker.coordinators.runtime.shard import S

WORK_PER_SLICE: Final = 100
"""Records replayed, or live state started for them, before other work gets its turn: below 5 ms."""
BYTES_PER_RECORD: Final = 50
"""A bigger record counts as several: the record of a group contains all of its members."""
LOAD_PAUSE_S: Final = 1.0
"""Backoff before records are read again after a disk error; doubled after each further one."""
LOAD_PAUSE_MAX_S: Final = 60.0


class Loading(Generic[S]):
    """One attempt to load a shard. `records` and `keys` count the entries read and the keys
    revived so far."""

    def __init__(
        self, log: CoordinatorLog, partition: int, shard: S, now: Callable[[], Now]
    ) -> None:
        self.shard = shard
        self.records = 0
        self.keys = 0
        self._log = log
        self._partition = partition
        self._now = now

    async def run(self) -> None:
        """Read the partition up to its end, until all of it is committed.

        Raises:
            ApiError: the log cannot be read, or leadership ended.
            ProtocolError, InvariantViolated: the records are invalid.
        """
        work = 0
        async for entry in self._log.read_all(self._partition):
            self.shard.replay(entry)
            self.records += 1
            work += _work(entry)
            if work >= WORK_PER_SLICE:
                work = 0
                await asyncio.sleep(0)
        work = 0
        for key in self.shard.replayed():
            work += 1 + self.shard.revive(key, self._now())
            self.keys += 1
            if work >= WORK_PER_SLICE:
                work = 0
                await asyncio.sleep(0)


def _work(entry: LogEntry) -> int:
    """Return the work of a replay, in small records."""
    size = len(entry.value or b"") if isinstance(entry, LogRecord) else 0
    return 1 + size // BYTES_PER_RECORD
