"""Shell: Roles of tiered partitions, and the effects of their changes.

Components that work on remote segments are notified, in order, of what this broker leads, follows,
or has stopped serving. The journal is notified of what it must read.

A replica of a deleted topic marks the removal of the topic's remote segments before its folder is
deleted. The folder is renamed to `-stray`, and a broker that stops before the mark finds it at its
next start. If tiering was switched off earlier and no leader has cleared the segments since, the
replicas check for them. Only segments in the metadata count.

A topic id that is missing in the image belongs to a deleted topic if there was a replica of it
here: images never go back.
"""

from __future__ import annotations

import asyncio
import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.metadata.cache import MetadataCache
from broker.metadata.topic_settings import TopicSettings
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.tiering.journal import Journal
from broker.tiering.pauses import Pauses
from broker.tiering.record_writer import TierUnavailable
from broker.tiering.removal import Remover
from protocol.ids import TopicId
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.log.directory import parse_folder
from storage.log.errors import CorruptLog
from storage.log.manager import LogManager
from storage.log.topic_id_file import load_topic_id
from storage.tiered.records import METADATA_TOPIC
from storage.tiered.states import PartitionDeleteState
from storage.tiered.values import PartitionDeletion, RemotePartition

_log = get_logger("broker.tier")


class RoleUser(Protocol):
    """A component that works on remote segments of partitions. Calls are synchronous and in
    order."""

    def led(self, partition: Partition, remote: RemotePartition) -> None:
        """Note that this broker leads the partition, in a new epoch or since the topic became
        tiered."""

    def followed(self, partition: Partition, remote: RemotePartition) -> None:
        """Note that this broker follows another leader, or waits for one."""

    def stopped(self, remote: RemotePartition) -> None:
        """Note that this broker has no replica any more, or that the topic is no longer tiered."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The folder of a deleted topic's replica. `tiered`: True if the topic certainly was; None if
    that and the origin of the folder are unknown."""

    remote: RemotePartition
    folder: str
    tiered: bool | None


