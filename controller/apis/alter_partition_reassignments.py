"""AlterPartitionReassignments (key 45), versions 0-1.

Behaviour: assigns partitions another list of replicas, or (null) cancels the ongoing reassignment
and restores the previous list. The controller answers once the target is committed to the metadata
log. The data moves after that; ListPartitionReassignments shows the progress.

Versions: 1 can forbid that the replication factor changes.

Errors per partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT (also for a
cancellation that would need an unclean election), INVALID_REPLICATION_FACTOR,
NO_REASSIGNMENT_IN_PROGRESS. For all: POLICY_VIOLATION, REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.topics.reassignments import ReassignOutcome, decide_reassign
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 1


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Reply:
        return controller.submit(
            lambda view: decide_reassign(view, request),
            lambda outcomes: _response(request, outcomes),
            timeout_ms=request.timeout_ms,
        )

    table.register(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        handle,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
    )


def _response(
    request: AlterPartitionReassignmentsRequest, outcomes: tuple[ReassignOutcome, ...]
) -> AlterPartitionReassignmentsResponse:
    by_topic: dict[str, AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = {}
    for outcome in outcomes:
        topic = by_topic.get(outcome.topic)
        if topic is None:
            topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=outcome.topic
            )
            by_topic[outcome.topic] = topic
        error = outcome.error
        topic.partitions.append(
            AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                partition_index=outcome.partition_id,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.text,
            )
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if request.topics else "",
        responses=list(by_topic.values()),
    )
