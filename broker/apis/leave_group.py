"""LeaveGroup (key 13), versions 0-5.

Behaviour: removes members, so that the others need not wait for their sessions to end. A static
member may be identified by its instance id alone (an administrator removes it).

Versions: 3 several members at a time, with static ones (KIP-345); before that the one member's
error is the answer's. 5 reason (for the log only, KIP-800).

Errors: for all INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; for one member
UNKNOWN_MEMBER_ID (also when there is no such group), FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.membership import leave_error
from broker.coordinators.group_coordinator import GroupCoordinator, caller_of
from protocol.api_keys import ApiKey
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 5


def register(table: HandlerTable, coordinator: GroupCoordinator) -> None:
    def handle(context: RequestContext, request: LeaveGroupRequest) -> Reply:
        return coordinator.ask(
            request.group_id,
            lambda shard, now: shard.decide_leave(caller_of(context), request, now),
            leave_error,
        )

    table.register(ApiKey.LEAVE_GROUP, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)
