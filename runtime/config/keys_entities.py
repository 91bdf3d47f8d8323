"""Keys of groups, client-metrics subscriptions, quotas, and dynamic-only broker keys."""

from __future__ import annotations

from runtime.config import keys_groups
from runtime.config.schema import (
    BOOLEAN,
    CLUSTER,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    BrokerDynamicKey,
    ClientMetricsKey,
    ClientQuotaKey,
    GroupKey,
    IpQuotaKey,
)
from runtime.config.validators import SHARE_RESET, a_list, at_least, one_of

CONSUMER_ASSIGNMENT_INTERVAL_MS = GroupKey(
    "consumer.assignment.interval.ms",
    INT,
    1000,
    at_least(0),
    synonyms=[(keys_groups.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS, 1)],
)
CONSUMER_HEARTBEAT_INTERVAL_MS = GroupKey(
    "consumer.heartbeat.interval.ms",
    INT,
    5000,
    at_least(1),
    synonyms=[(keys_groups.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, 1)],
)
CONSUMER_SESSION_TIMEOUT_MS = GroupKey(
    "consumer.session.timeout.ms",
    INT,
    45_000,
    at_least(1),
    synonyms=[(keys_groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS, 1)],
)
SHARE_ASSIGNMENT_INTERVAL_MS = GroupKey(
    "share.assignment.interval.ms",
    INT,
    1000,
    at_least(0),
    synonyms=[(keys_groups.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, 1)],
)
SHARE_AUTO_OFFSET_RESET = GroupKey("share.auto.offset.reset", STRING, "latest", SHARE_RESET)
SHARE_DELIVERY_COUNT_LIMIT = GroupKey(
    "share.delivery.count.limit",
    INT,
    5,
    at_least(2),
    synonyms=[(keys_groups.GROUP_SHARE_DELIVERY_COUNT_LIMIT, 1)],
)
SHARE_HEARTBEAT_INTERVAL_MS = GroupKey(
    "share.heartbeat.interval.ms",
    INT,
    5000,
    at_least(1),
    synonyms=[(keys_groups.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, 1)],
)
SHARE_ISOLATION_LEVEL = GroupKey(
    "share.isolation.level",
    STRING,
    "read_uncommitted",
    one_of("read_committed", "read_uncommitted"),
)
SHARE_PARTITION_MAX_RECORD_LOCKS = GroupKey(
    "share.partition.max.record.locks",
    INT,
    2000,
    at_least(100),
    synonyms=[(keys_groups.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS, 1)],
)
SHARE_RECORD_LOCK_DURATION_MS = GroupKey(
    "share.record.lock.duration.ms",
    INT,
    30_000,
    at_least(1000),
    synonyms=[(keys_groups.GROUP_SHARE_RECORD_LOCK_DURATION_MS, 1)],
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE = GroupKey("share.renew.acknowledge.enable", BOOLEAN, True)
SHARE_SESSION_TIMEOUT_MS = GroupKey(
    "share.session.timeout.ms",
    INT,
    45_000,
    at_least(1),
    synonyms=[(keys_groups.GROUP_SHARE_SESSION_TIMEOUT_MS, 1)],
)
STREAMS_ASSIGNMENT_INTERVAL_MS = GroupKey(
    "streams.assignment.interval.ms",
    INT,
    1000,
    at_least(0),
    synonyms=[(keys_groups.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS, 1)],
)
STREAMS_HEARTBEAT_INTERVAL_MS = GroupKey(
    "streams.heartbeat.interval.ms",
    INT,
    5000,
    at_least(1),
    synonyms=[(keys_groups.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, 1)],
)
STREAMS_INITIAL_REBALANCE_DELAY_MS = GroupKey(
    "streams.initial.rebalance.delay.ms",
    INT,
    3000,
    at_least(0),
    synonyms=[(keys_groups.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS, 1)],
)
STREAMS_NUM_STANDBY_REPLICAS = GroupKey(
    "streams.num.standby.replicas",
    INT,
    0,
    at_least(0),
    synonyms=[(keys_groups.GROUP_STREAMS_NUM_STANDBY_REPLICAS, 1)],
)
STREAMS_SESSION_TIMEOUT_MS = GroupKey(
    "streams.session.timeout.ms",
    INT,
    45_000,
    at_least(1),
    synonyms=[(keys_groups.GROUP_STREAMS_SESSION_TIMEOUT_MS, 1)],
)

INTERVAL_MS = ClientMetricsKey("interval.ms", INT, 300_000)
MATCH = ClientMetricsKey("match", LIST, [], a_list(empty=True))
METRICS = ClientMetricsKey("metrics", LIST, [], a_list(empty=True))

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
