"""DeleteGroups (key 42), versions 0-3.

Behaviour: removes groups without members, with all their offsets. Each group is decided separately;
the answer waits until the records of all are committed.

Errors, per group: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (not stored in time). Version 3 has a
message for each refused group.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.coordinators.group.admin import delete_result
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.transport.dispatch import HandlerTable, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 3


def register(table: HandlerTable, coordinator: GroupCoordinator) -> None:
    async def handle(
        _context: RequestContext, request: DeleteGroupsRequest
    ) -> DeleteGroupsResponse:
        answers = [
            _delete(coordinator, group_id) for group_id in dict.fromkeys(request.groups_names)
        ]
        response = DeleteGroupsResponse()
        for answer in answers:
            one = await answer if isinstance(answer, asyncio.Future) else answer
            response.results.extend(one.results)
        return response

    table.register(ApiKey.DELETE_GROUPS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _delete(
    coordinator: GroupCoordinator, group_id: str
) -> DeleteGroupsResponse | asyncio.Future[DeleteGroupsResponse]:
    return coordinator.ask(
        group_id,
        lambda shard, _now: shard.decide_delete_group(group_id),
        lambda code: delete_result(group_id, code),
    )
