"""ElectLeaders (key 43), versions 0-2.

Behaviour: elects the preferred leader, or unclean any live replica where there is no leader, in the
named partitions or in all of them (null). For all of them the answer leaves out those that needed
none. The messages say per broker why it could not be elected.

Versions: 0 has preferred elections only and no error of its own; 1 adds the type and the top-level
error.

Errors per partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED,
PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE. For all: INVALID_REQUEST (type),
POLICY_VIOLATION, REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.elections.on_request import ElectionOutcome, decide_elect_leaders
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 2


def register(table: HandlerTable, controller: Controller) -> None:
    """Serve the API from `table`."""

    def handle(context: RequestContext, request: ElectLeadersRequest) -> Reply:
        return controller.submit(
            lambda view: decide_elect_leaders(view, request),
            _response,
            fail=lambda error: _failed(context.api_version, request, error),
            timeout_ms=request.timeout_ms,
        )

    table.register(ApiKey.ELECT_LEADERS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _failed(version: int, request: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    response = _response(
        tuple(
            ElectionOutcome(named.topic, partition_id, error.code, error.text)
            for named in request.topic_partitions or ()
            for partition_id in named.partitions
        )
    )
    if version >= 1:
        response.error_code = error.code
    return response


def _response(outcomes: tuple[ElectionOutcome, ...]) -> ElectLeadersResponse:
    by_topic: dict[str, list[ElectLeadersResponse.PartitionResult]] = {}
    for outcome in outcomes:
        by_topic.setdefault(outcome.topic, []).append(
            ElectLeadersResponse.PartitionResult(
                partition_id=outcome.partition_id,
                error_code=outcome.error,
                error_message=outcome.message,
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )
