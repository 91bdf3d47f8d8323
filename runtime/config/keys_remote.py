"""Node keys: tiered storage."""

from __future__ import annotations

from runtime.config.schema import (
    BOOLEAN,
    CLUSTER,
    DOUBLE,
    INT,
    LONG,
    LONG_MAX,
    LOW,
    STRING,
    NodeKey,
)
from runtime.config.validators import NON_EMPTY, at_least, between

FOLLOWER_FETCH_LAST_TIERED_OFFSET_ENABLE = NodeKey(
    "follower.fetch.last.tiered.offset.enable", BOOLEAN, False, dynamic=CLUSTER
)
LOG_LOCAL_RETENTION_BYTES = NodeKey(
    "log.local.retention.bytes", LONG, -2, at_least(-2), dynamic=CLUSTER
)
LOG_LOCAL_RETENTION_MS = NodeKey("log.local.retention.ms", LONG, -2, at_least(-2), dynamic=CLUSTER)
LOG_REMOTE_COPY_LAG_BYTES = NodeKey(
    "log.remote.copy.lag.bytes", LONG, -1, at_least(-1), dynamic=CLUSTER
)
LOG_REMOTE_COPY_LAG_MS = NodeKey("log.remote.copy.lag.ms", LONG, 0, at_least(-1), dynamic=CLUSTER)
REMOTE_FETCH_MAX_WAIT_MS = NodeKey(
    "remote.fetch.max.wait.ms", INT, 500, at_least(1), dynamic=CLUSTER
)
REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS = NodeKey(
    "remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), dynamic=CLUSTER
)
REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES = NodeKey(
    "remote.log.index.file.cache.total.size.bytes",
    LONG,
    1_073_741_824,
    at_least(1),
    LOW,
    dynamic=CLUSTER,
)
REMOTE_LOG_INDEX_FILE_CACHE_TTL_MS = NodeKey(
    "remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW, internal=True
)
REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE = NodeKey(
    "remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), dynamic=CLUSTER
)
REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND = NodeKey(
    "remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM = NodeKey(
    "remote.log.manager.copy.quota.window.num", INT, 11, at_least(1)
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS = NodeKey(
    "remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1)
)
REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE = NodeKey(
    "remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), dynamic=CLUSTER
)
REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND = NodeKey(
    "remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM = NodeKey(
    "remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1)
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS = NodeKey(
    "remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1)
)
REMOTE_LOG_MANAGER_FOLLOWER_THREAD_POOL_SIZE = NodeKey(
    "remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), dynamic=CLUSTER
)
REMOTE_LOG_MANAGER_TASK_INTERVAL_MS = NodeKey(
    "remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1), LOW
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS = NodeKey(
    "remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, at_least(1), LOW, internal=True
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS = NodeKey(
    "remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW, internal=True
)
REMOTE_LOG_MANAGER_TASK_RETRY_JITTER = NodeKey(
    "remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0.0, 0.5), LOW, internal=True
)
REMOTE_LOG_MANAGER_THREAD_POOL_SIZE = NodeKey(
    "remote.log.manager.thread.pool.size", INT, 2, at_least(1)
)
REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES = NodeKey(
    "remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW
)
REMOTE_LOG_METADATA_MANAGER_CLASS_NAME = NodeKey(
    "remote.log.metadata.manager.class.name",
    STRING,
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    NON_EMPTY,
)
REMOTE_LOG_METADATA_MANAGER_CLASS_PATH = NodeKey(
    "remote.log.metadata.manager.class.path", STRING, None
)
REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX = NodeKey(
    "remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NON_EMPTY
)
REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME = NodeKey(
    "remote.log.metadata.manager.listener.name", STRING, None, NON_EMPTY
)
REMOTE_LOG_READER_MAX_PENDING_TASKS = NodeKey(
    "remote.log.reader.max.pending.tasks", INT, 100, at_least(1)
)
REMOTE_LOG_READER_THREADS = NodeKey(
    "remote.log.reader.threads", INT, 10, at_least(1), dynamic=CLUSTER
)
REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME = NodeKey(
    "remote.log.storage.manager.class.name", STRING, None, NON_EMPTY
)
REMOTE_LOG_STORAGE_MANAGER_CLASS_PATH = NodeKey(
    "remote.log.storage.manager.class.path", STRING, None
)
REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX = NodeKey(
    "remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NON_EMPTY
)
REMOTE_LOG_STORAGE_SYSTEM_ENABLE = NodeKey("remote.log.storage.system.enable", BOOLEAN, False)
