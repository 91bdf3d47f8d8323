"""Quota keys: of clients, of addresses, and those of replication, which are dynamic only."""

from __future__ import annotations

from runtime.config.schema import (
    CLUSTER,
    DOUBLE,
    INT,
    INT_MAX,
    LONG,
    LONG_MAX,
    BrokerDynamicKey,
    ClientQuotaKey,
    IpQuotaKey,
)
from runtime.config.validators import at_least

FOLLOWER_REPLICATION_THROTTLED_RATE = BrokerDynamicKey(
    "follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER
)
LEADER_REPLICATION_THROTTLED_RATE = BrokerDynamicKey(
    "leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = BrokerDynamicKey(
    "replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER
)
CONSUMER_BYTE_RATE = ClientQuotaKey("consumer_byte_rate", LONG, LONG_MAX)
CONTROLLER_MUTATION_RATE = ClientQuotaKey("controller_mutation_rate", DOUBLE, 2147483647.0)
PRODUCER_BYTE_RATE = ClientQuotaKey("producer_byte_rate", LONG, LONG_MAX)
REQUEST_PERCENTAGE = ClientQuotaKey("request_percentage", DOUBLE, 2147483647.0)
CONNECTION_CREATION_RATE = IpQuotaKey("connection_creation_rate", INT, INT_MAX, at_least(0))
