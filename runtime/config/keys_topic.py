"""Topic keys, with the node keys that give their defaults."""

from __future__ import annotations

from runtime.config import keys_log, keys_remote, keys_replication
from runtime.config.schema import BOOLEAN, DOUBLE, INT, LIST, LONG, LONG_MAX, STRING, TopicKey
from runtime.config.validators import (
    GZIP_LEVEL,
    THROTTLED_REPLICAS,
    a_list,
    at_least,
    between,
    one_of,
)

CLEANUP_POLICY = TopicKey(
    "cleanup.policy",
    LIST,
    ["delete"],
    a_list("compact", "delete", empty=True),
    synonyms=[(keys_log.LOG_CLEANUP_POLICY, 1)],
)
COMPRESSION_GZIP_LEVEL = TopicKey(
    "compression.gzip.level", INT, -1, GZIP_LEVEL, synonyms=[(keys_log.COMPRESSION_GZIP_LEVEL, 1)]
)
COMPRESSION_LZ4_LEVEL = TopicKey(
    "compression.lz4.level", INT, 9, between(1, 17), synonyms=[(keys_log.COMPRESSION_LZ4_LEVEL, 1)]
)
COMPRESSION_TYPE = TopicKey(
    "compression.type",
    STRING,
    "producer",
    one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    synonyms=[(keys_log.COMPRESSION_TYPE, 1)],
)
COMPRESSION_ZSTD_LEVEL = TopicKey(
    "compression.zstd.level",
    INT,
    3,
    between(-131_072, 22),
    synonyms=[(keys_log.COMPRESSION_ZSTD_LEVEL, 1)],
)
DELETE_RETENTION_MS = TopicKey(
    "delete.retention.ms",
    LONG,
    86_400_000,
    at_least(0),
    synonyms=[(keys_log.LOG_CLEANER_DELETE_RETENTION_MS, 1)],
)
ERRORS_DEADLETTERQUEUE_GROUP_ENABLE = TopicKey(
    "errors.deadletterqueue.group.enable", BOOLEAN, False
)
FILE_DELETE_DELAY_MS = TopicKey(
    "file.delete.delay.ms",
    LONG,
    60_000,
    at_least(0),
    synonyms=[(keys_log.LOG_SEGMENT_DELETE_DELAY_MS, 1)],
)
FLUSH_MESSAGES = TopicKey(
    "flush.messages",
    LONG,
    LONG_MAX,
    at_least(1),
    synonyms=[(keys_log.LOG_FLUSH_INTERVAL_MESSAGES, 1)],
)
FLUSH_MS = TopicKey(
    "flush.ms",
    LONG,
    LONG_MAX,
    at_least(0),
    synonyms=[(keys_log.LOG_FLUSH_INTERVAL_MS, 1), (keys_log.LOG_FLUSH_SCHEDULER_INTERVAL_MS, 1)],
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = TopicKey(
    "follower.replication.throttled.replicas", LIST, [], THROTTLED_REPLICAS
)
INDEX_INTERVAL_BYTES = TopicKey(
    "index.interval.bytes",
    INT,
    4096,
    at_least(0),
    synonyms=[(keys_log.LOG_INDEX_INTERVAL_BYTES, 1)],
)
INTERNAL_SEGMENT_BYTES = TopicKey("internal.segment.bytes", INT, None, internal=True)
LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_BYTES = TopicKey(
    "leader.election.eligible.local.log.bytes",
    LONG,
    -1,
    at_least(-1),
    synonyms=[(keys_replication.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_BYTES, 1)],
    internal=True,
)
LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_MS = TopicKey(
    "leader.election.eligible.local.log.ms",
    LONG,
    -1,
    at_least(-1),
    synonyms=[(keys_replication.LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_MS, 1)],
    internal=True,
)
LEADER_REPLICATION_THROTTLED_REPLICAS = TopicKey(
    "leader.replication.throttled.replicas", LIST, [], THROTTLED_REPLICAS
)
LOCAL_RETENTION_BYTES = TopicKey(
    "local.retention.bytes",
    LONG,
    -2,
    at_least(-2),
    synonyms=[(keys_remote.LOG_LOCAL_RETENTION_BYTES, 1)],
)
LOCAL_RETENTION_MS = TopicKey(
    "local.retention.ms", LONG, -2, at_least(-2), synonyms=[(keys_remote.LOG_LOCAL_RETENTION_MS, 1)]
)
MAX_COMPACTION_LAG_MS = TopicKey(
    "max.compaction.lag.ms",
    LONG,
    LONG_MAX,
    at_least(1),
    synonyms=[(keys_log.LOG_CLEANER_MAX_COMPACTION_LAG_MS, 1)],
)
MAX_DECOMPRESSED_MESSAGE_BYTES = TopicKey(
    "max.decompressed.message.bytes",
    INT,
    keys_log.DECOMPRESSED_BYTES_MAX,
    between(1, keys_log.DECOMPRESSED_BYTES_MAX),
    synonyms=[(keys_log.MAX_DECOMPRESSED_MESSAGE_BYTES, 1)],
)
MAX_MESSAGE_BYTES = TopicKey(
    "max.message.bytes", INT, 1_048_588, at_least(0), synonyms=[(keys_log.MESSAGE_MAX_BYTES, 1)]
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = TopicKey(
    "message.timestamp.after.max.ms",
    LONG,
    3_600_000,
    at_least(0),
    synonyms=[(keys_log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS, 1)],
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = TopicKey(
    "message.timestamp.before.max.ms",
    LONG,
    LONG_MAX,
    at_least(0),
    synonyms=[(keys_log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS, 1)],
)
MESSAGE_TIMESTAMP_TYPE = TopicKey(
    "message.timestamp.type",
    STRING,
    "CreateTime",
    one_of("CreateTime", "LogAppendTime"),
    synonyms=[(keys_log.LOG_MESSAGE_TIMESTAMP_TYPE, 1)],
)
MIN_CLEANABLE_DIRTY_RATIO = TopicKey(
    "min.cleanable.dirty.ratio",
    DOUBLE,
    0.5,
    between(0.0, 1.0),
    synonyms=[(keys_log.LOG_CLEANER_MIN_CLEANABLE_RATIO, 1)],
)
MIN_COMPACTION_LAG_MS = TopicKey(
    "min.compaction.lag.ms",
    LONG,
    0,
    at_least(0),
    synonyms=[(keys_log.LOG_CLEANER_MIN_COMPACTION_LAG_MS, 1)],
)
MIN_INSYNC_REPLICAS = TopicKey(
    "min.insync.replicas", INT, 1, at_least(1), synonyms=[(keys_log.MIN_INSYNC_REPLICAS, 1)]
)
PREALLOCATE = TopicKey("preallocate", BOOLEAN, False, synonyms=[(keys_log.LOG_PREALLOCATE, 1)])
REMOTE_COPY_LAG_BYTES = TopicKey(
    "remote.copy.lag.bytes",
    LONG,
    -1,
    at_least(-1),
    synonyms=[(keys_remote.LOG_REMOTE_COPY_LAG_BYTES, 1)],
)
REMOTE_COPY_LAG_MS = TopicKey(
    "remote.copy.lag.ms", LONG, 0, at_least(-1), synonyms=[(keys_remote.LOG_REMOTE_COPY_LAG_MS, 1)]
)
REMOTE_LOG_COPY_DISABLE = TopicKey("remote.log.copy.disable", BOOLEAN, False)
REMOTE_LOG_DELETE_ON_DISABLE = TopicKey("remote.log.delete.on.disable", BOOLEAN, False)
REMOTE_STORAGE_ENABLE = TopicKey("remote.storage.enable", BOOLEAN, False)
RETENTION_BYTES = TopicKey(
    "retention.bytes", LONG, -1, synonyms=[(keys_log.LOG_RETENTION_BYTES, 1)]
)
RETENTION_MS = TopicKey(
    "retention.ms",
    LONG,
    604_800_000,
    at_least(-1),
    synonyms=[
        (keys_log.LOG_RETENTION_MS, 1),
        (keys_log.LOG_RETENTION_MINUTES, 60_000),
        (keys_log.LOG_RETENTION_HOURS, 3_600_000),
    ],
)
SEGMENT_BYTES = TopicKey(
    "segment.bytes",
    INT,
    1_073_741_824,
    at_least(1_048_576),
    synonyms=[(keys_log.LOG_SEGMENT_BYTES, 1)],
)
SEGMENT_INDEX_BYTES = TopicKey(
    "segment.index.bytes",
    INT,
    10_485_760,
    at_least(4),
    synonyms=[(keys_log.LOG_INDEX_SIZE_MAX_BYTES, 1)],
)
SEGMENT_JITTER_MS = TopicKey(
    "segment.jitter.ms",
    LONG,
    0,
    at_least(0),
    synonyms=[(keys_log.LOG_ROLL_JITTER_MS, 1), (keys_log.LOG_ROLL_JITTER_HOURS, 3_600_000)],
)
SEGMENT_MS = TopicKey(
    "segment.ms",
    LONG,
    604_800_000,
    at_least(1),
    synonyms=[(keys_log.LOG_ROLL_MS, 1), (keys_log.LOG_ROLL_HOURS, 3_600_000)],
)
UNCLEAN_LEADER_ELECTION_ENABLE = TopicKey(
    "unclean.leader.election.enable",
    BOOLEAN,
    False,
    synonyms=[(keys_log.UNCLEAN_LEADER_ELECTION_ENABLE, 1)],
)
UNCLEAN_RECOVERY_STRATEGY = TopicKey(
    "unclean.recovery.strategy",
    STRING,
    "Balanced",
    one_of("Aggressive", "Balanced", "None"),
    synonyms=[(keys_log.UNCLEAN_RECOVERY_STRATEGY, 1)],
    internal=True,
)
