"""APIs that the controllers of this release serve, and those of them that brokers forward.

What Kafka's brokers forward at all, and which kinds of listener have an API, is the protocol's
(`FORWARDABLE`, each request's `LISTENERS`); what is built is said here, once for both roles. A
broker forwards what is left when it has registered what it answers itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.api_keys import FORWARDABLE, ApiKey
from protocol.messages import request_class

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
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.EXPLAIN_ELECTION,
    }
)

OWN_VERSIONS: Final[Mapping[ApiKey, int]] = {ApiKey.ELECT_LEADERS: 3}
"""Last versions that our own tools may ask for, beyond what everybody may."""

OWN_APIS: Final = frozenset({ApiKey.EXPLAIN_ELECTION})
"""APIs that only our own tools may ask for."""


def forwarded_apis() -> list[ApiKey]:
    """What brokers may forward to controllers of this release, in the order of keys."""
    return [
        api
        for api in sorted(FORWARDABLE & CONTROLLER_APIS)
        if "broker" in request_class(api).LISTENERS
    ]
