"""OffsetDelete (key 47), version 0.

Behaviour: removes committed offsets (KIP-496) of a group without members, or of topics that no
member of a consumer group subscribes to. A missing offset counts as removed.

Errors: for the group INVALID_GROUP_ID (empty), GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members of
another protocol type, whose subscriptions the broker cannot parse), NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE; for a partition GROUP_SUBSCRIBED_TO_TOPIC,
UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.deleted_topics import TopicLookup
from broker.coordinators.group.offsets import offset_delete_error
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 0


def register(table: HandlerTable, coordinator: GroupCoordinator, topics: TopicLookup) -> None:
    def handle(_context: RequestContext, request: OffsetDeleteRequest) -> Reply:
        return coordinator.ask(
            request.group_id,
            lambda shard, _now: shard.decide_offset_delete(request, topics),
            offset_delete_error,
        )

    table.register(ApiKey.OFFSET_DELETE, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)
