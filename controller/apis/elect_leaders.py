"""ElectLeaders (key 43), versions 0-3.

Behaviour: elects leaders in the named partitions, or in all of them (null). Type 0 (preferred)
elects the preferred leader. Type 1 (unclean) elects any live replica of a partition without a
leader. For all partitions, the response omits those that needed no election. The messages give the
reason per broker why it could not be elected.

Types 2 to 4 elect a leader only in partitions without one (KIP-966):
- 2 (aggressive) elects the longest log among all live replicas,
- 3 (balanced) elects the longest log once all replicas that may be complete have reported theirs,
- 4 (designation) elects the broker that the request names.

Types 2 and 3 are answered when every partition is decided, or after TimeoutMs. Undecided partitions
then get REQUEST_TIMED_OUT and are not elected later. They are not elected either once the client
has disconnected.

Versions: 0 has preferred elections only and no top-level error; 1 adds the type and the top-level
error; 3, which no release of Kafka has, adds types 2 to 4, desired leaders, and a limit of 1,000
partitions, for our own tools.

Errors per partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED,
PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, REQUEST_TIMED_OUT, INVALID_REQUEST
(the desired leader is not a replica), REQUEST_LIMIT_REACHED. For all: INVALID_REQUEST (type,
desired leaders), POLICY_VIOLATION, REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.elections.on_request import ElectionOutcome, ElectionType, decide_elect_leaders
from controller.elections.recovery_questions import PartitionKey
from controller.elections.recovery_requests import (
    RecoveryOutcome,
    RecoveryPlan,
    RecoveryRequest,
    Waits,
    decide_recovery_elections,
)
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import (
    PARTITIONS_PER_REQUEST_MAX,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from protocol.private_numbers import PRIVATE_VERSIONS
from protocol.transport.dispatch import Connection, HandlerTable, Reply, RequestContext
from protocol.transport.own_names import Own
from protocol.transport.presence import while_connected

MIN_VERSION = 0
MAX_VERSION = 2
OWN_MAX_VERSION = PRIVATE_VERSIONS[ApiKey.ELECT_LEADERS]


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: ElectLeadersRequest) -> Reply:
        version = context.api_version
        if ElectionType.LONGEST_LOG_AGGRESSIVE <= request.election_type <= max(ElectionType):
            return _recover(controller, context, request)
        limit = PARTITIONS_PER_REQUEST_MAX if version > MAX_VERSION else None
        return controller.submit(
            lambda view: decide_elect_leaders(view, request, limit=limit),
            _response,
            fail=lambda error: _failed(version, request, error),
            timeout_ms=request.timeout_ms,
        )

    table.register(
        ApiKey.ELECT_LEADERS,
        handle,
        min_version=MIN_VERSION,
        max_version=OWN_MAX_VERSION if table.unstable else MAX_VERSION,
        own_max_version=OWN_MAX_VERSION,
        own=Own.TOOL,
    )


async def _recover(
    controller: Controller, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    version = context.api_version
    deadline_ms = context.received_ms + max(request.timeout_ms, 0)
    try:
        plan: RecoveryPlan = await controller.submit(
            lambda view: decide_recovery_elections(view, request, version),
            lambda reply: reply,
            timeout_ms=request.timeout_ms,
        )
        if not plan.waiting or plan.strategy is None:
            return _response(part for part in plan.parts if isinstance(part, ElectionOutcome))
        keys = [(part.topic_id, part.partition_id) for part in plan.waiting]
        waits = RecoveryRequest(plan.strategy, keys, deadline_ms)
        decided = await _wait(controller, waits, context.connection)
    except ApiError as error:
        return _failed(version, request, error)
    return _response(
        ElectionOutcome(part.topic, part.partition_id, *decided[part.topic_id, part.partition_id])
        if isinstance(part, Waits)
        else part
        for part in plan.parts
    )


async def _wait(
    controller: Controller, request: RecoveryRequest, connection: Connection
) -> Mapping[PartitionKey, RecoveryOutcome]:
    """Wait until the partitions of `request` are decided.

    If too many requests wait already, only the partitions that would have waited get that error.

    Raises:
        ApiError: NOT_CONTROLLER, this node is no longer the active controller.
    """
    partitions = list(request.waiting)
    try:
        with while_connected(connection):
            return await controller.recovery.wait(request)
    except ApiError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return dict.fromkeys(partitions, RecoveryOutcome(error.code, error.text))


def _failed(version: int, request: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    response = _response(
        ElectionOutcome(named.topic, partition_id, error.code, error.text)
        for named in request.topic_partitions or ()
        for partition_id in named.partitions
    )
    if version >= 1:
        response.error_code = error.code
    return response


def _response(outcomes: Iterable[ElectionOutcome]) -> ElectLeadersResponse:
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
