"""Node keys: group coordinator and the offsets topic."""

from __future__ import annotations

from runtime.config.schema import ConfigKey as Key
from runtime.config.schema import (
    Dynamic,
    Importance,
    Type,
    a_list,
    at_least,
    between,
    one_of_any_case,
)

STRING = Type.STRING
INT = Type.INT
SHORT = Type.SHORT
LONG = Type.LONG
LIST = Type.LIST
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER = Dynamic.CLUSTER_WIDE
INT_MAX = 2**31 - 1


KEYS: tuple[Key, ...] = (
    Key("group.consumer.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER),
    Key("group.consumer.assignors", LIST, ["uniform", "range"], a_list(empty=False)),
    Key("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0)),
    Key("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1)),
    Key("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1)),
    Key("group.consumer.max.size", INT, INT_MAX, at_least(1)),
    Key(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    ),
    Key("group.consumer.min.assignment.interval.ms", INT, 0, at_least(0)),
    Key("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10_000), internal=True),
    Key("group.consumer.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("group.coordinator.append.linger.ms", INT, -1, at_least(-1)),
    Key("group.coordinator.background.threads", INT, 2, at_least(1), HIGH),
    Key(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        at_least(524_288),
        dynamic=CLUSTER,
    ),
    Key(
        "group.coordinator.rebalance.protocols",
        LIST,
        ["classic", "consumer", "streams"],
        a_list("consumer", "classic", "share", "streams", empty=False),
    ),
    Key("group.coordinator.threads", INT, 4, at_least(1), HIGH),
    Key("group.initial.rebalance.delay.ms", INT, 3000),
    Key("group.max.session.timeout.ms", INT, 1_800_000),
    Key("group.max.size", INT, INT_MAX, at_least(1)),
    Key("group.min.session.timeout.ms", INT, 6000),
    Key("group.share.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER),
    Key("group.share.assignors", LIST, ["simple"], a_list(empty=False)),
    Key("group.share.delivery.count.limit", INT, 5, between(2, 10)),
    Key("group.share.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.share.initialize.retry.interval.ms", INT, 30_000, at_least(1), LOW, internal=True),
    Key("group.share.max.assignment.interval.ms", INT, 15_000, at_least(0)),
    Key("group.share.max.delivery.count.limit", INT, 10, between(5, 25)),
    Key("group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1)),
    Key("group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10_000)),
    Key("group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000)),
    Key("group.share.max.session.timeout.ms", INT, 60_000, at_least(1)),
    Key("group.share.max.share.sessions", INT, 2000, at_least(1)),
    Key("group.share.max.size", INT, 200, between(1, 1000)),
    Key("group.share.min.assignment.interval.ms", INT, 0, at_least(0)),
    Key("group.share.min.delivery.count.limit", INT, 2, between(2, 5)),
    Key("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.share.min.partition.max.record.locks", INT, 100, between(100, 2000)),
    Key("group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000)),
    Key("group.share.min.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("group.share.partition.max.record.locks", INT, 2000, between(100, 10_000)),
    Key(
        "group.share.persister.class.name",
        STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        internal=True,
    ),
    Key("group.share.record.lock.duration.ms", INT, 30_000, between(1000, 3_600_000)),
    Key("group.share.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("group.streams.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER),
    Key("group.streams.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0)),
    Key("group.streams.max.assignment.interval.ms", INT, 15_000, at_least(0)),
    Key("group.streams.max.heartbeat.interval.ms", INT, 15_000, at_least(1)),
    Key("group.streams.max.session.timeout.ms", INT, 60_000, at_least(1)),
    Key("group.streams.max.size", INT, INT_MAX, at_least(1)),
    Key("group.streams.max.standby.replicas", INT, 2, at_least(0)),
    Key("group.streams.min.assignment.interval.ms", INT, 0, at_least(0)),
    Key("group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1)),
    Key("group.streams.min.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("group.streams.num.standby.replicas", INT, 0, at_least(0)),
    Key("group.streams.session.timeout.ms", INT, 45_000, at_least(1)),
    Key("offset.metadata.max.bytes", INT, 4096, None, HIGH),
    Key("offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH),
    Key("offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH),
    Key("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH),
    Key("offsets.retention.minutes", INT, 10_080, at_least(1), HIGH),
    Key("offsets.topic.compression.codec", INT, 0, None, HIGH),
    Key("offsets.topic.num.partitions", INT, 50, at_least(1), HIGH),
    Key("offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH),
    Key("offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH),
)
