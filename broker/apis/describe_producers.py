"""DescribeProducers (key 61), version 0 (KIP-664).

Behaviour: the producers in the state of a partition's leader, with their last sequence and the
start of an open transaction. Errors per partition: INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from protocol.topic_name import topic_name_problem
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

VERSION: Final = 0
NO_TRANSACTION: Final = -1


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(_context: RequestContext, request: DescribeProducersRequest) -> Reply:
        return describe(broker, request)

    table.register(ApiKey.DESCRIBE_PRODUCERS, handle, min_version=VERSION, max_version=VERSION)


def describe(broker: BrokerContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Return the producers of every partition, with an error per partition."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        response.topics.append(
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _partition(broker, topic.name, index) for index in topic.partition_indexes
                ],
            )
        )
    return response


def _partition(
    broker: BrokerContext, topic: str, index: int
) -> DescribeProducersResponse.PartitionResponse:
    result = DescribeProducersResponse.PartitionResponse(partition_index=index)
    try:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        log = broker.replicas.find(topic, index).require_leader()
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.text
        return result
    for state in log.producers:
        first = state.txn_first_offset
        result.active_producers.append(
            DescribeProducersResponse.ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp_ms,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=NO_TRANSACTION if first is None else first,
            )
        )
    return result
