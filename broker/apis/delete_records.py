"""DeleteRecords (key 21), versions 0-2.

Behaviour: moves the log start of each partition up to the given offset; -1 stands for the high
watermark. The answer contains the low watermark, the smallest log start among the in-sync replicas,
and waits until that has reached the offset. If followers take longer than the request allows, the
error is REQUEST_TIMED_OUT; the records are deleted nevertheless. An offset below the log start
changes nothing.

Errors: OFFSET_OUT_OF_RANGE for an offset above the high watermark, POLICY_VIOLATION for a topic
whose cleanup policy does not delete, INVALID_TOPIC_EXCEPTION for an internal topic,
NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.context import BrokerContext
from broker.replication.partition.partition import Partition
from broker.replication.waiting.waits import DeleteRecordsWait, ProduceWait
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from protocol.topic_name import is_internal_topic
from protocol.transport.dispatch import Body, HandlerTable, Reply, RequestContext
from runtime.log import get_logger

if TYPE_CHECKING:
    import asyncio

MIN_VERSION: Final = 0
MAX_VERSION: Final = 2

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1

_log = get_logger("broker.topics")

_Data = DeleteRecordsResponse.DeleteRecordsPartitionResult


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: DeleteRecordsRequest) -> Reply:
        return delete_records(broker, context, request)

    table.register(ApiKey.DELETE_RECORDS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


class _Result(NamedTuple):
    """A partition's part of the response, and the partition that determines its low watermark."""

    partition: Partition | None
    data: DeleteRecordsResponse.DeleteRecordsPartitionResult


def delete_records(
    broker: BrokerContext, context: RequestContext, request: DeleteRecordsRequest
) -> Reply:
    """Delete the records of every partition separately; wait for the slowest one."""
    response = DeleteRecordsResponse()
    waits = broker.waits
    future: asyncio.Future[Body] = waits.new_future()
    results: list[_Result] = []

    def answer(wait: ProduceWait) -> None:
        waits.purgatory.remove(wait)
        if not future.done():
            future.set_result(_finished(response, results))

    def mark(slot: _Result, error: ErrorCode) -> None:
        slot.data.error_code = error

    wait = DeleteRecordsWait(mark, answer, future.cancel)
    for topic in request.topics:
        answered = DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answered)
        for wanted in topic.partitions:
            index = wanted.partition_index
            result = _Result(None, _Data(partition_index=index, low_watermark=NO_LOW_WATERMARK))
            try:
                partition, target = _delete(broker, topic.name, index, wanted.offset)
            except ApiError as error:
                result.data.error_code = error.code
            else:
                result = result._replace(partition=partition)
                if partition.wait_for_low_watermark(target, wait, result):
                    wait.pending.append(result)
            results.append(result)
            answered.partitions.append(result.data)
    if not wait.pending:
        return _finished(response, results)
    deadline_ms = broker.clock.monotonic_ms() + max(0, request.timeout_ms)
    waits.hold(wait, deadline_ms, context.connection)
    return future


def _finished(response: DeleteRecordsResponse, results: list[_Result]) -> DeleteRecordsResponse:
    for partition, data in results:
        if partition is not None and not data.error_code:
            data.low_watermark = partition.low_watermark
    return response


def _delete(broker: BrokerContext, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """Move the log start. Returns: the partition, and the offset that its low watermark must
    reach."""
    if is_internal_topic(topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    partition = broker.replicas.find(topic, index)
    log = partition.require_leader()
    if not broker.settings.of(topic).deletes:
        raise ApiError(ErrorCode.POLICY_VIOLATION, None)
    target = log.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0 or target > log.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, None)
    if log.advance_log_start(target):
        _log.info("records deleted", topic=topic, partition=index, log_start=target)
    return partition, target
