"""CreatePartitions (key 37), versions 0-3.

Behaviour: raises the partition count of topics. New partitions are placed like those of a new
topic, or as the request assigns them. Each topic succeeds or fails alone. With validate_only
nothing is written.

Errors per topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (not above the current count),
INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_REQUEST (named twice),
THROTTLING_QUOTA_EXCEEDED (from version 3 on, KIP-599). For all topics: POLICY_VIOLATION,
REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.topics.change import PartitionsOutcome, decide_create_partitions
from controller.writer.mutations import submit_within_quota
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 3
STRICT_VERSION = 3
"""First version in which a client over its quota is refused (KIP-599)."""


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: CreatePartitionsRequest) -> Reply:
        return submit_within_quota(
            controller,
            context,
            lambda view, spending: decide_create_partitions(view, request, spending),
            lambda outcomes: CreatePartitionsResponse(results=[_result(o) for o in outcomes]),
            strict_from=STRICT_VERSION,
            fail=lambda error: _failed(request, error),
            timeout_ms=request.timeout_ms,
        )

    table.register(
        ApiKey.CREATE_PARTITIONS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _failed(request: CreatePartitionsRequest, error: ApiError) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=[_result(PartitionsOutcome(name, error)) for name in names]
    )


def _result(outcome: PartitionsOutcome) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult(name=outcome.name)
    if outcome.error is not None:
        result.error_code = outcome.error.code
        result.error_message = outcome.error.text
    return result
