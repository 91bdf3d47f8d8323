"""Node keys: replica fetching, replication quotas, shutdown."""

from __future__ import annotations

from runtime.config.schema import BOOLEAN, CLUSTER, HIGH, INT, LONG, LOW, STRING, NodeKey
from runtime.config.validators import at_least

ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = NodeKey(
    "alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = NodeKey(
    "alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW
)
CONTROLLED_SHUTDOWN_ENABLE = NodeKey("controlled.shutdown.enable", BOOLEAN, True)
DEFAULT_REPLICATION_FACTOR = NodeKey("default.replication.factor", INT, 1)
LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_BYTES = NodeKey(
    "leader.election.eligible.local.log.bytes",
    LONG,
    -1,
    at_least(-1),
    dynamic=CLUSTER,
    internal=True,
)
LEADER_ELECTION_ELIGIBLE_LOCAL_LOG_MS = NodeKey(
    "leader.election.eligible.local.log.ms",
    LONG,
    -1,
    at_least(-1),
    dynamic=CLUSTER,
    internal=True,
)
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = NodeKey(
    "num.replica.alter.log.dirs.threads", INT, None, None, HIGH
)
NUM_REPLICA_FETCHERS = NodeKey("num.replica.fetchers", INT, 1, at_least(1), HIGH, dynamic=CLUSTER)
REPLICA_FETCH_BACKOFF_MS = NodeKey("replica.fetch.backoff.ms", INT, 1000, at_least(0))
REPLICA_FETCH_MAX_BYTES = NodeKey("replica.fetch.max.bytes", INT, 1_048_576, at_least(0))
REPLICA_FETCH_MIN_BYTES = NodeKey("replica.fetch.min.bytes", INT, 1, None, HIGH)
REPLICA_FETCH_RESPONSE_MAX_BYTES = NodeKey(
    "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0)
)
REPLICA_FETCH_WAIT_MAX_MS = NodeKey("replica.fetch.wait.max.ms", INT, 500, None, HIGH)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = NodeKey(
    "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH
)
REPLICA_LAG_TIME_MAX_MS = NodeKey("replica.lag.time.max.ms", LONG, 30_000, None, HIGH)
REPLICA_SELECTOR_CLASS = NodeKey("replica.selector.class", STRING, None)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = NodeKey(
    "replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH
)
REPLICA_SOCKET_TIMEOUT_MS = NodeKey("replica.socket.timeout.ms", INT, 30_000, None, HIGH)
REPLICATION_QUOTA_WINDOW_NUM = NodeKey("replication.quota.window.num", INT, 11, at_least(1), LOW)
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = NodeKey(
    "replication.quota.window.size.seconds", INT, 1, at_least(1), LOW
)
