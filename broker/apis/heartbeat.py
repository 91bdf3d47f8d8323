"""Heartbeat (key 12), versions 0-4.

Behaviour: keeps a member's session alive and notifies it of a rebalance.

Versions: 3 static members (KIP-345).

Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
REBALANCE_IN_PROGRESS (join again; the session continues), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 4


def register(table: HandlerTable, coordinator: GroupCoordinator) -> None:
    def handle(_context: RequestContext, request: HeartbeatRequest) -> Reply:
        return coordinator.heartbeat(request)

    table.register(ApiKey.HEARTBEAT, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)
