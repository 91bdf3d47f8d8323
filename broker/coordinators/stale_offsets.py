"""Shell: Deletion of the offsets of deleted topics, in the background.

Each loaded shard has at most one task. It appends the tombstones of all stale offsets
(`group/deleted_topics.py`) and searches again after a further deletion, or after a refused append.
Deletions that a shard saw are handed to the shard that replaces it, as long as this broker leads:
offsets without a topic id are stale only for a coordinator that knows of the deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from broker.coordinators.group.deleted_topics import DeletedTopics
from broker.coordinators.group.shard import GroupShard
from broker.coordinators.runtime.loading import LOAD_PAUSE_MAX_S, LOAD_PAUSE_S
from broker.coordinators.runtime.runtime import CoordinatorRuntime
from runtime.tasks import Supervisor


class _Search:
    """The search in one loaded shard. `again`: there may be stale offsets."""

    __slots__ = ("again", "running", "shard")

    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard
        self.again = False
        self.running = False


class _Handover:
    """Deletions for a shard that is loading: `seen` by the shard before it, and the `names` of
    topics deleted since."""

    __slots__ = ("names", "seen")

    def __init__(self) -> None:
        self.seen: list[DeletedTopics] = []
        self.names: set[str] = set()


class StaleOffsets:
    """The offsets of deleted topics in all shards of a group coordinator."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], supervisor: Supervisor) -> None:
        self._runtime = runtime
        self._supervisor = supervisor
        self._searches: dict[int, _Search] = {}
        self._handovers: dict[int, _Handover] = {}

    def is_searching(self, partition: int) -> bool:
        """Return whether a task deletes stale offsets of this partition."""
        search = self._searches.get(partition)
        return search is not None and search.running

    def topics_deleted(self, names: Collection[str]) -> None:
        """Delete the offsets of topics with these names, which have been deleted and are missing in
        the metadata image."""
        for partition, shard in self._runtime.partitions():
            if shard is None:
                self._handovers.setdefault(partition, _Handover()).names.update(names)
            else:
                shard.deletions.note(names, shard.appended)
                self._start(partition, self._searches[partition])

    def loaded(self, partition: int, shard: GroupShard) -> None:
        """Search a shard that has just been put into service."""
        earlier = self._handovers.pop(partition, None)
        if earlier is not None:
            shard.deletions.take_over(earlier.seen, shard.appended)
            if earlier.names:
                shard.deletions.note(earlier.names, shard.appended)
        search = self._searches[partition] = _Search(shard)
        self._start(partition, search)

    def dropped(self, partition: int, shard: GroupShard) -> None:
        """Keep the deletions that a shard saw for the next one."""
        del self._searches[partition]
        self._handovers.setdefault(partition, _Handover()).seen = shard.deletions.entries

    def closed(self, partition: int) -> None:
        """Forget the deletions: another broker coordinates this partition."""
        self._handovers.pop(partition, None)

    def _start(self, partition: int, search: _Search) -> None:
        """Start the task of a shard, or make the running one search again."""
        search.again = True
        if not search.running:
            search.running = True
            self._supervisor.spawn(
                f"forget offsets of partition {partition}", self._forget(partition, search)
            )

    async def _forget(self, partition: int, search: _Search) -> None:
        """Append all tombstones, with retries. Ends early if the shard is dropped: the next one
        searches again."""
        pause_s, shard = LOAD_PAUSE_S, search.shard
        while search.again and self._runtime.serves(partition, shard):
            search.again = False
            deleted, whole = list(shard.deletions.entries), False
            try:
                whole = await self._runtime.carry_out_in_slices(
                    partition, shard, shard.decide_stale()
                )
            except Exception as error:  # noqa: BLE001 - the log may contain any bytes of clients
                self._supervisor.survive("offsets of deleted topics", error)
            if whole:
                shard.deletions.forget(deleted)
                pause_s = LOAD_PAUSE_S
            elif self._runtime.serves(partition, shard):
                search.again = True
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOAD_PAUSE_MAX_S)
        search.running = False
