"""Shell: Removal of all remote segments of a partition.

A deleted topic's partition has no leader any more. The leader of the `__remote_log_metadata`
partition with its records removes the segments, as marked there, and its successor continues: every
step may be repeated. If tiering was switched off, the partition's own leader removes them. The
topic may be tiered again from scratch, so no removal is marked. The record of a copy that was begun
before may be read only afterwards, since it was not committed yet. So the leader removes segments
again whenever it reads of one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

from broker.tiering.journal import Journal
from broker.tiering.pauses import Pauses
from broker.tiering.record_writer import TierUnavailable
from broker.tiering.turns import Turns
from protocol.ids import TopicId
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.objects import ObjectError
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import PartitionDeletion, RemotePartition, RemoteSegment, SegmentUpdate

_log = get_logger("broker.tier")


class Remover:
    """Remover of remote segments. It is the metadata topic's leadership listener."""

    def __init__(
        self,
        *,
        node_id: int,
        journal: Journal,
        store: SegmentStore,
        save_log_starts: Callable[[], Awaitable[None]],
        at_once: Callable[[], int],
        supervisor: Supervisor,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """Set up the remover. `at_once` is the limit for partitions; `save_log_starts` makes log
        starts durable and raises OSError if a disk operation fails."""
        self._node_id = node_id
        self._journal = journal
        self._store = store
        self._save_log_starts = save_log_starts
        self.turns = Turns(at_once)
        self._supervisor = supervisor
        self._clock = clock
        self._rng = rng
        self._quiet = RateLimited(clock, 10_000)
        self._tasks: dict[tuple[TopicId, int], asyncio.Task[None]] = {}
        self._cleared: dict[tuple[TopicId, int], Callable[[], bool]] = {}
        """Partitions that must have nothing in the tier, each with its condition."""
        self._closed = False
        journal.subscribe(self._clear_again)

    # Deleted topics --------------------------------------------------------------------------

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Watch a partition of the metadata topic that this broker leads; see
        `LeadershipListener`."""
        self._journal.unwatch(partition)  # its leadership may continue in a newer epoch
        self._journal.watch(partition, self._look)

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Stop watching a partition of the metadata topic; see `LeadershipListener`."""
        self._journal.unwatch(partition)

    def _look(self) -> None:
        for partition in self._journal.removals():
            self._begin(partition, partial(self._leads, partition), deleted=True)

    def _leads(self, partition: RemotePartition) -> bool:
        return self._journal.leader(partition) == self._node_id

    # Tiering that was switched off -----------------------------------------------------------

    def clear(self, partition: RemotePartition, wanted: Callable[[], bool]) -> None:
        """Remove all remote segments of a partition that continues without them, while `wanted`
        returns true. Segments that become known later are removed too, until `leave`."""
        if partition.identity not in self._cleared:
            self._journal.take(partition)
        self._cleared[partition.identity] = wanted
        self._begin(partition, wanted, deleted=False)

    def leave(self, partition: RemotePartition) -> None:
        """Stop clearing a partition, if this broker does."""
        if self._cleared.pop(partition.identity, None) is not None:
            self._journal.give_up(partition)

    def _clear_again(self, partition: RemotePartition) -> None:
        wanted, cache = self._cleared.get(partition.identity), self._journal.cache(partition)
        if wanted is not None and wanted() and cache is not None and len(cache):
            self._begin(partition, wanted, deleted=False)

    # Either ----------------------------------------------------------------------------------

    def _begin(
        self, partition: RemotePartition, wanted: Callable[[], bool], *, deleted: bool
    ) -> None:
        if self._closed or partition.identity in self._tasks:
            return
        task = self._supervisor.spawn(
            f"remove {partition}", self._remove(partition, wanted, deleted=deleted), fatal=False
        )
        self._tasks[partition.identity] = task
        task.add_done_callback(lambda done: self._ended(partition, done))

    def _ended(self, partition: RemotePartition, task: asyncio.Task[None]) -> None:
        del self._tasks[partition.identity]
        if task.cancelled() or self._closed:
            return
        error = task.exception()
        if error is not None:
            self._supervisor.survive("removal of remote segments", error, partition=str(partition))
        else:
            # New work may have arrived while this task was about to end.
            self._look()
            self._clear_again(partition)

    async def _remove(
        self, partition: RemotePartition, wanted: Callable[[], bool], *, deleted: bool
    ) -> None:
        self._journal.take(partition)
        pauses = Pauses(self._rng)
        try:
            while wanted():
                try:
                    async with self.turns:
                        if await self._remove_once(partition, wanted, deleted=deleted):
                            _log.info("remote segments removed", partition=str(partition))
                            return
                except (ObjectError, TierUnavailable, OSError) as error:
                    self._grumble(partition, error)
                await asyncio.sleep(pauses.next_s())
        finally:
            self._journal.give_up(partition)

    async def _remove_once(
        self, partition: RemotePartition, wanted: Callable[[], bool], *, deleted: bool
    ) -> bool:
        """Remove all segments once; return whether nothing is left to do. The start of a log that
        continues is saved first: the topic may be tiered again, and then begin there (S4)."""
        cache = await self._journal.ready(partition)
        if not deleted:
            await self._save_log_starts()
        elif cache.deletion is None or _is_finished(cache):
            return True  # without a mark, the metadata topic has lost it: FINISHED is refused
        if cache.deletion is PartitionDeleteState.MARKED:
            await self._say(partition, PartitionDeleteState.STARTED)
        for segment in list(cache.segments()):
            if not wanted() or not await self._remove_segment(cache, segment):
                return False
        if len(cache) or not wanted():
            return False
        if deleted:
            await self._say(partition, PartitionDeleteState.FINISHED)
        return not deleted or _is_finished(cache)

    async def _remove_segment(self, cache: SegmentCache, segment: RemoteSegment) -> bool:
        """Remove one segment. Returns: whether it is gone; if not, its state has changed in the
        meantime."""
        if segment.state is not SegmentState.DELETE_STARTED:
            outcome = await self._step(segment, SegmentState.DELETE_STARTED)
            if outcome.refusal:
                return cache.get(segment.segment_id) is None
        await self._store.delete(segment)
        await self._step(segment, SegmentState.DELETE_FINISHED)
        return cache.get(segment.segment_id) is None

    async def _step(self, segment: RemoteSegment, state: SegmentState) -> Outcome:
        return await self._journal.write(
            SegmentUpdate(
                partition=segment.partition,
                segment_id=segment.segment_id,
                broker_id=self._node_id,
                event_timestamp_ms=self._clock.now_ms(),
                state=state,
            )
        )

    async def _say(self, partition: RemotePartition, state: PartitionDeleteState) -> None:
        await self._journal.write(
            PartitionDeletion(
                partition=partition,
                broker_id=self._node_id,
                event_timestamp_ms=self._clock.now_ms(),
                state=state,
            )
        )

    def _grumble(self, partition: RemotePartition, error: BaseException) -> None:
        held_back = self._quiet.admit()
        if held_back is not None:
            _log.warning(
                "cannot remove remote segments, trying again",
                partition=str(partition),
                error=str(error),
                held_back=held_back,
            )

    async def close(self) -> None:
        """Stop all removals; the next leader, or this broker after its start, continues them."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _is_finished(cache: SegmentCache) -> bool:
    return cache.deletion is PartitionDeleteState.FINISHED
