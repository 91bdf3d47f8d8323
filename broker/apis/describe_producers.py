"""DescribeProducers (key 61), version 0 (KIP-664).

Behaviour: the producers in the state of a partition's leader, with their last sequence and the
start of an open transaction. Errors per partition: INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
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
from storage.log.producers import ProducerState

VERSION: Final = 0
NO_TRANSACTION: Final = -1
AT_ONCE_MAX: Final = 500
"""Producers and partitions of a response that is made at once."""
STEP: Final = 50
"""Producers per step: 150 us."""


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(_context: RequestContext, request: DescribeProducersRequest) -> Reply:
        return describe(broker, request)

    table.register(ApiKey.DESCRIBE_PRODUCERS, handle, min_version=VERSION, max_version=VERSION)


def describe(
    broker: BrokerContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    """Return the producers of every partition, with an error per partition.

    The response comes at once if there are few producers, otherwise as a coroutine: a partition may
    have 100,000, which take 250 ms.
    """
    response = DescribeProducersResponse()
    steps = _steps(broker, request, response)
    described = 0
    for count in steps:
        described += count
        if described > AT_ONCE_MAX:
            return _in_slices(broker, steps, response)
    return response


async def _in_slices(
    broker: BrokerContext, steps: Iterator[int], response: DescribeProducersResponse
) -> DescribeProducersResponse:
    await broker.slices.turn()
    for count in steps:
        await broker.slices.breathe(count)
    return response


def _steps(
    broker: BrokerContext, request: DescribeProducersRequest, response: DescribeProducersResponse
) -> Iterator[int]:
    """Fill the response; yield the weight of each step."""
    for topic in request.topics:
        described = DescribeProducersResponse.TopicResponse(name=topic.name)
        response.topics.append(described)
        for index in topic.partition_indexes:
            result = DescribeProducersResponse.PartitionResponse(partition_index=index)
            described.partitions.append(result)
            yield 1
            yield from _describe(broker, topic.name, result)


def _describe(
    broker: BrokerContext, topic: str, result: DescribeProducersResponse.PartitionResponse
) -> Iterator[int]:
    """Fill the answer for one partition. A producer that changes between two steps is reported with
    its later state, a new one not at all."""
    try:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        log = broker.replicas.find(topic, result.partition_index).require_leader()
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.text
        return
    states = list(log.producers)
    for at in range(0, len(states), STEP):
        part = states[at : at + STEP]
        result.active_producers += map(_state, part)
        yield len(part)


def _state(state: ProducerState) -> DescribeProducersResponse.ProducerState:
    first = state.txn_first_offset
    return DescribeProducersResponse.ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp_ms,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=NO_TRANSACTION if first is None else first,
    )
