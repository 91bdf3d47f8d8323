"""GetReplicaLogInfo (key 10001), version 0: how far this broker's logs reach (KIP-966).

Behaviour: for each replica the leader epoch of its last batch, the log end, and the partition's
leader epoch as this broker knows it. An active controller compares the answers of all replicas if
no replica is certain to have everything. The answers are valid for the broker epoch in the
response: a later process of this broker may find another log.

The epoch is that of the last batch, not the latest one of the epoch cache. A leader that wrote
nothing records its epoch there too, and would win over a replica that has more. A log that
retention has emptied answers with the epoch of its former last batch, -1 if that is not known. It
has no record that could be lost, so any replica with a batch goes first.

Served only to nodes and tools of this implementation, at the brokers' listener: Kafka has no such
API. Controllers send it, and `kraftbox elect`. Brokers recognise each other by it
(`protocol/private_numbers.py`).

Errors per partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (no
replica here, or its log is not open yet), KAFKA_STORAGE_ERROR (its log has failed, or is about to
begin behind the tier), REQUEST_LIMIT_REACHED (beyond 1,000 partitions), INVALID_REQUEST (meant for
another broker).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.context import BrokerContext
from broker.replication.partition.role import ReplicaRole
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.get_replica_log_info import (
    PARTITIONS_PER_REQUEST_MAX,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from protocol.transport.own_names import EVERY_KIND

VERSION: Final = 0

_Info = GetReplicaLogInfoResponse.PartitionLogInfo


def register(table: HandlerTable, broker: BrokerContext, broker_epoch: Callable[[], int]) -> None:
    """Serve the API from `table`, to nodes and tools of this implementation."""

    def handle(_context: RequestContext, request: GetReplicaLogInfoRequest) -> Reply:
        return log_infos(broker, request, broker_epoch())

    table.register(
        ApiKey.GET_REPLICA_LOG_INFO,
        handle,
        min_version=VERSION,
        max_version=VERSION,
        own=EVERY_KIND,
        own_only=True,
    )


def log_infos(
    broker: BrokerContext, request: GetReplicaLogInfoRequest, broker_epoch: int
) -> GetReplicaLogInfoResponse:
    """Return the log's bounds for every partition, with an error per partition."""
    response = GetReplicaLogInfoResponse(broker_epoch=broker_epoch)
    left = PARTITIONS_PER_REQUEST_MAX
    for topic in request.topic_partitions or ():
        infos = []
        for index in topic.partitions:
            left -= 1
            info = _Info(partition=index, error_message=None)
            try:
                if request.broker_id != broker.node_id:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST,
                        f"the request is for broker {request.broker_id}, this is {broker.node_id}",
                    )
                if left < 0:
                    raise ApiError(ErrorCode.REQUEST_LIMIT_REACHED, None)
                _fill(broker, topic.topic_id, info)
            except ApiError as error:
                info.error_code, info.error_message = error.code, error.text
            infos.append(info)
        response.topic_partition_log_info_list.append(
            GetReplicaLogInfoResponse.TopicPartitionLogInfo(
                topic_id=topic.topic_id, partition_log_info=infos
            )
        )
    return response


def _fill(broker: BrokerContext, topic_id: bytes, info: _Info) -> None:
    """Fill in the log's bounds. Raises ApiError if the replica or its log is not available."""
    partition = broker.replicas.find_by_id(topic_id, info.partition)
    log = partition.log
    if partition.role is ReplicaRole.OFFLINE or log.failure is not None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, None)
    if log.bounds.bootstrapping:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is about to restart behind the tier")
    if partition.role is ReplicaRole.DELETED:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    info.current_leader_epoch = partition.leader_epoch
    info.last_written_leader_epoch = log.history.last_batch_epoch
    info.log_end_offset = log.log_end_offset
