"""DeleteRecords (key 21), versions 0-2.

Behaviour: moves the log start of each partition up to the given offset; -1 stands for the high
watermark. The answer is the low watermark, the smallest log start among the in-sync replicas.
An offset below the log start changes nothing. Errors: OFFSET_OUT_OF_RANGE for one above the high
watermark, POLICY_VIOLATION for a topic whose cleanup policy does not delete,
INVALID_TOPIC_EXCEPTION for an internal topic, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from protocol.topic_name import is_internal_topic
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.log import get_logger

MIN_VERSION: Final = 0
MAX_VERSION: Final = 2

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1

_log = get_logger("broker.topics")

_Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(_context: RequestContext, request: DeleteRecordsRequest) -> Reply:
        return delete_records(broker, request)

    table.register(ApiKey.DELETE_RECORDS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def delete_records(broker: BrokerContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Handles every partition on its own."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = _Result(partition_index=wanted.partition_index, low_watermark=NO_LOW_WATERMARK)
            try:
                result.low_watermark = _delete(
                    broker, topic.name, wanted.partition_index, wanted.offset
                )
            except ApiError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(
            DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=results)
        )
    return response


def _delete(broker: BrokerContext, topic: str, index: int, offset: int) -> int:
    if is_internal_topic(topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    partition = broker.replicas.find(topic, index)
    log = partition.require_leader()
    if not broker.settings.of(topic).deletes:
        raise ApiError(ErrorCode.POLICY_VIOLATION, None)
    target = log.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0 or target > log.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, None)
    if log.advance_log_start(target, "records deleted by a client"):
        _log.info("records deleted", topic=topic, partition=index, log_start=target)
    return partition.low_watermark