class Roles:
    """Roles of a broker's tiered partitions. See `TierListener` for the notifications that it
    receives."""

    def __init__(
        self,
        *,
        node_id: int,
        journal: Journal,
        remover: Remover,
        settings: Callable[[str], TopicSettings],
        metadata: MetadataCache,
        logs: LogManager,
        supervisor: Supervisor,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._node_id = node_id
        self._journal = journal
        self._remover = remover
        self._settings = settings
        self._metadata = metadata
        self._logs = logs
        self._supervisor = supervisor
        self._clock = clock
        self._rng = rng
        self._quiet = RateLimited(clock, 10_000)
        self._users: list[RoleUser] = []
        self._tiered: dict[tuple[TopicId, int], RemotePartition] = {}
        """Tiered partitions with a replica here."""
        self._were_tiered: dict[tuple[TopicId, int], bool] = {}
        """Stopped or no longer tiered replicas whose folders still exist; True if there certainly
        are remote segments."""
        self._marking: set[asyncio.Task[None]] = set()

    def add(self, user: RoleUser) -> None:
        """Register a component, before the first role is assigned."""
        self._users.append(user)

    # Role changes of replicas ----------------------------------------------------------------

    def led(self, partition: Partition) -> None:
        if self._take(partition):
            self._journal.lead(remote_of(partition))
            for user in self._users:
                user.led(partition, remote_of(partition))
        elif self._is_to_be_cleared(partition):
            self._clear(partition)
        else:
            self._remover.leave(remote_of(partition))

    def followed(self, partition: Partition) -> None:
        self._remover.leave(remote_of(partition))
        if self._take(partition):
            for user in self._users:
                user.followed(partition, remote_of(partition))
        elif self._may_have_copies(partition):
            self._were_tiered.setdefault(remote_of(partition).identity, False)

    def stopped(self, partition: Partition) -> None:
        remote = remote_of(partition)
        self._remover.leave(remote)
        if remote.identity in self._tiered:
            self._were_tiered[remote.identity] = True
            self._release(remote)

    def configured(self, partition: Partition) -> None:
        remote = remote_of(partition)
        was = remote.identity in self._tiered
        if was is self._settings(partition.topic).tiered:
            return
        if was:
            self._release(remote)
            self._were_tiered[remote.identity] = False
        if partition.is_leader:
            self.led(partition)
        elif partition.role is ReplicaRole.FOLLOWER:
            self.followed(partition)

    def _take(self, partition: Partition) -> bool:
        """Take the partition on if its topic is tiered; return whether it is."""
        if not self._settings(partition.topic).tiered:
            return False
        remote = remote_of(partition)
        if remote.identity not in self._tiered:
            self._tiered[remote.identity] = remote
            self._were_tiered.pop(remote.identity, None)
            self._journal.take(remote)
            self._remover.leave(remote)
        return True

    def _release(self, remote: RemotePartition) -> None:
        del self._tiered[remote.identity]
        for user in self._users:
            user.stopped(remote)
        self._journal.give_up(remote)

    # Tiering that was switched off -----------------------------------------------------------

    def _may_have_copies(self, partition: Partition) -> bool:
        settings = self._settings(partition.topic)
        return (
            not settings.tiered
            and settings.tier_deleted_on_disable
            and self._metadata.topic(METADATA_TOPIC) is not None
        )

    def _is_to_be_cleared(self, partition: Partition) -> bool:
        return partition.is_leader and self._may_have_copies(partition)

    def _clear(self, partition: Partition) -> None:
        remote = remote_of(partition)
        self._were_tiered.setdefault(remote.identity, False)
        # The topic may have been tiered in an earlier process: the log start must be on disk before
        # copies are deleted.
        partition.log.bounds.was_tiered = True
        self._remover.clear(remote, lambda: self._is_to_be_cleared(partition))

    # Folders of deleted topics ---------------------------------------------------------------

    def keeps_folder(self, partition: Partition) -> bool:
        known = remote_of(partition).identity in self._were_tiered
        gone = self._metadata.topic_by_id(partition.topic_id) is None
        if known and not gone:
            del self._were_tiered[remote_of(partition).identity]
        return known and gone

    def folder_kept(self, topic: str, index: int, topic_id: bytes | None, folder: str) -> None:
        if topic_id is None or self._metadata.topic_by_id(topic_id) is not None:
            return
        remote = RemotePartition(TopicId(topic_id), index, topic)
        tiered = self._were_tiered.pop(remote.identity, None)
        if tiered or self._metadata.topic(METADATA_TOPIC) is not None:
            self._mark_soon(_Kept(remote, folder, tiered))

    def look_at_strays(self, folders: Sequence[str]) -> None:
        """Check the folders that an earlier process of this broker renamed to `-stray`. Call it
        once the image has caught up."""
        for folder in folders:
            try:
                named = parse_folder(posixpath.basename(folder))
                topic_id = load_topic_id(self._logs.files, folder)
            except (ValueError, CorruptLog):
                continue
            self.folder_kept(named.topic, named.partition, topic_id, folder)

    def _mark_soon(self, kept: _Kept) -> None:
        task = self._supervisor.spawn(f"mark {kept.remote}", self._mark(kept), fatal=False)
        self._marking.add(task)
        task.add_done_callback(self._marked)

    def _marked(self, task: asyncio.Task[None]) -> None:
        self._marking.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._supervisor.survive("mark of a removal", error)

    async def _mark(self, kept: _Kept) -> None:
        pauses = Pauses(self._rng)
        remote = kept.remote
        self._journal.take(remote)
        try:
            while True:
                try:
                    cache = await self._journal.ready(remote)
                    if cache.deletion is not None:
                        break
                    if not kept.tiered and not len(cache):
                        if kept.tiered is None:
                            return  # no evidence that it was ever tiered: a stray like others
                        break
                    await self._journal.write(
                        PartitionDeletion(
                            partition=remote,
                            broker_id=self._node_id,
                            event_timestamp_ms=self._clock.now_ms(),
                            state=PartitionDeleteState.MARKED,
                        )
                    )
                except TierUnavailable as error:
                    if self._quiet.admit() is not None:
                        _log.warning("cannot write the deletion mark, retrying", error=str(error))
                    await asyncio.sleep(pauses.next_s())
        finally:
            self._journal.give_up(remote)
        self._logs.remove_stray(kept.folder)

    async def close(self) -> None:
        """Stop marking; removals that are not marked yet are found at the next start."""
        tasks = list(self._marking)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def remote_of(partition: Partition) -> RemotePartition:
    """Return the tier's name for a partition."""
    return RemotePartition(TopicId(partition.topic_id), partition.index, partition.topic)
