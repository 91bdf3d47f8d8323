"""JoinGroup (key 11), versions 0-9.

Behaviour: enters a group, or stays in it through a rebalance. The answer waits until the join phase
is over. It contains the generation, the chosen protocol and, for the leader, all members' metadata.

Versions: 1 rebalance timeout, 4 a dynamic member without an id gets one and must join again
(MEMBER_ID_REQUIRED, KIP-394), 5 static members (KIP-345), 7 protocol type in the answer (KIP-559),
8 reason (for the log only), 9 a returning static leader may be instructed to skip the assignment
(KIP-814).

Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL (nothing in common
with the members, or a group of another type), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS (a newer JoinGroup of the same member replaced this
one), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.rebalance import join_error
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.messages.join_group import JoinGroupRequest
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 9


def register(table: HandlerTable, coordinator: GroupCoordinator) -> None:
    def handle(context: RequestContext, request: JoinGroupRequest) -> Reply:
        return coordinator.ask_and_wait(
            request.group_id,
            context,
            lambda shard, caller, now: shard.decide_join(caller, request, now),
            lambda code: join_error(code, request.member_id, context.api_version),
        )

    table.register(ApiKey.JOIN_GROUP, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)
