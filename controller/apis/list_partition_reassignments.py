"""ListPartitionReassignments (key 46), version 0.

Behaviour: lists the ongoing reassignments of the named partitions, or of all (null). Partitions
without one, and those that do not exist, are omitted.

Errors: NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.decision import ControllerView, Decision
from controller.topics.reassignments import Reassignment, list_reassignments
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 0


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> Reply:
        named = (
            None
            if request.topics is None
            else [(topic.name, topic.partition_indexes) for topic in request.topics]
        )

        def decide(view: ControllerView) -> Decision[tuple[Reassignment, ...]]:
            return Decision((), tuple(list_reassignments(view, named)))

        return controller.submit(decide, _response, timeout_ms=request.timeout_ms)

    table.register(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        handle,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
    )


def _response(reassignments: tuple[Reassignment, ...]) -> ListPartitionReassignmentsResponse:
    response = ListPartitionReassignmentsResponse(error_message=None)
    by_topic: dict[str, ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for found in reassignments:
        topic = by_topic.get(found.topic)
        if topic is None:
            topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=found.topic)
            by_topic[found.topic] = topic
        topic.partitions.append(
            ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=found.partition_id,
                replicas=list(found.partition.replicas),
                adding_replicas=list(found.partition.adding),
                removing_replicas=list(found.partition.removing),
            )
        )
    response.topics = list(by_topic.values())
    return response
