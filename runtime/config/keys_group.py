"""Group keys, with the node keys that give their defaults."""

from __future__ import annotations

from runtime.config import keys_group_coordinator
from runtime.config.schema import BOOLEAN, INT, LIST, LONG, LOW, STRING, GroupKey
from runtime.config.validators import DEAD_LETTER_TOPIC, SHARE_RESET, a_list, at_least, one_of

CONSUMER_ASSIGNMENT_INTERVAL_MS = GroupKey(
    "consumer.assignment.interval.ms",
    INT,
    1000,
    at_least(0),
    synonyms=[(keys_group_coordinator.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS, 1)],
)
CONSUMER_ASSIGNOR_OFFLOAD_ENABLE = GroupKey(
    "consumer.assignor.offload.enable",
    BOOLEAN,
    True,
    synonyms=[(keys_group_coordinator.GROUP_CONSUMER_ASSIGNOR_OFFLOAD_ENABLE, 1)],
    internal=True,
)
CONSUMER_HEARTBEAT_INTERVAL_MS = GroupKey(
    "consumer.heartbeat.interval.ms",
    INT,
    5000,
    at_least(1),
    synonyms=[(keys_group_coordinator.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, 1)],
)
CONSUMER_SESSION_TIMEOUT_MS = GroupKey(
    "consumer.session.timeout.ms",
    INT,
    45_000,
    at_least(1),
    synonyms=[(keys_group_coordinator.GROUP_CONSUMER_SESSION_TIMEOUT_MS, 1)],
)
ERRORS_DEADLETTERQUEUE_COPY_RECORD_ENABLE = GroupKey(
    "errors.deadletterqueue.copy.record.enable", BOOLEAN, False
)
ERRORS_DEADLETTERQUEUE_TOPIC_NAME = GroupKey(
    "errors.deadletterqueue.topic.name", STRING, "", DEAD_LETTER_TOPIC
)
SHARE_ASSIGNMENT_INTERVAL_MS = GroupKey(
    "share.assignment.interval.ms",
    INT,
    1000,
    at_least(0),
    synonyms=[(keys_group_coordinator.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, 1)],
)
SHARE_ASSIGNOR_OFFLOAD_ENABLE = GroupKey(
    "share.assignor.offload.enable",
    BOOLEAN,
    True,
    synonyms=[(keys_group_coordinator.GROUP_SHARE_ASSIGNOR_OFFLOAD_ENABLE, 1)],
    internal=True,
)
SHARE_AUTO_OFFSET_RESET = GroupKey("share.auto.offset.reset", STRING, "latest", SHARE_RESET)
SHARE_DELIVERY_COUNT_LIMIT = GroupKey(
    "share.delivery.count.limit",
    INT,
    5,
    at_least(2),
    synonyms=[(keys_group_coordinator.GROUP_SHARE_DELIVERY_COUNT_LIMIT, 1)],
)
SHARE_HEARTBEAT_INTERVAL_MS = GroupKey(
    "share.heartbeat.interval.ms",
    INT,
    5000,
    at_least(1),
    synonyms=[(keys_group_coordinator.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, 1)],
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
    synonyms=[(keys_group_coordinator.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS, 1)],
)
SHARE_RECORD_LOCK_DURATION_MS = GroupKey(
    "share.record.lock.duration.ms",
    INT,
    30_000,
    at_least(1000),
    synonyms=[(keys_group_coordinator.GROUP_SHARE_RECORD_LOCK_DURATION_MS, 1)],
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE = GroupKey("share.renew.acknowledge.enable", BOOLEAN, True)
SHARE_SESSION_TIMEOUT_MS = GroupKey(
    "share.session.timeout.ms",
    INT,
    45_000,
    at_least(1),
    synonyms=[(keys_group_coordinator.GROUP_SHARE_SESSION_TIMEOUT_MS, 1)],
)
STREAMS_ACCEPTABLE_RECOVERY_LAG = GroupKey(
    "streams.acceptable.recovery.lag",
    LONG,
    10_000,
    at_least(0),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_ACCEPTABLE_RECOVERY_LAG, 1)],
    internal=True,
)
STREAMS_ASSIGNMENT_INTERVAL_MS = GroupKey(
    "streams.assignment.interval.ms",
    INT,
    1000,
    at_least(0),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS, 1)],
)
STREAMS_ASSIGNOR_NAME = GroupKey(
    "streams.assignor.name",
    STRING,
    None,
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_ASSIGNORS, 1)],
)
STREAMS_ASSIGNOR_OFFLOAD_ENABLE = GroupKey(
    "streams.assignor.offload.enable",
    BOOLEAN,
    True,
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_ASSIGNOR_OFFLOAD_ENABLE, 1)],
    internal=True,
)
STREAMS_HEARTBEAT_INTERVAL_MS = GroupKey(
    "streams.heartbeat.interval.ms",
    INT,
    5000,
    at_least(1),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, 1)],
)
STREAMS_INITIAL_REBALANCE_DELAY_MS = GroupKey(
    "streams.initial.rebalance.delay.ms",
    INT,
    3000,
    at_least(0),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS, 1)],
)
STREAMS_NUM_STANDBY_REPLICAS = GroupKey(
    "streams.num.standby.replicas",
    INT,
    0,
    at_least(0),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_NUM_STANDBY_REPLICAS, 1)],
)
STREAMS_NUM_WARMUP_REPLICAS = GroupKey(
    "streams.num.warmup.replicas",
    INT,
    2,
    at_least(0),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_NUM_WARMUP_REPLICAS, 1)],
    internal=True,
)
STREAMS_RACK_AWARE_ASSIGNMENT_TAGS = GroupKey(
    "streams.rack.aware.assignment.tags",
    LIST,
    [],
    a_list(empty=True),
    LOW,
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_RACK_AWARE_ASSIGNMENT_TAGS, 1)],
)
STREAMS_SESSION_TIMEOUT_MS = GroupKey(
    "streams.session.timeout.ms",
    INT,
    45_000,
    at_least(1),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_SESSION_TIMEOUT_MS, 1)],
)
STREAMS_TASK_OFFSET_INTERVAL_MS = GroupKey(
    "streams.task.offset.interval.ms",
    INT,
    60_000,
    at_least(1),
    synonyms=[(keys_group_coordinator.GROUP_STREAMS_TASK_OFFSET_INTERVAL_MS, 1)],
    internal=True,
)
