"""ListGroups (key 16), versions 0-5.

Behaviour: the groups this broker coordinates; an administrator queries every broker. While any of
its partitions is being loaded the answer is an error, as an incomplete list would look complete.

Versions: 4 filter by state, state in the answer (KIP-518), 5 filter by type, type in the answer
(KIP-848). Names are compared without regard to case; an unknown name matches nothing.

Errors: COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 5


def register(table: HandlerTable, coordinator: GroupCoordinator) -> None:
    def handle(_context: RequestContext, request: ListGroupsRequest) -> Reply:
        shards, loading = coordinator.shards()
        if loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = frozenset(name.lower() for name in request.states_filter)
        types = frozenset(name.lower() for name in request.types_filter)
        groups = [group for shard in shards for group in shard.list_groups(states, types)]
        return ListGroupsResponse(groups=groups)

    table.register(ApiKey.LIST_GROUPS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)
