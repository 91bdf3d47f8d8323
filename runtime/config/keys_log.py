"""Node keys: log directories, segments, flushing, retention, cleaning, compression."""

from __future__ import annotations

from typing import Final

from runtime.config.schema import (
    BOOLEAN,
    CLUSTER,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    PER_BROKER,
    STRING,
    NodeKey,
)
from runtime.config.validators import GZIP_LEVEL, a_list, at_least, between, one_of

DECOMPRESSED_BYTES_MAX: Final = 2_147_483_639
"""The largest array of a Java virtual machine: the largest value and default of Kafka."""

BACKGROUND_THREADS = NodeKey("background.threads", INT, 10, at_least(1), HIGH, dynamic=CLUSTER)
COMPRESSION_GZIP_LEVEL = NodeKey("compression.gzip.level", INT, -1, GZIP_LEVEL, dynamic=CLUSTER)
COMPRESSION_LZ4_LEVEL = NodeKey("compression.lz4.level", INT, 9, between(1, 17), dynamic=CLUSTER)
COMPRESSION_TYPE = NodeKey(
    "compression.type",
    STRING,
    "producer",
    one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    HIGH,
    dynamic=CLUSTER,
)
COMPRESSION_ZSTD_LEVEL = NodeKey(
    "compression.zstd.level", INT, 3, between(-131_072, 22), dynamic=CLUSTER
)
CORDONED_LOG_DIRS = NodeKey("cordoned.log.dirs", LIST, [], a_list(empty=True), dynamic=PER_BROKER)
LOG_CLEANER_BACKOFF_MS = NodeKey(
    "log.cleaner.backoff.ms", LONG, 15_000, at_least(0), dynamic=CLUSTER
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = NodeKey(
    "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, dynamic=CLUSTER
)
LOG_CLEANER_DELETE_RETENTION_MS = NodeKey(
    "log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), dynamic=CLUSTER
)
LOG_CLEANER_ENABLE = NodeKey("log.cleaner.enable", BOOLEAN, True)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = NodeKey(
    "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, dynamic=CLUSTER
)
LOG_CLEANER_IO_BUFFER_SIZE = NodeKey(
    "log.cleaner.io.buffer.size", INT, 524_288, at_least(0), dynamic=CLUSTER
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = NodeKey(
    "log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, dynamic=CLUSTER
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = NodeKey(
    "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = NodeKey(
    "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0.0, 1.0), dynamic=CLUSTER
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = NodeKey(
    "log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), dynamic=CLUSTER
)
LOG_CLEANER_THREADS = NodeKey("log.cleaner.threads", INT, 1, at_least(0), dynamic=CLUSTER)
LOG_CLEANUP_POLICY = NodeKey(
    "log.cleanup.policy", LIST, ["delete"], a_list("compact", "delete", empty=True), dynamic=CLUSTER
)
LOG_DIR = NodeKey("log.dir", LIST, ["/tmp/kafka-logs"], a_list(empty=False), HIGH)
LOG_DIR_FAILURE_TIMEOUT_MS = NodeKey("log.dir.failure.timeout.ms", LONG, 30_000, at_least(1), LOW)
LOG_DIRS = NodeKey("log.dirs", LIST, None, a_list(empty=False), HIGH)
LOG_FLUSH_INTERVAL_MESSAGES = NodeKey(
    "log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH, dynamic=CLUSTER
)
LOG_FLUSH_INTERVAL_MS = NodeKey("log.flush.interval.ms", LONG, None, None, HIGH, dynamic=CLUSTER)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = NodeKey(
    "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = NodeKey(
    "log.flush.scheduler.interval.ms", LONG, LONG_MAX, None, HIGH
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = NodeKey(
    "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH
)
LOG_INDEX_INTERVAL_BYTES = NodeKey(
    "log.index.interval.bytes", INT, 4096, at_least(0), dynamic=CLUSTER
)
LOG_INDEX_SIZE_MAX_BYTES = NodeKey(
    "log.index.size.max.bytes", INT, 10_485_760, at_least(4), dynamic=CLUSTER
)
LOG_INITIAL_TASK_DELAY_MS = NodeKey(
    "log.initial.task.delay.ms", LONG, 30_000, at_least(0), LOW, internal=True
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = NodeKey(
    "log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), dynamic=CLUSTER
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = NodeKey(
    "log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER
)
LOG_MESSAGE_TIMESTAMP_TYPE = NodeKey(
    "log.message.timestamp.type",
    STRING,
    "CreateTime",
    one_of("CreateTime", "LogAppendTime"),
    dynamic=CLUSTER,
)
LOG_PREALLOCATE = NodeKey("log.preallocate", BOOLEAN, False, dynamic=CLUSTER)
LOG_RETENTION_BYTES = NodeKey("log.retention.bytes", LONG, -1, None, HIGH, dynamic=CLUSTER)
LOG_RETENTION_CHECK_INTERVAL_MS = NodeKey(
    "log.retention.check.interval.ms", LONG, 300_000, at_least(1)
)
LOG_RETENTION_HOURS = NodeKey("log.retention.hours", INT, 168, None, HIGH)
LOG_RETENTION_MINUTES = NodeKey("log.retention.minutes", INT, None, None, HIGH)
LOG_RETENTION_MS = NodeKey("log.retention.ms", LONG, None, None, HIGH, dynamic=CLUSTER)
LOG_ROLL_HOURS = NodeKey("log.roll.hours", INT, 168, at_least(1), HIGH)
LOG_ROLL_JITTER_HOURS = NodeKey("log.roll.jitter.hours", INT, 0, at_least(0), HIGH)
LOG_ROLL_JITTER_MS = NodeKey("log.roll.jitter.ms", LONG, None, None, HIGH, dynamic=CLUSTER)
LOG_ROLL_MS = NodeKey("log.roll.ms", LONG, None, None, HIGH, dynamic=CLUSTER)
LOG_SEGMENT_BYTES = NodeKey(
    "log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), HIGH, dynamic=CLUSTER
)
LOG_SEGMENT_DELETE_DELAY_MS = NodeKey(
    "log.segment.delete.delay.ms", LONG, 60_000, at_least(0), HIGH, dynamic=CLUSTER
)
MAX_DECOMPRESSED_MESSAGE_BYTES = NodeKey(
    "max.decompressed.message.bytes",
    INT,
    DECOMPRESSED_BYTES_MAX,
    between(1, DECOMPRESSED_BYTES_MAX),
    dynamic=CLUSTER,
)
MESSAGE_MAX_BYTES = NodeKey("message.max.bytes", INT, 1_048_588, at_least(0), HIGH, dynamic=CLUSTER)
MIN_INSYNC_REPLICAS = NodeKey("min.insync.replicas", INT, 1, at_least(1), HIGH, dynamic=CLUSTER)
NUM_RECOVERY_THREADS_PER_DATA_DIR = NodeKey(
    "num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH, dynamic=CLUSTER
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = NodeKey(
    "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, internal=True
)
PRODUCER_ID_EXPIRATION_MS = NodeKey(
    "producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, dynamic=CLUSTER
)
UNCLEAN_LEADER_ELECTION_ENABLE = NodeKey(
    "unclean.leader.election.enable", BOOLEAN, False, None, HIGH, dynamic=CLUSTER
)
UNCLEAN_RECOVERY_MANAGER_ENABLED = NodeKey(
    "unclean.recovery.manager.enabled", BOOLEAN, False, None, dynamic=CLUSTER, internal=True
)
UNCLEAN_RECOVERY_STRATEGY = NodeKey(
    "unclean.recovery.strategy",
    STRING,
    "Balanced",
    one_of("Aggressive", "Balanced", "None"),
    dynamic=CLUSTER,
    internal=True,
)
UNCLEAN_RECOVERY_TIMEOUT_MS = NodeKey(
    "unclean.recovery.timeout.ms", LONG, 300_000, at_least(0), dynamic=CLUSTER, internal=True
)
