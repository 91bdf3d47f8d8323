"""The reads of one fetch that go on off the loop, all at once, while the fetch waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from broker.apis.fetch_plan import ColdData, ColdSlice
from broker.replication.fetch_session import PartitionKey
from protocol.errors import ApiError
from runtime.tasks import Supervisor


class FetchReads:
    """Begun when it is made. `results` fills; `over` is called once, when nothing is left to come.

    Whoever stops waiting calls `give_up`: then `over` is not called any more.
    """

    def __init__(
        self,
        planned: Mapping[PartitionKey, ColdSlice],
        over: Callable[[], None],
        supervisor: Supervisor,
    ) -> None:
        self.results: dict[PartitionKey, ColdData | None] = dict.fromkeys(planned)
        """None for what has not come."""
        self.failure: BaseException | None = None
        """One that nobody foresaw; the request fails with it."""
        self._over = over
        self._tasks: dict[asyncio.Task[ColdData], PartitionKey] = {}
        for key, cold in planned.items():
            task = supervisor.spawn(f"cold read {key[1]}", _read(cold), fatal=False)
            self._tasks[task] = key
            task.add_done_callback(self._arrived)

    def give_up(self) -> None:
        """Ends what still goes on."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks:
            task.cancel()

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
        if not self._tasks:
            self._over()


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
