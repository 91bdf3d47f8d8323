"""Rules for long lists in requests: each API is served in parts or has a size limit.

Every API of either role is listed here, or in `BY_ITSELF` if its handler limits its own work. A
test compares the table with the messages. See `protocol/transport/long_requests.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from protocol.api_keys import ApiKey
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.transport.long_requests import WEIGHT_MAX, AtOnce, InParts, Rule
from serving.error_answers import error_response

BY_ITSELF: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""Handlers that yield to other requests by themselves."""

RECORDS_PER_OPERATION_MAX: Final = 10_000
"""Limit of partitions that one request may create, and of topics that it may delete
(KAFKA-14996)."""
FEW: Final = AtOnce(weight_max=1_000)
"""For lists that have only a few elements in every reasonable request."""

_PARTITIONS: Final = InParts(paths=(("topics", "partitions"),))
_INDEXES: Final = InParts(paths=(("topics", "partition_indexes"),))


def _resource(resource: Any) -> Hashable:
    return resource.resource_type, resource.resource_name


def _name(topic: Any) -> Hashable:
    return topic if isinstance(topic, str) else (topic.name, getattr(topic, "topic_id", None))


def _entity(entry: Any) -> Hashable:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _new_partitions(topic: CreateTopicsRequest.CreatableTopic) -> int:
    return max(len(topic.assignments), topic.num_partitions, 1)


def _more_partitions(topic: CreatePartitionsRequest.CreatePartitionsTopic) -> int:
    return max(len(topic.assignments or ()), 1)


def _is_limited(_: ElectLeadersRequest, version: int) -> bool:
    """Return whether the handler limits the request itself and must see it whole: elections of
    KIP-966 wait for all partitions together, and serve 1,000 of them."""
    return version >= LIMITED_ELECTIONS_SINCE


LIMITED_ELECTIONS_SINCE: Final = 3
RULES: Final[dict[ApiKey, Rule]] = {
    # metadata
    ApiKey.METADATA: AtOnce(weight_max=WEIGHT_MAX, by_count=True),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: AtOnce(weight_max=WEIGHT_MAX, by_count=True, long_reply=True),
    # topics, partitions and records
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS: _INDEXES,
    ApiKey.DESCRIBE_LOG_DIRS: InParts(paths=(("topics", "partitions"),), extra_depth=1),
    ApiKey.GET_REPLICA_LOG_INFO: AtOnce(weight_max=2_000),
    # groups
    ApiKey.FIND_COORDINATOR: InParts(paths=(("coordinator_keys",),)),
    ApiKey.JOIN_GROUP: AtOnce(),
    ApiKey.SYNC_GROUP: AtOnce(weight_max=50_000),
    ApiKey.LEAVE_GROUP: InParts(paths=(("members",),), weight_max=RECORDS_PER_OPERATION_MAX),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: AtOnce(),
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.OFFSET_FETCH: InParts(
        paths=(("groups", "topics", "partition_indexes"), ("topics", "partition_indexes"))
    ),
    ApiKey.DESCRIBE_GROUPS: InParts(paths=(("groups",),), part_max=20),
    ApiKey.DELETE_GROUPS: InParts(paths=(("groups_names",),), key=_name),
    ApiKey.LIST_GROUPS: FEW,
    # configurations, quotas, credentials
    ApiKey.DESCRIBE_CONFIGS: InParts(paths=(("resources",),), part_max=10),
    ApiKey.ALTER_CONFIGS: InParts(paths=(("resources",),), key=_resource),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: InParts(paths=(("resources",),), key=_resource),
    ApiKey.LIST_CONFIG_RESOURCES: FEW,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: FEW,
    ApiKey.ALTER_CLIENT_QUOTAS: InParts(paths=(("entries",),), key=_entity),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: InParts(paths=(("users",),), key=_name),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: FEW,
    ApiKey.CREATE_ACLS: InParts(paths=(("creations",),)),
    ApiKey.DELETE_ACLS: InParts(paths=(("filters",),)),
    # operations of clients on the controller
    ApiKey.CREATE_TOPICS: InParts(
        paths=(("topics",),),
        key=_name,
        load_of=_new_partitions,
        load_max=RECORDS_PER_OPERATION_MAX,
        refuse=error_response,
    ),
    ApiKey.DELETE_TOPICS: InParts(
        paths=(("topics",), ("topic_names",)),
        key=_name,
        load_max=RECORDS_PER_OPERATION_MAX,
        refuse=error_response,
    ),
    ApiKey.CREATE_PARTITIONS: InParts(
        paths=(("topics",),),
        key=_name,
        load_of=_more_partitions,
        load_max=RECORDS_PER_OPERATION_MAX,
        refuse=error_response,
    ),
    ApiKey.ELECT_LEADERS: InParts(
        paths=(("topic_partitions", "partitions"),), whole=_is_limited, whole_max=4_000
    ),
    ApiKey.EXPLAIN_ELECTION: AtOnce(weight_max=2_000),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _PARTITIONS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: InParts(
        paths=(("topics", "partition_indexes"),), long_reply=True
    ),
    ApiKey.UPDATE_FEATURES: FEW,
    # operations of nodes on the controller
    ApiKey.ALTER_PARTITION: _PARTITIONS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: InParts(paths=(("directories", "topics", "partitions"),)),
    ApiKey.BROKER_REGISTRATION: FEW,
    ApiKey.BROKER_HEARTBEAT: AtOnce(),
    ApiKey.CONTROLLER_REGISTRATION: FEW,
    # quorum APIs, for a single partition
    ApiKey.VOTE: FEW,
    ApiKey.BEGIN_QUORUM_EPOCH: FEW,
    ApiKey.END_QUORUM_EPOCH: FEW,
    ApiKey.DESCRIBE_QUORUM: FEW,
    ApiKey.FETCH_SNAPSHOT: FEW,
    ApiKey.UPDATE_RAFT_VOTER: FEW,
}
