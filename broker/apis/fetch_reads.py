"""The reads of one fetch that go on off the loop, all at once, while the fetch waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from broker.apis.fetch_plan import ColdData, ColdSlice, Elsewhere, Refused, RemoteRange
from broker.replication.fetch_session import PartitionKey
from broker.replication.purgatory import Wait
from protocol.errors import ApiError
from runtime.tasks import Supervisor

if TYPE_CHECKING:
    from broker.tiering.reader import RemoteRead, RemoteReader

Arrived: TypeAlias = "ColdData | RemoteRead | Refused"


class FetchReads(Wait):
    """Begun when it is made. `results` fills; `over` is called when nothing is left to come.

    In the purgatory it waits for them: `late` is called at the deadline, and goes on without what
    has not come, or waits on. With the connection all ends that nobody else waits for.

    Whoever stops waiting calls `leave`: then `over` is not called any more, and reads of the tier
    go on, to be found by the next fetch.
    """

    def __init__(
        self,
        planned: Mapping[PartitionKey, Elsewhere],
        supervisor: Supervisor,
        reader: RemoteReader | None,
        *,
        over: Callable[[FetchReads], None],
        late: Callable[[FetchReads], None],
        cancel: Callable[[], object],
        committed: bool,
    ) -> None:
        """`reader` is there if remote ranges are planned; `committed` is for them. `cancel` says
        that there will be no answer. Nothing of what is called is called from here."""
        super().__init__()
        self.results: dict[PartitionKey, Arrived | None] = dict.fromkeys(planned)
        """None for what has not come."""
        self.failure: BaseException | None = None
        """One that nobody foresaw; the request fails with it."""
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
        """Whether nothing is left to come."""
        return not self._tasks and not self._remote

    def leave(self) -> None:
        """Waits no longer."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks:
            task.cancel()
        for read in self._remote:
            read.leave(self._remote_done)
        self._remote = {}

    def expired(self) -> None:
        self._late(self)

    def dropped(self) -> None:
        """Nobody is there any more: reads of the tier that have not begun end, too."""
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
