"""Shell: Tasks of a broker's tier: copies, expiry, and updates of local retention.

Limits for passes at the same time correspond to Kafka's thread pools. The limits, the rates and the
backoffs follow the newest settings.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from broker.tiering.copying import Copier, CopyRefused
from broker.tiering.counters import TopicCounters
from broker.tiering.expiring import Expirer
from broker.tiering.led import Led, Replica, Seen, TierMetadata, seen_by
from broker.tiering.local_cleaning import note_copied
from broker.tiering.quota import RateLimit
from broker.tiering.record_writer import TierUnavailable
from broker.tiering.restoring import lacks_producers, restore_epochs, restore_producers
from broker.tiering.rounds import Pace, Rounds
from broker.tiering.settings import RemoteSettings, TaskSettings
from protocol.ids import TopicId
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor
from storage.log.checkpoints import CorruptCheckpoint
from storage.log.errors import CorruptLog, LogFailed
from storage.log.indexes import CorruptIndex
from storage.log.log import Log
from storage.log.producers import CorruptSnapshot
from storage.objects import ObjectError
from storage.tiered.batches import CorruptSegment
from storage.tiered.cache import SegmentCache
from storage.tiered.manifest import ManifestBroken
from storage.tiered.segment_store import SegmentStore
from storage.tiered.values import RemotePartition

EXPECTED: Final = (
    ObjectError, CorruptSegment, ManifestBroken, TierUnavailable, CopyRefused,
    OSError, LogFailed, CorruptLog, CorruptIndex, CorruptSnapshot, CorruptCheckpoint,
)  # fmt: skip
"""Failures of the store, the metadata topic or the disk: the pass is repeated later."""

NOTES_AT_ONCE: Final = 100

_log = get_logger("broker.tier")


class TierTasks:
    """Drivers of the partitions that this broker leads or follows.

    Call every method in the order of the role changes.
    """

    def __init__(
        self,
        *,
        node_id: int,
        metadata: TierMetadata,
        store: SegmentStore,
        settings: Callable[[], RemoteSettings],
        save_log_starts: Callable[[], Awaitable[None]],
        supervisor: Supervisor,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._metadata = metadata
        self._store = store
        self._settings = settings
        self._supervisor = supervisor
        self._quiet = RateLimited(clock, 10_000)
        self._replicas: dict[tuple[TopicId, int], Replica] = {}
        self._noted: dict[tuple[TopicId, int], tuple[Seen, int]] = {}
        """By replica: the last inputs of `LogBounds.copied_to`, and its value."""
        self.leading: dict[tuple[TopicId, int], Led] = {}
        self.counters: dict[str, TopicCounters] = {}
        """By topic that this broker has led."""
        self.copy_limit = RateLimit(lambda: settings().copy_quota, clock)
        copier = Copier(
            node_id=node_id,
            metadata=metadata,
            store=store,
            limit=self.copy_limit,
            clock=clock,
            rng=rng,
        )
        expirer = Expirer(
            node_id=node_id,
            metadata=metadata,
            store=store,
            save_log_starts=save_log_starts,
            clock=clock,
        )
        self.copies = Rounds(
            "tier copy",
            copier.copy_once,
            pace=lambda: _pace(settings().tasks, settings().tasks.copies_at_once),
            failed=lambda led, error: self._failed("copy", led, error),
            supervisor=supervisor,
            clock=clock,
            rng=rng,
        )
        self.expirations = Rounds(
            "tier expiry",
            expirer.expire_once,
            pace=lambda: _pace(settings().tasks, settings().tasks.expirations_at_once),
            failed=lambda led, error: self._failed("expiry", led, error),
            supervisor=supervisor,
            clock=clock,
            rng=rng,
        )

        self.notes = Rounds(
            "tier disk",
            self._note,
            pace=lambda: _pace(settings().tasks, NOTES_AT_ONCE),
            failed=lambda partition, error: self._failed("disk", partition, error),
            supervisor=supervisor,
            clock=clock,
            rng=rng,
        )

    # Roles -----------------------------------------------------------------------------------

    def led(self, partition: Replica, remote: RemotePartition) -> None:
        """Start the passes of a partition that this broker leads, in a new epoch or since it is
        tiered."""
        known = self.leading.get(remote.identity)
        if known is not None and known.replica is partition and known.holds:
            return
        self._end(remote)
        counters = self.counters.setdefault(remote.topic, TopicCounters())
        led = self.leading[remote.identity] = Led(partition, remote, counters)
        self._replicas[remote.identity] = partition
        self.copies.add(led)
        self.expirations.add(led)
        self.notes.add(remote)
        self.changed(remote)

    def followed(self, partition: Replica, remote: RemotePartition) -> None:
        """Note a partition that this broker follows: local retention applies to what the leader has
        copied."""
        self._end(remote)
        self._replicas[remote.identity] = partition
        self.notes.add(remote)
        self.changed(remote)

    def stopped(self, remote: RemotePartition) -> None:
        """Stop the passes of a partition that this broker no longer serves, or that is no longer
        tiered."""
        self._end(remote)
        self.notes.remove(remote)
        replica = self._replicas.pop(remote.identity, None)
        self._noted.pop(remote.identity, None)
        if replica is not None:
            note_copied(replica.log, None)

    def _end(self, remote: RemotePartition) -> None:
        led = self.leading.pop(remote.identity, None)
        if led is not None:
            self.copies.remove(led)
            self.expirations.remove(led)

    # Changes of the metadata -----------------------------------------------------------------

    def changed(self, partition: RemotePartition) -> None:
        """Note that a partition's cache has become ready or has changed."""
        replica = self._replicas.get(partition.identity)
        if replica is None:
            return
        self._note_copied(replica.log, partition)
        self._nudge(partition)

    def _nudge(self, partition: RemotePartition) -> None:
        """Trigger the passes of a partition, if this broker leads it."""
        led = self.leading.get(partition.identity)
        if led is None:
            return
        self.copies.nudge(led)
        if not led.has_read_all and self._metadata.leaders_cache(partition) is not None:
            led.has_read_all = True
            # The log start may be in a part that the previous leader deleted: move it before a
            # consumer requests that part.
            self.expirations.nudge(led)

    def _note_copied(self, log: Log, partition: RemotePartition) -> bool:
        """Update `LogBounds.copied_to` if its inputs have changed; return whether they had."""
        cache = self._metadata.cache(partition)
        seen = None if cache is None else seen_by(log, cache)
        if seen is not None and self._noted.get(partition.identity) == (seen, log.bounds.copied_to):
            return False
        note_copied(log, cache)
        if seen is None or log.history.lacks_remote_part or (cache is not None and cache.deletion):
            self._noted.pop(partition.identity, None)
        else:
            self._noted[partition.identity] = seen, log.bounds.copied_to
        return True

    async def _note(self, partition: RemotePartition) -> bool:
        """Update `LogBounds.copied_to` in a periodic pass: a log may only now reach what was copied
        long ago."""
        replica, cache = self._replicas.get(partition.identity), self._metadata.cache(partition)
        if replica is not None and cache is not None:
            await self._restore(replica.log, cache)
        replica = self._replicas.get(partition.identity)
        if replica is not None and self._note_copied(replica.log, partition):
            self._nudge(partition)
        return False

    async def _restore(self, log: Log, cache: SegmentCache) -> None:
        if log.history.lacks_remote_part:
            await restore_epochs(log, cache, self._store)
        elif lacks_producers(log):
            await restore_producers(log, cache, self._store)

    def reconfigured(self) -> None:
        """Apply changed limits for passes."""
        self.copies.reconfigured()
        self.expirations.reconfigured()

    async def close(self) -> None:
        """Cancel the running passes: the next leader removes unfinished copies."""
        await self.notes.close()
        await self.copies.close()
        await self.expirations.close()

    def _failed(self, what: str, partition: Led | RemotePartition, error: BaseException) -> None:
        if not isinstance(error, EXPECTED):
            self._supervisor.survive(f"tier {what}", error, partition=str(partition))
            return
        held_back = self._quiet.admit(f"{what} {partition}")
        if held_back is not None:
            _log.warning(
                f"tier {what} failed, trying again",
                partition=str(partition),
                error=str(error),
                held_back=held_back,
            )


def _pace(tasks: TaskSettings, at_once: int) -> Pace:
    return Pace(at_once, tasks.interval_ms, tasks.backoff_ms, tasks.backoff_max_ms, tasks.jitter)
