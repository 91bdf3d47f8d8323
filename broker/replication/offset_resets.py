"""Shell: Offset resets of followers that asked for an offset out of the leader's range.

The leader is asked for what it did not tell of its log's bounds; `follower.reset_to` brings the own
log inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.replication.follower import reset_to
from broker.replication.partition import Partition
from broker.replication.replica_role import ReplicaRole
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest

if TYPE_CHECKING:
    from broker.replication.fetcher import Reset
    from broker.replication.fetcher_connections import LeaderLink

LATEST: Final = -1
EARLIEST: Final = -2


class ListOffsetsReset:
    """Asks the leader for its bounds. See `OffsetReset`."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    async def reset(self, link: LeaderLink, wanted: Reset) -> None:
        partition = wanted.partition
        end = await self._offset(link, partition, LATEST)
        start = wanted.leader_log_start
        if start < 0:
            start = await self._offset(link, partition, EARLIEST)
        if partition.role is ReplicaRole.FOLLOWER and partition.leader_epoch == wanted.leader_epoch:
            reset_to(partition, start, end)

    async def _offset(self, link: LeaderLink, partition: Partition, timestamp: int) -> int:
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
        response = await link.ask(request)
        result = response.topics[0].partitions[0]
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), None)
        return result.offset
