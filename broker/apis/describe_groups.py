"""DescribeGroups (key 15), versions 0-6.

Behaviour: state and members of classic groups. Members' metadata for the chosen protocol is
included while a group is stable; assignments are the latest ones.

Versions: 3 authorised operations (KIP-430), 4 static members, 6 a group that does not exist is
GROUP_ID_NOT_FOUND with a message (KIP-1043), before that a group in state Dead.

Errors, per group: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.admin import describe_error
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from serving.authorized_operations import Operation

MIN_VERSION: Final = 0
MAX_VERSION: Final = 6

GROUP_OPERATIONS: Final = sum(
    1 << operation
    for operation in (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
"""Operations on a group that every client is allowed, as there is no authorizer."""


def register(table: HandlerTable, coordinator: GroupCoordinator) -> None:
    def handle(context: RequestContext, request: DescribeGroupsRequest) -> Reply:
        groups = [_describe(coordinator, each, context.api_version) for each in request.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    table.register(ApiKey.DESCRIBE_GROUPS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _describe(
    coordinator: GroupCoordinator, group_id: str, version: int
) -> DescribeGroupsResponse.DescribedGroup:
    shard = coordinator.view(group_id)
    if isinstance(shard, ErrorCode):
        return describe_error(group_id, shard)
    return shard.describe_group(group_id, version)
