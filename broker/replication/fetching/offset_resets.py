"""Shell: Offset resets of followers whose fetch offset was out of the leader's range.

The follower requests those bounds of the leader's log that its response did not contain;
`follower.reset_to` brings the local log within them. If the leader has the offset only in the tier,
tiered storage restarts the local log behind the tiered part (KIP-405). An empty replica may begin
even later, at the first offset that the tier does not have: then it copies a tenth of what is on
the leader's disk (KIP-1023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from broker.replication.fetching.follower import reset_to
from broker.replication.fetching.leader_questions import FoundOffset, LeaderQuestions
from broker.replication.partition.partition import NO_EPOCH, Partition
from broker.replication.partition.role import ReplicaRole
from metalog.image.features import PENDING_UPLOAD_LEVEL
from protocol.errors import ApiError, ErrorCode
from runtime.marks import mark

if TYPE_CHECKING:
    from broker.replication.fetching.connections import LeaderLink
    from broker.replication.fetching.fetcher import Reset
    from storage.log.config import LogConfig

LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6


class LeaderLog(NamedTuple):
    """Bounds of a leader's log whose beginning is in the tier."""

    log_start: int
    copy_from: int
    """The first offset that the follower copies: the first on the leader's disk, or the first that
    is not in the tier. All earlier offsets, down to the log start, are in the tier."""
    epoch_before: int
    """The epoch of the record before `copy_from`."""


class TierStart(Protocol):
    """Tiered storage, which has the part of the log before a leader's first local offset."""

    async def begin(self, wanted: Reset, leader: LeaderLog) -> None:
        """Empty the log and restart it at `leader.copy_from`, with the state that the earlier part
        requires. Change nothing once the partition's leader epoch differs from that of `wanted`.

        Raises:
            ApiError: the state cannot be read; the reset is retried.
            LogFailed: a disk operation failed.
        """


def may_skip_tiered(metadata_version: int | None, config: LogConfig) -> bool:
    """Return whether replicas of such a topic may begin behind all that the tier has (KIP-1023).
    Below that metadata.version brokers do not report to each other where the tiered part ends. A
    compacted topic has no such offset."""
    return (
        metadata_version is not None
        and metadata_version >= PENDING_UPLOAD_LEVEL
        and config.remote_storage_enable
        and not config.compacted
    )


def never(_partition: Partition) -> bool:
    """Return False: `follower.fetch.last.tiered.offset.enable` is off."""
    return False


class ListOffsetsReset:
    """Reset that requests the leader's bounds with ListOffsets. See `OffsetReset`."""

    def __init__(
        self,
        node_id: int,
        tier: TierStart | None = None,
        *,
        skips_tiered: Callable[[Partition], bool] = never,
    ) -> None:
        """Set up resets. `tier`: None on a broker without a tier. `skips_tiered` returns whether
        an empty replica of a partition must not copy what the tier has (KIP-1023)."""
        self._node_id = node_id
        self._tier = tier
        self._skips_tiered = skips_tiered
        self._questions: WeakKeyDictionary[LeaderLink, LeaderQuestions] = WeakKeyDictionary()

    async def reset(self, link: LeaderLink, wanted: Reset) -> None:
        partition, tier = wanted.partition, self._tier
        start, end = wanted.leader_log_start, -1
        leader: LeaderLog | None = None
        if tier is not None and partition.log.log_end_offset == 0 and self._skips_tiered(partition):
            end = (await self._ask(link, partition, LATEST)).offset
            if end != 0:
                leader = await self._ask_untiered(link, wanted)
                start = leader.log_start
        elif tier is not None and wanted.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            leader = await self._ask_tiered(link, wanted)
        if tier is not None and leader is not None and leader.copy_from > leader.log_start:
            await tier.begin(wanted, leader)
            return
        if end < 0:
            end = (await self._ask(link, partition, LATEST)).offset
        if start < 0:
            start = (await self._ask(link, partition, EARLIEST)).offset
        if partition.role is ReplicaRole.FOLLOWER and partition.leader_epoch == wanted.leader_epoch:
            reset_to(partition, start, end)

    async def _ask_untiered(self, link: LeaderLink, wanted: Reset) -> LeaderLog:
        """Return the leader's bounds, with the first offset that is not in the tier as `copy_from`.

        If that offset is not above the log start, `copy_from` is the log start. Then nothing was
        copied yet, or the tier has only data from before the log start (tiering was off for some
        time).

        Raises:
            OSError, ProtocolError, ApiError: as `LeaderLink.ask`.
            ApiError: OFFSET_NOT_AVAILABLE while the leader does not know the offset yet, or
                contradicts itself.
        """
        partition, start = wanted.partition, wanted.leader_log_start
        if start < 0:
            start = (await self._ask(link, partition, EARLIEST)).offset
        pending = await self._ask(link, partition, EARLIEST_PENDING_UPLOAD)
        if pending.offset < 0:
            local = (await self._ask(link, partition, EARLIEST_LOCAL)).offset
            if local != start:
                mark("replication.tier-end-unknown")
                raise ApiError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"the leader does not know yet what the tier has between its log start {start} "
                    f"and its first local offset {local}",
                )
        if pending.offset <= start:
            if wanted.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                raise ApiError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"the leader has offsets in the tier alone, and none from its log start "
                    f"{start} on",
                )
            mark("replication.nothing-tiered")
            return LeaderLog(start, start, NO_EPOCH)
        epoch = await self._epoch_of(link, partition, pending.offset - 1, pending.leader_epoch)
        mark("replication.begins-untiered")
        return LeaderLog(start, pending.offset, epoch)

    async def _ask_tiered(self, link: LeaderLink, wanted: Reset) -> LeaderLog:
        """Return the leader's bounds, with its first local offset as `copy_from`. The log start is
        requested last: it only grows, and must not precede what the leader deletes in the meantime.

        Raises:
            OSError, ProtocolError, ApiError: as `LeaderLink.ask`.
        """
        partition = wanted.partition
        local = await self._ask(link, partition, EARLIEST_LOCAL)
        epoch = await self._epoch_of(link, partition, local.offset - 1, local.leader_epoch)
        start = (await self._ask(link, partition, EARLIEST)).offset
        return LeaderLog(start, local.offset, epoch)

    async def _epoch_of(
        self, link: LeaderLink, partition: Partition, offset: int, epoch_behind: int
    ) -> int:
        """Return the epoch of `offset` in the leader's log, where the next record has
        `epoch_behind`. It is the last epoch before that one, unless that ended before `offset`. A
        negative `epoch_behind` means that there is no next record: then it is the last epoch with a
        record."""
        if epoch_behind == 0:
            return epoch_behind
        beyond = epoch_behind if epoch_behind > 0 else partition.leader_epoch + 1
        result = await self._of(link).end_of_epoch(link, partition, beyond - 1)
        return result.leader_epoch if result.end_offset > offset else epoch_behind

    async def _ask(self, link: LeaderLink, partition: Partition, timestamp: int) -> FoundOffset:
        return await self._of(link).offset(link, partition, timestamp)

    def _of(self, link: LeaderLink) -> LeaderQuestions:
        questions = self._questions.get(link)
        if questions is None:
            questions = self._questions[link] = LeaderQuestions(self._node_id)
        return questions
