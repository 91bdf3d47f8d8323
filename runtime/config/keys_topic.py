"""Topic keys, with the node keys that give their defaults."""

from __future__ import annotations

from runtime.config.schema import (
    GZIP_LEVEL,
    THROTTLED_REPLICAS,
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
LONG_MAX = 2**63 - 1


KEYS: tuple[Key, ...] = (
    Key(
        "cleanup.policy",
        LIST,
        ["delete"],
        a_list("compact", "delete", empty=True),
        synonyms=[("log.cleanup.policy", 1)],
    ),
    Key("compression.gzip.level", INT, -1, GZIP_LEVEL, synonyms=[("compression.gzip.level", 1)]),
    Key("compression.lz4.level", INT, 9, between(1, 17), synonyms=[("compression.lz4.level", 1)]),
    Key(
        "compression.type",
        STRING,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=[("compression.type", 1)],
    ),
    Key(
        "compression.zstd.level",
        INT,
        3,
        between(-131_072, 22),
        synonyms=[("compression.zstd.level", 1)],
    ),
    Key(
        "delete.retention.ms",
        LONG,
        86_400_000,
        at_least(0),
        synonyms=[("log.cleaner.delete.retention.ms", 1)],
    ),
    Key(
        "file.delete.delay.ms",
        LONG,
        60_000,
        at_least(0),
        synonyms=[("log.segment.delete.delay.ms", 1)],
    ),
    Key(
        "flush.messages", LONG, LONG_MAX, at_least(1), synonyms=[("log.flush.interval.messages", 1)]
    ),
    Key(
        "flush.ms",
        LONG,
        LONG_MAX,
        at_least(0),
        synonyms=[("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)],
    ),
    Key("follower.replication.throttled.replicas", LIST, [], THROTTLED_REPLICAS),
    Key("index.interval.bytes", INT, 4096, at_least(0), synonyms=[("log.index.interval.bytes", 1)]),
    Key("internal.segment.bytes", INT, internal=True),
    Key("leader.replication.throttled.replicas", LIST, [], THROTTLED_REPLICAS),
    Key(
        "local.retention.bytes", LONG, -2, at_least(-2), synonyms=[("log.local.retention.bytes", 1)]
    ),
    Key("local.retention.ms", LONG, -2, at_least(-2), synonyms=[("log.local.retention.ms", 1)]),
    Key(
        "max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        at_least(1),
        synonyms=[("log.cleaner.max.compaction.lag.ms", 1)],
    ),
    Key("max.message.bytes", INT, 1_048_588, at_least(0), synonyms=[("message.max.bytes", 1)]),
    Key(
        "message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        at_least(0),
        synonyms=[("log.message.timestamp.after.max.ms", 1)],
    ),
    Key(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        at_least(0),
        synonyms=[("log.message.timestamp.before.max.ms", 1)],
    ),
    Key(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=[("log.message.timestamp.type", 1)],
    ),
    Key(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        between(0.0, 1.0),
        synonyms=[("log.cleaner.min.cleanable.ratio", 1)],
    ),
    Key(
        "min.compaction.lag.ms",
        LONG,
        0,
        at_least(0),
        synonyms=[("log.cleaner.min.compaction.lag.ms", 1)],
    ),
    Key("min.insync.replicas", INT, 1, at_least(1), synonyms=[("min.insync.replicas", 1)]),
    Key("preallocate", BOOLEAN, False, synonyms=[("log.preallocate", 1)]),
    Key("remote.log.copy.disable", BOOLEAN, False),
    Key("remote.log.delete.on.disable", BOOLEAN, False),
    Key("remote.storage.enable", BOOLEAN, False),
    Key("retention.bytes", LONG, -1, synonyms=[("log.retention.bytes", 1)]),
    Key(
        "retention.ms",
        LONG,
        604_800_000,
        at_least(-1),
        synonyms=[
            ("log.retention.ms", 1),
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", 3_600_000),
        ],
    ),
    Key(
        "segment.bytes",
        INT,
        1_073_741_824,
        at_least(1_048_576),
        synonyms=[("log.segment.bytes", 1)],
    ),
    Key(
        "segment.index.bytes",
        INT,
        10_485_760,
        at_least(4),
        synonyms=[("log.index.size.max.bytes", 1)],
    ),
    Key(
        "segment.jitter.ms",
        LONG,
        0,
        at_least(0),
        synonyms=[("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)],
    ),
    Key(
        "segment.ms",
        LONG,
        604_800_000,
        at_least(1),
        synonyms=[("log.roll.ms", 1), ("log.roll.hours", 3_600_000)],
    ),
    Key(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        synonyms=[("unclean.leader.election.enable", 1)],
    ),
)
