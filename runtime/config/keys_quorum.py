"""Node keys: identity and roles, the metadata quorum and its log, registration and fencing."""

from __future__ import annotations

from runtime.config.schema import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    REQUIRED,
    STRING,
    NodeKey,
)
from runtime.config.validators import a_list, at_least

AUTO_LEADER_REBALANCE_ENABLE = NodeKey("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH)
BROKER_HEARTBEAT_INTERVAL_MS = NodeKey("broker.heartbeat.interval.ms", INT, 2000)
BROKER_ID = NodeKey("broker.id", INT, -1, None, HIGH)
BROKER_SESSION_TIMEOUT_MS = NodeKey("broker.session.timeout.ms", INT, 9000)
CONTROLLER_LISTENER_NAMES = NodeKey(
    "controller.listener.names", LIST, REQUIRED, a_list(empty=False), HIGH
)
CONTROLLER_PERFORMANCE_ALWAYS_LOG_THRESHOLD_MS = NodeKey(
    "controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), internal=True
)
CONTROLLER_PERFORMANCE_SAMPLE_PERIOD_MS = NodeKey(
    "controller.performance.sample.period.ms", LONG, 60_000, at_least(100), internal=True
)
CONTROLLER_QUORUM_APPEND_LINGER_MS = NodeKey(
    "controller.quorum.append.linger.ms", INT, 25, at_least(0)
)
CONTROLLER_QUORUM_AUTO_JOIN_ENABLE = NodeKey(
    "controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = NodeKey(
    "controller.quorum.bootstrap.servers", LIST, [], None, HIGH
)
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = NodeKey(
    "controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH
)
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = NodeKey(
    "controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH
)
CONTROLLER_QUORUM_FETCH_MAX_BYTES = NodeKey(
    "controller.quorum.fetch.max.bytes", INT, 1_048_576, at_least(1), LOW
)
CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES = NodeKey(
    "controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, at_least(1), LOW
)
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = NodeKey(
    "controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH
)
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = NodeKey(
    "controller.quorum.request.timeout.ms", INT, 2000, at_least(0)
)
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = NodeKey(
    "controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW
)
CONTROLLER_QUORUM_VOTERS = NodeKey("controller.quorum.voters", LIST, [], None, HIGH)
CONTROLLER_QUOTA_WINDOW_NUM = NodeKey("controller.quota.window.num", INT, 11, at_least(1), LOW)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = NodeKey(
    "controller.quota.window.size.seconds", INT, 1, at_least(1), LOW
)
CONTROLLER_SOCKET_TIMEOUT_MS = NodeKey("controller.socket.timeout.ms", INT, 30_000)
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = NodeKey(
    "initial.broker.registration.timeout.ms", INT, 60_000
)
INTERNAL_METADATA_DELETE_DELAY_MILLIS = NodeKey(
    "internal.metadata.delete.delay.millis", LONG, 60_000, None, LOW, internal=True
)
INTERNAL_METADATA_LOG_SEGMENT_BYTES = NodeKey(
    "internal.metadata.log.segment.bytes", INT, None, None, LOW, internal=True
)
INTERNAL_METADATA_MAX_BATCH_SIZE_IN_BYTES = NodeKey(
    "internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW, internal=True
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = NodeKey(
    "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH
)
METADATA_LOG_DIR = NodeKey("metadata.log.dir", STRING, None, None, HIGH)
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = NodeKey(
    "metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, at_least(1), HIGH
)
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = NodeKey(
    "metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0), HIGH
)
METADATA_LOG_SEGMENT_BYTES = NodeKey(
    "metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608), HIGH
)
METADATA_LOG_SEGMENT_MS = NodeKey("metadata.log.segment.ms", LONG, 604_800_000, None, HIGH)
METADATA_MAX_IDLE_INTERVAL_MS = NodeKey("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW)
METADATA_MAX_RETENTION_BYTES = NodeKey(
    "metadata.max.retention.bytes", LONG, 104_857_600, None, HIGH
)
METADATA_MAX_RETENTION_MS = NodeKey("metadata.max.retention.ms", LONG, 604_800_000, None, HIGH)
NODE_ID = NodeKey("node.id", INT, REQUIRED, at_least(0), HIGH)
PROCESS_ROLES = NodeKey(
    "process.roles", LIST, REQUIRED, a_list("broker", "controller", empty=False), HIGH
)
SERVER_MAX_STARTUP_TIME_MS = NodeKey(
    "server.max.startup.time.ms", LONG, LONG_MAX, at_least(0), internal=True
)
UNCLEAN_LEADER_ELECTION_INTERVAL_MS = NodeKey(
    "unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), internal=True
)
UNSTABLE_API_VERSIONS_ENABLE = NodeKey(
    "unstable.api.versions.enable", BOOLEAN, False, None, HIGH, internal=True
)
UNSTABLE_FEATURE_VERSIONS_ENABLE = NodeKey(
    "unstable.feature.versions.enable", BOOLEAN, False, None, HIGH, internal=True
)
