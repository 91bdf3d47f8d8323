"""Shell: Followers' logs that begin behind the tiered part (KIP-405, KIP-1023).

If the leader has the requested offset only in the tier, a follower copies only the records on the
leader's disk, or only those in no tier. The epochs and the producers' state before that offset come
from the copy that ends there. Nothing is changed before both are available, and no partial result
stays: see `Log.begin_at`. Metadata that is not ready, a copy that another leader has not finished
and a store that is down are errors, after which the follower retries.

Many followers begin at once: the disk writes of several are flushed together, and each has its own
steps in order. Reads of the store have a limit of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from broker.replication.fetching.fetcher import Reset
from broker.replication.fetching.offset_resets import LeaderLog
from broker.replication.partition.effects import Effects
from broker.replication.partition.high_watermark import epochs_saved
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.tiering.counters import BuildCounters
from broker.tiering.record_writer import TierUnavailable
from broker.tiering.roles import remote_of
from broker.tiering.turns import Turns
from protocol.errors import ApiError, ErrorCode
from runtime.log import get_logger
from storage.log.bootstrap import Beginning
from storage.log.checkpoints import CorruptCheckpoint, decode_epochs
from storage.log.errors import LogFailed
from storage.log.indexes import CorruptIndex, decode_aborted
from storage.log.producers import CorruptSnapshot
from storage.objects import ObjectError
from storage.tiered.batches import CorruptSegment
from storage.tiered.cache import SegmentCache
from storage.tiered.layout import Kind
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.values import RemotePartition, RemoteSegment

BEGUN_AT_ONCE: Final = 64
"""Limit for logs that begin at once: flushing this many together takes little longer than flushing
one."""
KNOWN_WAIT_S: Final = 5.0
"""Longest wait for the metadata of a partition before the follower queries its leader again, in
seconds."""

_log = get_logger("broker.tier")


class TierBeginnings:
    """The component that begins followers' logs. See `TierStart`."""

    def __init__(
        self,
        *,
        ready: Callable[[RemotePartition], Awaitable[SegmentCache]],
        cache_of: Callable[[RemotePartition], SegmentCache | None],
        store: SegmentStore,
        at_once: Callable[[], int],
        save_log_starts: Callable[[], Awaitable[None]],
        carry_out: Callable[[Partition, Effects], None],
    ) -> None:
        """Set the dependencies.

        Args:
            ready: `Journal.ready`.
            cache_of: `Journal.cache`.
            at_once: the maximum number of logs for which the store is read at the same time.
            save_log_starts: writes all log starts of this broker durably.
        """
        self._ready = ready
        self._cache_of = cache_of
        self._store = store
        self._begun = Turns(lambda: BEGUN_AT_ONCE)
        self.turns = Turns(at_once)
        self._save_log_starts = save_log_starts
        self._carry_out = carry_out
        self.counters: dict[str, BuildCounters] = {}
        """Counters by topic, for the metrics."""

    async def begin(self, wanted: Reset, leader: LeaderLog) -> None:
        counters = self.counters.setdefault(wanted.partition.topic, BuildCounters())
        counters.requests += 1
        try:
            await self._known(remote_of(wanted.partition))
            async with self._begun:
                await self._begin(wanted, leader)
        except (
            ObjectError, CorruptSegment, CorruptCheckpoint, CorruptIndex, CorruptSnapshot,
        ) as error:  # fmt: skip
            counters.errors += 1
            raise _not_yet(str(error)) from error
        except ValueError as error:
            counters.errors += 1
            raise _not_yet(f"the copy does not fit the leader's log: {error}") from error
        except (ApiError, LogFailed):
            counters.errors += 1
            raise

    async def _begin(self, wanted: Reset, leader: LeaderLog) -> None:
        if not _is_due(wanted):
            return
        segment = await self._copy_before(wanted, leader)
        beginning = await self._beginning(segment, leader)
        if not _is_due(wanted):
            return
        if not self._has(segment):
            raise _not_yet(f"{segment} was removed while it was read")
        partition = wanted.partition
        if not await partition.log.begin_at(
            beginning,
            self._save_log_starts,
            still_wanted=lambda: _is_due(wanted) and self._has(segment),
        ):
            return
        # An election may have happened in the meantime.
        self._carry_out(partition, epochs_saved(partition))
        _log.info(
            "log begins behind the tier",
            topic=partition.topic,
            partition=partition.index,
            log_start=beginning.log_start_offset,
            local_start=beginning.local_start_offset,
        )

    async def _copy_before(self, wanted: Reset, leader: LeaderLog) -> RemoteSegment:
        """Return the copy that has the offset before the begin. Raises ApiError if none is
        known."""
        before = leader.copy_from - 1
        cache = await self._known(remote_of(wanted.partition))
        segment = cache.find(leader.epoch_before, before)
        if segment is None:
            raise _not_yet(f"no copy with offset {before} of epoch {leader.epoch_before} is known")
        return segment

    async def _beginning(self, segment: RemoteSegment, leader: LeaderLog) -> Beginning:
        """Read a copy's epochs and producers. Raises ObjectError, CorruptSegment, CorruptCheckpoint
        or CorruptIndex if they cannot be read."""
        aborted = b""
        async with self.turns:
            manifest = await self._store.manifest(segment)
            encoded, producers = await asyncio.gather(
                self._store.read_whole(manifest, Kind.LEADER_EPOCHS),
                self._store.read_whole(manifest, Kind.PRODUCER_SNAPSHOT),
            )
            if segment.end_offset >= leader.copy_from and not segment.txn_index_empty:
                aborted = await self._store.read_whole(manifest, Kind.TXN_INDEX)
        epochs = decode_epochs(encoded)
        return Beginning(
            log_start_offset=leader.log_start,
            local_start_offset=leader.copy_from,
            epochs=[one for one in epochs if one.start_offset < leader.copy_from],
            producers=producers or None,
            producers_offset=max(segment.end_offset + 1, leader.copy_from),
            aborted=decode_aborted(aborted),
        )

    def _has(self, segment: RemoteSegment) -> bool:
        """Return whether the tier still has a copy that was chosen before a wait."""
        cache = self._cache_of(segment.partition)
        found = None if cache is None else cache.get(segment.segment_id)
        return found is not None and found.state is SegmentState.COPY_FINISHED

    async def _known(self, partition: RemotePartition) -> SegmentCache:
        """Return the partition's metadata cache. A replica that is new here subscribes to the
        metadata only now. Repeated requests to its leader in that time would delay both. Raises
        ApiError if the cache is not ready in time."""
        try:
            async with asyncio.timeout(KNOWN_WAIT_S):
                return await self._ready(partition)
        except (TimeoutError, TierUnavailable):
            raise _not_yet("what the tier has is not known") from None


def _is_due(wanted: Reset) -> bool:
    partition = wanted.partition
    return partition.role is ReplicaRole.FOLLOWER and partition.leader_epoch == wanted.leader_epoch


def _not_yet(why: str) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot begin behind the tier yet: {why}")
