"""Keys of groups, client-metrics subscriptions, quotas, and dynamic-only broker keys."""

from __future__ import annotations

from runtime.config.schema import SHARE_RESET, Dynamic, Type, a_list, at_least, one_of
from runtime.config.schema import ConfigKey as Key

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
LIST = Type.LIST
CLUSTER = Dynamic.CLUSTER_WIDE
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


# A group key takes its default from the node key that is its synonym.
GROUP_KEYS: tuple[Key, ...] = (
    Key(
        "consumer.assignment.interval.ms",
        INT,
        1000,
        at_least(0),
        synonyms=[("group.consumer.assignment.interval.ms", 1)],
    ),
    Key(
        "consumer.heartbeat.interval.ms",
        INT,
        5000,
        at_least(1),
        synonyms=[("group.consumer.heartbeat.interval.ms", 1)],
    ),
    Key(
        "consumer.session.timeout.ms",
        INT,
        45_000,
        at_least(1),
        synonyms=[("group.consumer.session.timeout.ms", 1)],
    ),
    Key(
        "share.assignment.interval.ms",
        INT,
        1000,
        at_least(0),
        synonyms=[("group.share.assignment.interval.ms", 1)],
    ),
    Key("share.auto.offset.reset", STRING, "latest", SHARE_RESET),
    Key(
        "share.delivery.count.limit",
        INT,
        5,
        at_least(2),
        synonyms=[("group.share.delivery.count.limit", 1)],
    ),
    Key(
        "share.heartbeat.interval.ms",
        INT,
        5000,
        at_least(1),
        synonyms=[("group.share.heartbeat.interval.ms", 1)],
    ),
    Key(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
    ),
    Key(
        "share.partition.max.record.locks",
        INT,
        2000,
        at_least(100),
        synonyms=[("group.share.partition.max.record.locks", 1)],
    ),
    Key(
        "share.record.lock.duration.ms",
        INT,
        30_000,
        at_least(1000),
        synonyms=[("group.share.record.lock.duration.ms", 1)],
    ),
    Key("share.renew.acknowledge.enable", BOOLEAN, True),
    Key(
        "share.session.timeout.ms",
        INT,
        45_000,
        at_least(1),
        synonyms=[("group.share.session.timeout.ms", 1)],
    ),
    Key(
        "streams.assignment.interval.ms",
        INT,
        1000,
        at_least(0),
        synonyms=[("group.streams.assignment.interval.ms", 1)],
    ),
    Key(
        "streams.heartbeat.interval.ms",
        INT,
        5000,
        at_least(1),
        synonyms=[("group.streams.heartbeat.interval.ms", 1)],
    ),
    Key(
        "streams.initial.rebalance.delay.ms",
        INT,
        3000,
        at_least(0),
        synonyms=[("group.streams.initial.rebalance.delay.ms", 1)],
    ),
    Key(
        "streams.num.standby.replicas",
        INT,
        0,
        at_least(0),
        synonyms=[("group.streams.num.standby.replicas", 1)],
    ),
    Key(
        "streams.session.timeout.ms",
        INT,
        45_000,
        at_least(1),
        synonyms=[("group.streams.session.timeout.ms", 1)],
    ),
)

CLIENT_METRICS_KEYS: tuple[Key, ...] = (
    Key("interval.ms", INT, 300_000),
    Key("match", LIST, [], a_list(empty=True)),
    Key("metrics", LIST, [], a_list(empty=True)),
)

# These are read from dynamic broker configuration and never from server.properties.
BROKER_DYNAMIC_KEYS: tuple[Key, ...] = (
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER),
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER),
    Key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        LONG_MAX,
        at_least(0),
        dynamic=CLUSTER,
    ),
)

CLIENT_QUOTA_KEYS: tuple[Key, ...] = (
    Key("consumer_byte_rate", LONG, LONG_MAX),
    Key("controller_mutation_rate", DOUBLE, 2147483647.0),
    Key("producer_byte_rate", LONG, LONG_MAX),
    Key("request_percentage", DOUBLE, 2147483647.0),
)

IP_QUOTA_KEYS: tuple[Key, ...] = (Key("connection_creation_rate", INT, INT_MAX, at_least(0)),)
