"""Shell: Reads of one fetch in workers and from the tier, all at once, while the fetch waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.fetch.reading import (
    Arrived,
    ColdData,
    ColdSlice,
    Elsewhere,
    Refused,
    RemoteRange,
)
from broker.replication.sessions.fetch_session import PartitionKey
from broker.replication.waiting.purgatory import Wait
from protocol.errors import ApiError
from runtime.tasks import Supervisor

if TYPE_CHECKING:
    from broker.tiering.reader import RemoteRead, RemoteReader


class BackgroundReads(Wait):
    """Reads that start when the object is created. `results` is filled; `over` is called when all
    are done.

    In the purgatory it waits for them: `late` is called at the deadline, and continues without the
    missing results, or waits on. When the connection closes, all reads end that no other fetch
    waits for.

    A caller that stops waiting calls `leave`: then `over` is not called any more. Reads of the tier
    continue, and the next fetch finds them.
    """

    def __init__(
        self,
        planned: Mapping[PartitionKey, Elsewhere],
        supervisor: Supervisor,
        reader: RemoteReader | None,
        *,
        over: Callable[[BackgroundReads], None],
        late: Callable[[BackgroundReads], None],
        cancel: Callable[[], object],
        committed: bool,
    ) -> None:
        """Start the reads. `reader` is required if remote ranges are planned, and `committed`
        applies to them. `cancel` reports that there will be no answer. This constructor calls none
        of the callables."""
        super().__init__()
        self.results: dict[PartitionKey, Arrived | None] = dict.fromkeys(planned)
        """None for a result that is still missing."""
        self.failure: BaseException | None = None
        """An unexpected exception; the request fails with it."""
        self.has_remote = False
        self._over = over
        self._late = late
        self._cancel = cancel
        self._reader = reader
        self._committed = committed
        self._tasks: dict[asyncio.Task[ColdData], PartitionKey] = {}
        self._remote: dict[RemoteRead, PartitionKey] = {}
        for key, one in planned.items():
            if isinstance(one, RemoteRange):
                self._begin_remote(key, one)
            else:
                task = supervisor.spawn(f"cold read {key[1]}", _read(one), fatal=False)
                self._tasks[task] = key
                task.add_done_callback(self._arrived)

    @property
    def waits_for_disk(self) -> bool:
        return bool(self._tasks)

    @property
    def finished(self) -> bool:
        """True if no result is missing."""
        return not self._tasks and not self._remote

    def leave(self) -> None:
        """Stop waiting, and cancel reads of the disk."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks:
            task.cancel()
        for read in self._remote:
            read.leave(self._remote_done)
        self._remote = {}

    def expired(self) -> None:
        self._late(self)

    def dropped(self) -> None:
        """Stop waiting because the connection has closed; end reads of the tier that have not
        begun, too."""
        reads = list(self._remote)
        self.leave()
        self._cancel()
        if self._reader is not None:
            for read in reads:
                self._reader.give_up(read)

    def _begin_remote(self, key: PartitionKey, one: RemoteRange) -> None:
        assert self._reader is not None
        self.has_remote = True
        try:
            read = self._reader.read(one.log, one.offset, one.max_bytes, committed=self._committed)
        except ApiError as error:
            self.results[key] = Refused(error.code)
            return
        if read.done:
            self.results[key] = read
        else:
            self._remote[read] = key
            read.listen(self._remote_done)

    def _remote_done(self, read: RemoteRead) -> None:
        key = self._remote.pop(read, None)
        if key is not None:
            self.results[key] = read
            self._maybe_over()

    def _arrived(self, task: asyncio.Task[ColdData]) -> None:
        key = self._tasks.pop(task, None)
        if key is None:
            return
        if task.cancelled():
            pass  # the node stops
        elif (error := task.exception()) is not None:
            self.failure = error
        else:
            self.results[key] = task.result()
        self._maybe_over()

    def _maybe_over(self) -> None:
        if self.finished:
            self._over(self)


async def _read(cold: ColdSlice) -> ColdData:
    log = cold.log
    try:
        records = await log.read_cold(
            cold.offset,
            cold.max_bytes,
            max_offset=cold.end_offset,
            min_one_batch=cold.whole_first,
        )
    except ApiError as error:
        return ColdData(log, log.segments.generation, error=error)
    return ColdData(log, log.segments.generation, records)
