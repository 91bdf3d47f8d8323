"""OffsetCommit (key 8), versions 2-10.

Behaviour: stores offsets; the answer waits until they are committed. Members commit under their
generation. With generation -1 a client that is not a member (an administrator, a consumer that
chose its partitions itself) may commit as long as the group has no members. The empty group id is
allowed here, as in Kafka, for clients that never set one.

Versions: 2-4 retention time of the client's own choice, 6 leader epoch of the last record read
(KIP-320), 7 static members, 9 a group that does not exist is GROUP_ID_NOT_FOUND instead of
ILLEGAL_GENERATION, 10 topics by id.

Errors, all per partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE,
and for all of them alike UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
GROUP_ID_NOT_FOUND, REBALANCE_IN_PROGRESS (the partitions may be reassigned already),
NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (not stored in time).
"""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.deleted_topics import TopicLookup
from broker.coordinators.group.offsets import offset_commit_error
from broker.coordinators.group_coordinator import GroupCoordinator, caller_of
from protocol.api_keys import ApiKey
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 2
MAX_VERSION: Final = 10


def register(table: HandlerTable, coordinator: GroupCoordinator, topics: TopicLookup) -> None:
    def handle(context: RequestContext, request: OffsetCommitRequest) -> Reply:
        return coordinator.ask(
            request.group_id,
            lambda shard, now: shard.decide_offset_commit(caller_of(context), request, topics, now),
            lambda code: offset_commit_error(request, code),
        )

    table.register(ApiKey.OFFSET_COMMIT, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)
