"""SyncGroup (key 14), versions 0-5.

Behaviour: the leader sends the assignment of the generation, the other members request it. All wait
until it is committed. In a stable group the answer is immediate.

Versions: 3 static members (KIP-345), 5 the member names the protocol it believes was chosen
(KIP-559).

Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS (join again), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (the assignment could not be stored).
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.membership import sync_error
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.messages.sync_group import SyncGroupRequest
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 5


def register(table: HandlerTable, coordinator: GroupCoordinator) -> None:
    def handle(context: RequestContext, request: SyncGroupRequest) -> Reply:
        return coordinator.ask_and_wait(
            request.group_id,
            context,
            lambda shard, caller, now: shard.decide_sync(caller, request, now),
            sync_error,
        )

    table.register(ApiKey.SYNC_GROUP, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)
