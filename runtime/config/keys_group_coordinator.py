"""Node keys: group coordinator and the offsets topic."""

from __future__ import annotations

from runtime.config.schema import (
    BOOLEAN,
    CLASS,
    CLUSTER,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    SHORT,
    STRING,
    NodeKey,
)
from runtime.config.validators import a_list, at_least, between, one_of_any_case

ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE = NodeKey(
    "errors.deadletterqueue.auto.create.topics.enable", BOOLEAN, False, dynamic=CLUSTER
)
ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX = NodeKey(
    "errors.deadletterqueue.topic.name.prefix", STRING, "dlq.", dynamic=CLUSTER
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.consumer.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER
)
GROUP_CONSUMER_ASSIGNORS = NodeKey(
    "group.consumer.assignors", LIST, ["uniform", "range"], a_list(empty=False)
)
GROUP_CONSUMER_ASSIGNOR_OFFLOAD_ENABLE = NodeKey(
    "group.consumer.assignor.offload.enable", BOOLEAN, True, internal=True, dynamic=CLUSTER
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1)
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0)
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1)
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = NodeKey(
    "group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1)
)
GROUP_CONSUMER_MAX_SIZE = NodeKey("group.consumer.max.size", INT, INT_MAX, at_least(1))
GROUP_CONSUMER_MIGRATION_POLICY = NodeKey(
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.consumer.min.assignment.interval.ms", INT, 0, at_least(0)
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1)
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = NodeKey(
    "group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1)
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = NodeKey(
    "group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10_000), internal=True
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = NodeKey(
    "group.consumer.session.timeout.ms", INT, 45_000, at_least(1)
)
GROUP_COORDINATOR_APPEND_LINGER_MS = NodeKey(
    "group.coordinator.append.linger.ms", INT, -1, at_least(-1)
)
GROUP_COORDINATOR_BACKGROUND_THREADS = NodeKey(
    "group.coordinator.background.threads", INT, 2, at_least(1), HIGH
)
GROUP_COORDINATOR_CACHED_BUFFER_MAX_BYTES = NodeKey(
    "group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), dynamic=CLUSTER
)
GROUP_COORDINATOR_REBALANCE_PROTOCOLS = NodeKey(
    "group.coordinator.rebalance.protocols",
    LIST,
    ["classic", "consumer", "streams"],
    a_list("consumer", "classic", "share", "streams", empty=False),
)
GROUP_COORDINATOR_THREADS = NodeKey("group.coordinator.threads", INT, 4, at_least(1), HIGH)
GROUP_INITIAL_REBALANCE_DELAY_MS = NodeKey("group.initial.rebalance.delay.ms", INT, 3000)
GROUP_MAX_SESSION_TIMEOUT_MS = NodeKey("group.max.session.timeout.ms", INT, 1_800_000)
GROUP_MAX_SIZE = NodeKey("group.max.size", INT, INT_MAX, at_least(1))
GROUP_MIN_SESSION_TIMEOUT_MS = NodeKey("group.min.session.timeout.ms", INT, 6000)
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.share.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER
)
GROUP_SHARE_ASSIGNORS = NodeKey("group.share.assignors", LIST, ["simple"], a_list(empty=False))
GROUP_SHARE_ASSIGNOR_OFFLOAD_ENABLE = NodeKey(
    "group.share.assignor.offload.enable", BOOLEAN, True, internal=True, dynamic=CLUSTER
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT = NodeKey(
    "group.share.delivery.count.limit", INT, 5, between(2, 10)
)
GROUP_SHARE_DLQ_MANAGER_CLASS_NAME = NodeKey(
    "group.share.dlq.manager.class.name",
    STRING,
    "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
    internal=True,
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.share.heartbeat.interval.ms", INT, 5000, at_least(1)
)
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS = NodeKey(
    "group.share.initialize.retry.interval.ms", INT, 30_000, at_least(1), LOW, internal=True
)
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.share.max.assignment.interval.ms", INT, 15_000, at_least(0)
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = NodeKey(
    "group.share.max.delivery.count.limit", INT, 10, between(5, 25)
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1)
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = NodeKey(
    "group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10_000)
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = NodeKey(
    "group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000)
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = NodeKey(
    "group.share.max.session.timeout.ms", INT, 60_000, at_least(1)
)
GROUP_SHARE_MAX_SHARE_SESSIONS = NodeKey("group.share.max.share.sessions", INT, 2000, at_least(1))
GROUP_SHARE_MAX_SIZE = NodeKey("group.share.max.size", INT, 200, between(1, 1000))
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.share.min.assignment.interval.ms", INT, 0, at_least(0)
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = NodeKey(
    "group.share.min.delivery.count.limit", INT, 2, between(2, 5)
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1)
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = NodeKey(
    "group.share.min.partition.max.record.locks", INT, 100, between(100, 2000)
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = NodeKey(
    "group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000)
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = NodeKey(
    "group.share.min.session.timeout.ms", INT, 45_000, at_least(1)
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = NodeKey(
    "group.share.partition.max.record.locks", INT, 2000, between(100, 10_000)
)
GROUP_SHARE_PERSISTER_CLASS_NAME = NodeKey(
    "group.share.persister.class.name",
    STRING,
    "org.apache.kafka.server.share.persister.DefaultStatePersister",
    internal=True,
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS = NodeKey(
    "group.share.record.lock.duration.ms", INT, 30_000, between(1000, 3_600_000)
)
GROUP_SHARE_SESSION_TIMEOUT_MS = NodeKey("group.share.session.timeout.ms", INT, 45_000, at_least(1))
GROUP_STREAMS_ACCEPTABLE_RECOVERY_LAG = NodeKey(
    "group.streams.acceptable.recovery.lag", LONG, 10_000, at_least(0), internal=True
)
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.streams.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER
)
GROUP_STREAMS_ASSIGNORS = NodeKey("group.streams.assignors", LIST, ["sticky"])
GROUP_STREAMS_ASSIGNOR_OFFLOAD_ENABLE = NodeKey(
    "group.streams.assignor.offload.enable", BOOLEAN, True, internal=True, dynamic=CLUSTER
)
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.streams.heartbeat.interval.ms", INT, 5000, at_least(1)
)
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS = NodeKey(
    "group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0)
)
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.streams.max.assignment.interval.ms", INT, 15_000, at_least(0)
)
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.streams.max.heartbeat.interval.ms", INT, 15_000, at_least(1)
)
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS = NodeKey(
    "group.streams.max.session.timeout.ms", INT, 60_000, at_least(1)
)
GROUP_STREAMS_MAX_SIZE = NodeKey("group.streams.max.size", INT, INT_MAX, at_least(1))
GROUP_STREAMS_MAX_STANDBY_REPLICAS = NodeKey(
    "group.streams.max.standby.replicas", INT, 2, at_least(0)
)
GROUP_STREAMS_MAX_WARMUP_REPLICAS = NodeKey(
    "group.streams.max.warmup.replicas", INT, 20, at_least(0), internal=True
)
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS = NodeKey(
    "group.streams.min.assignment.interval.ms", INT, 0, at_least(0)
)
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS = NodeKey(
    "group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1)
)
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS = NodeKey(
    "group.streams.min.session.timeout.ms", INT, 45_000, at_least(1)
)
GROUP_STREAMS_MIN_TASK_OFFSET_INTERVAL_MS = NodeKey(
    "group.streams.min.task.offset.interval.ms", INT, 15_000, at_least(1), internal=True
)
GROUP_STREAMS_NUM_STANDBY_REPLICAS = NodeKey(
    "group.streams.num.standby.replicas", INT, 0, at_least(0)
)
GROUP_STREAMS_NUM_WARMUP_REPLICAS = NodeKey(
    "group.streams.num.warmup.replicas", INT, 2, at_least(0), internal=True
)
GROUP_STREAMS_RACK_AWARE_ASSIGNMENT_TAGS = NodeKey(
    "group.streams.rack.aware.assignment.tags", LIST, [], a_list(empty=True), LOW
)
GROUP_STREAMS_SESSION_TIMEOUT_MS = NodeKey(
    "group.streams.session.timeout.ms", INT, 45_000, at_least(1)
)
GROUP_STREAMS_TASK_OFFSET_INTERVAL_MS = NodeKey(
    "group.streams.task.offset.interval.ms", INT, 60_000, at_least(1), internal=True
)
GROUP_STREAMS_TOPOLOGY_DESCRIPTION_PLUGIN_CLASS = NodeKey(
    "group.streams.topology.description.plugin.class", CLASS, None
)
OFFSET_METADATA_MAX_BYTES = NodeKey("offset.metadata.max.bytes", INT, 4096, None, HIGH)
OFFSETS_COMMIT_TIMEOUT_MS = NodeKey("offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH)
OFFSETS_LOAD_BUFFER_SIZE = NodeKey("offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = NodeKey(
    "offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH
)
OFFSETS_RETENTION_MINUTES = NodeKey("offsets.retention.minutes", INT, 10_080, at_least(1), HIGH)
OFFSETS_TOPIC_COMPRESSION_CODEC = NodeKey("offsets.topic.compression.codec", INT, 0, None, HIGH)
OFFSETS_TOPIC_NUM_PARTITIONS = NodeKey("offsets.topic.num.partitions", INT, 50, at_least(1), HIGH)
OFFSETS_TOPIC_REPLICATION_FACTOR = NodeKey(
    "offsets.topic.replication.factor", SHORT, 3, at_least(1), HIGH
)
OFFSETS_TOPIC_SEGMENT_BYTES = NodeKey(
    "offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH
)
