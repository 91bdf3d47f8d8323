"""The log ends of a partition's replicas, as their brokers report them on request (KIP-966).

The controller requests them during an unclean recovery only. A person who must choose whom to elect
needs them at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from client.cluster_client import ClusterClient
from client.errors import Refused
from client.leaders import TopicPartition
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest

ANSWER_MS = 1_000.0


class ReplicaLog(NamedTuple):
    """A replica's log: leader epoch of its last batch, log end offset, size in bytes (-1 unknown).

    Logs are compared by `end`: the later epoch wins, then the higher offset.
    """

    last_epoch: int
    end_offset: int
    size_bytes: int = -1

    @property
    def end(self) -> tuple[int, int]:
        return self.last_epoch, self.end_offset


ReplicaLogs: TypeAlias = Mapping[int, ReplicaLog | str]
"""The logs by broker; for a broker without answer the reason, which completes "broker N ..."."""


class Replicas(NamedTuple):
    """The replicas of a partition in assignment order, with what their brokers report."""

    assigned: Sequence[int]
    logs: ReplicaLogs

    @property
    def known(self) -> dict[int, ReplicaLog]:
        """The logs of the brokers that answered."""
        return {id_: log for id_, log in self.logs.items() if isinstance(log, ReplicaLog)}


async def replicas_of(client: ClusterClient, partition: TopicPartition) -> Replicas:
    """Request the logs of a partition from all its brokers, in parallel. Raises OSError."""
    name, index = partition
    answer = await client.metadata([name])
    topic = answer.topics[0]
    found = next((one for one in topic.partitions if one.partition_index == index), None)
    if found is None:
        return Replicas((), {})
    live = {broker.node_id for broker in answer.brokers}
    logs = await asyncio.gather(
        *(
            _log_at(client, topic.topic_id, partition, broker_id) if broker_id in live else _down()
            for broker_id in found.replica_nodes
        )
    )
    return Replicas(found.replica_nodes, dict(zip(found.replica_nodes, logs, strict=True)))


async def _down() -> str:
    return "is down or fenced"


async def _log_at(
    client: ClusterClient, topic_id: bytes, partition: TopicPartition, broker_id: int
) -> ReplicaLog | str:
    name, index = partition
    request = GetReplicaLogInfoRequest(
        broker_id=broker_id,
        topic_partitions=[
            GetReplicaLogInfoRequest.TopicPartitions(topic_id=topic_id, partitions=[index])
        ],
    )
    try:
        answer = await client.request_broker(broker_id, request, ANSWER_MS)
        info = answer.topic_partition_log_info_list[0].partition_log_info[0]
        if info.error_code:
            return f"reports {Refused('', info.error_code, info.error_message).reason}"
        size = await _size_at(client, broker_id, name, index)
    except ApiError as error:
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            return "does not report its log: it is not a Kraftbox broker"
        return f"reports {error}"
    except (OSError, ProtocolError, IndexError):
        return "does not answer"
    return ReplicaLog(info.last_written_leader_epoch, info.log_end_offset, size)


async def _size_at(client: ClusterClient, broker_id: int, name: str, index: int) -> int:
    """Return the size of the local log in bytes, -1 if the broker does not report it."""
    topic = DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[index])
    answer = await client.request_broker(
        broker_id, DescribeLogDirsRequest(topics=[topic]), ANSWER_MS
    )
    return next(
        (
            one.partition_size
            for directory in answer.results
            for found in directory.topics
            for one in found.partitions
        ),
        -1,
    )
