"""Shell: Offset resets of followers that asked for an offset out of the leader's range.

The leader is asked for what it did not tell of its log's bounds; `follower.reset_to` brings the own
log inside. Where the leader has the offset in the tier alone, tiered storage begins the log anew
behind it (KIP-405).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.replication.follower import reset_to
from broker.replication.partition import Partition
from broker.replication.replica_role import ReplicaRole
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

if TYPE_CHECKING:
    from broker.replication.fetcher import Reset
    from broker.replication.fetcher_connections import LeaderLink

LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4


class LeaderLog(NamedTuple):
    """The bounds of a leader's log of which a part is in the tier alone."""

    log_start: int
    local_start: int
    """The first offset on the leader's disk."""
    epoch_before: int
    """The epoch that wrote the offset before that."""


class TierStart(Protocol):
    """Tiered storage, which knows what lies before a leader's first local offset."""

    async def begin(self, wanted: Reset, leader: LeaderLog) -> None:
        """Empties the log and begins it at the leader's first local offset, with all that must be
        known of the part before. Touches nothing if the partition's leader epoch is not that of
        `wanted` any more. Raises ApiError: it is tried again; LogFailed."""


class ListOffsetsReset:
    """Asks the leader for its bounds. See `OffsetReset`. `tier` None: there is no tier here."""

    def __init__(self, node_id: int, tier: TierStart | None = None) -> None:
        self._node_id = node_id
        self._tier = tier

    async def reset(self, link: LeaderLink, wanted: Reset) -> None:
        partition = wanted.partition
        if wanted.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and self._tier is not None:
            leader = await self._ask_tiered(link, wanted)
            if leader.local_start > leader.log_start:
                await self._tier.begin(wanted, leader)
                return
        end = (await self._ask(link, partition, LATEST)).offset
        start = wanted.leader_log_start
        if start < 0:
            start = (await self._ask(link, partition, EARLIEST)).offset
        if partition.role is ReplicaRole.FOLLOWER and partition.leader_epoch == wanted.leader_epoch:
            reset_to(partition, start, end)

    async def _ask_tiered(self, link: LeaderLink, wanted: Reset) -> LeaderLog:
        """The log start is asked for last: it only grows, and must not be behind what the leader
        deletes meanwhile. Raises as `LeaderLink.ask`, ApiError."""
        partition = wanted.partition
        local = await self._ask(link, partition, EARLIEST_LOCAL)
        epoch = await self._epoch_of(link, partition, local.offset - 1, local.leader_epoch)
        start = (await self._ask(link, partition, EARLIEST)).offset
        return LeaderLog(start, local.offset, epoch)

    async def _epoch_of(
        self, link: LeaderLink, partition: Partition, offset: int, epoch_behind: int
    ) -> int:
        """The epoch of `offset` in the leader's log, behind which is one of `epoch_behind`: the
        last epoch before that one, unless that ended before `offset`. Nothing may be behind it:
        then it is the last epoch that wrote anything."""
        if epoch_behind == 0:
            return epoch_behind
        beyond = epoch_behind if epoch_behind > 0 else partition.leader_epoch + 1
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch,
            leader_epoch=beyond - 1,
        )
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic=partition.topic, partitions=[asked]
        )
        request = OffsetForLeaderEpochRequest(replica_id=self._node_id, topics=[topic])
        result = (await link.ask(request)).topics[0].partitions[0]
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), None)
        return result.leader_epoch if result.end_offset > offset else epoch_behind

    async def _ask(
        self, link: LeaderLink, partition: Partition, timestamp: int
    ) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=partition.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        result = (await link.ask(request)).topics[0].partitions[0]
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), None)
        return result
