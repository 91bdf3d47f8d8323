"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

Behaviour: like Metadata without brokers, but in pages and with ELR. Topics come in the order of
their names; all of them for an empty list. A page ends after `response_partition_limit`
partitions (at most `max.request.partition.size.limit`), and `next_cursor` says where the next one
begins. A cursor on a topic that is gone goes on with the next name. Unknown names are
UNKNOWN_TOPIC_OR_PARTITION, illegal ones INVALID_TOPIC_EXCEPTION. A cursor with a negative
partition, or on a topic that is not among those asked for, is INVALID_REQUEST: the response has no
error of its own, so every topic asked for bears it; where all are asked for the answer is empty.
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from broker.metadata.topic_view import Reachable
from metalog.image.values import NO_LEADER, PartitionImage, TopicImage
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.topic_name import is_internal_topic, topic_name_problem
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from serving.authorized_operations import TOPIC_OPERATIONS

VERSION: Final = 0

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Reply:
        return describe(broker, context.listener, request)

    table.register(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle, min_version=VERSION, max_version=VERSION
    )


def describe(
    broker: BrokerContext, listener: str, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One page."""
    first_topic, first_index = "", 0
    if request.cursor is not None:
        first_topic, first_index = request.cursor.topic_name, request.cursor.partition_index
        named = {topic.name for topic in request.topics}
        if first_index < 0 or (named and first_topic not in named):
            return DescribeTopicPartitionsResponse(
                topics=[
                    _Topic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                    for topic in request.topics
                ]
            )
    left = max(1, min(broker.static.described_partitions_max, request.response_partition_limit))
    metadata = broker.metadata
    names = sorted({topic.name for topic in request.topics}) or metadata.topic_names()
    reachable = Reachable(metadata, listener)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if name < first_topic:
            continue
        topic = metadata.topic(name)
        begin = first_index if name == first_topic else 0
        if left <= 0:
            response.next_cursor = _cursor(name, begin)
            break
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        indexes = sorted(index for index in topic.partitions if index >= begin)
        response.topics.append(_topic(topic, indexes[:left], reachable))
        if len(indexes) > left:
            response.next_cursor = _cursor(name, indexes[left])
            break
        left -= len(indexes)
    return response


def _cursor(name: str, index: int) -> DescribeTopicPartitionsResponse.Cursor:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=index)


def _unknown(name: str) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    legal = topic_name_problem(name) is None
    return _Topic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        is_internal=is_internal_topic(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    topic: TopicImage, indexes: list[int], reachable: Reachable
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return _Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal_topic(topic.name),
        partitions=[_partition(index, topic.partitions[index], reachable) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    index: int, partition: PartitionImage, reachable: Reachable
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    return _Partition(
        error_code=reachable.leader_error(partition.leader),
        partition_index=index,
        leader_id=partition.leader if partition.leader in reachable.ids else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=reachable.offline(partition.replicas),
    )
