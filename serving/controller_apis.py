"""APIs that the controllers of this release serve, and those of them that brokers forward.

The protocol defines which requests brokers forward (`FORWARDABLE`) and which kinds of listener have
an API (each request's `LISTENERS`). This module lists the implemented APIs, once for both roles. A
broker registers the APIs that it answers itself, then forwards the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.messages import request_class
from protocol.private_numbers import PRIVATE_VERSIONS

CONTROLLER_APIS: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ALTER_PARTITION,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.EXPLAIN_ELECTION,
    }
)

OWN_VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.ELECT_LEADERS: PRIVATE_VERSIONS[ApiKey.ELECT_LEADERS]
}
"""Last versions that our own tools may use, where they go beyond those for other clients."""

OWN_APIS: Final = frozenset({ApiKey.EXPLAIN_ELECTION})
"""APIs that only our own tools may use."""


def forwarded_apis() -> list[ApiKey]:
    """Return the APIs that brokers may forward to controllers of this release, sorted by key."""
    return [
        api
        for api in sorted(FORWARDABLE & CONTROLLER_APIS)
        if "broker" in request_class(api).LISTENERS
    ]
