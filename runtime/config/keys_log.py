"""Node keys: log directories, segments, flushing, retention, cleaning, compression."""

from __future__ import annotations

from runtime.config.schema import (
    GZIP_LEVEL,
    Dynamic,
    Importance,
    Type,
    a_list,
    at_least,
    between,
    one_of,
)
from runtime.config.schema import ConfigKey as Key

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
LIST = Type.LIST
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER = Dynamic.CLUSTER_WIDE
PER_BROKER = Dynamic.PER_BROKER
LONG_MAX = 2**63 - 1


KEYS: tuple[Key, ...] = (
    Key("background.threads", INT, 10, at_least(1), HIGH, dynamic=CLUSTER),
    Key("compression.gzip.level", INT, -1, GZIP_LEVEL, dynamic=CLUSTER),
    Key("compression.lz4.level", INT, 9, between(1, 17), dynamic=CLUSTER),
    Key(
        "compression.type",
        STRING,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        HIGH,
        dynamic=CLUSTER,
    ),
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), dynamic=CLUSTER),
    Key("cordoned.log.dirs", LIST, [], a_list(empty=True), dynamic=PER_BROKER),
    Key("log.cleaner.backoff.ms", LONG, 15_000, at_least(0), dynamic=CLUSTER),
    Key("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, dynamic=CLUSTER),
    Key("log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), dynamic=CLUSTER),
    Key("log.cleaner.enable", BOOLEAN, True),
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, dynamic=CLUSTER),
    Key("log.cleaner.io.buffer.size", INT, 524_288, at_least(0), dynamic=CLUSTER),
    Key("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, dynamic=CLUSTER),
    Key("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER),
    Key("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0.0, 1.0), dynamic=CLUSTER),
    Key("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), dynamic=CLUSTER),
    Key("log.cleaner.threads", INT, 1, at_least(0), dynamic=CLUSTER),
    Key(
        "log.cleanup.policy",
        LIST,
        ["delete"],
        a_list("compact", "delete", empty=True),
        dynamic=CLUSTER,
    ),
    Key("log.dir", LIST, ["/tmp/kafka-logs"], a_list(empty=False), HIGH),
    Key("log.dir.failure.timeout.ms", LONG, 30_000, at_least(1), LOW),
    Key("log.dirs", LIST, None, a_list(empty=False), HIGH),
    Key("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH, dynamic=CLUSTER),
    Key("log.flush.interval.ms", LONG, None, None, HIGH, dynamic=CLUSTER),
    Key("log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH),
    Key("log.flush.scheduler.interval.ms", LONG, LONG_MAX, None, HIGH),
    Key("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH),
    Key("log.index.interval.bytes", INT, 4096, at_least(0), dynamic=CLUSTER),
    Key("log.index.size.max.bytes", INT, 10_485_760, at_least(4), dynamic=CLUSTER),
    Key("log.initial.task.delay.ms", LONG, 30_000, at_least(0), LOW, internal=True),
    Key("log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), dynamic=CLUSTER),
    Key("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER),
    Key(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=CLUSTER,
    ),
    Key("log.preallocate", BOOLEAN, False, dynamic=CLUSTER),
    Key("log.retention.bytes", LONG, -1, None, HIGH, dynamic=CLUSTER),
    Key("log.retention.check.interval.ms", LONG, 300_000, at_least(1)),
    Key("log.retention.hours", INT, 168, None, HIGH),
    Key("log.retention.minutes", INT, None, None, HIGH),
    Key("log.retention.ms", LONG, None, None, HIGH, dynamic=CLUSTER),
    Key("log.roll.hours", INT, 168, at_least(1), HIGH),
    Key("log.roll.jitter.hours", INT, 0, at_least(0), HIGH),
    Key("log.roll.jitter.ms", LONG, None, None, HIGH, dynamic=CLUSTER),
    Key("log.roll.ms", LONG, None, None, HIGH, dynamic=CLUSTER),
    Key("log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), HIGH, dynamic=CLUSTER),
    Key("log.segment.delete.delay.ms", LONG, 60_000, at_least(0), HIGH, dynamic=CLUSTER),
    Key("message.max.bytes", INT, 1_048_588, at_least(0), HIGH, dynamic=CLUSTER),
    Key("min.insync.replicas", INT, 1, at_least(1), HIGH, dynamic=CLUSTER),
    Key("num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH, dynamic=CLUSTER),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, internal=True),
    Key("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, dynamic=CLUSTER),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, HIGH, dynamic=CLUSTER),
)
