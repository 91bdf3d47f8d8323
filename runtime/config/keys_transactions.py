"""Node keys: transactions and the share coordinator."""

from __future__ import annotations

from runtime.config.schema import BOOLEAN, CLUSTER, HIGH, INT, LOW, SHORT, NodeKey
from runtime.config.validators import at_least, between

ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = NodeKey(
    "add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = NodeKey(
    "add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH
)
SHARE_COORDINATOR_APPEND_LINGER_MS = NodeKey(
    "share.coordinator.append.linger.ms", INT, -1, at_least(-1)
)
SHARE_COORDINATOR_CACHED_BUFFER_MAX_BYTES = NodeKey(
    "share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), dynamic=CLUSTER
)
SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS = NodeKey(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    INT,
    300_000,
    at_least(1),
    LOW,
    internal=True,
)
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = NodeKey(
    "share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1), HIGH
)
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = NodeKey(
    "share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500)
)
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = NodeKey(
    "share.coordinator.state.topic.compression.codec", INT, 0, None, HIGH
)
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = NodeKey(
    "share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1), HIGH
)
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = NodeKey(
    "share.coordinator.state.topic.num.partitions", INT, 50, at_least(1), HIGH
)
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS = NodeKey(
    "share.coordinator.state.topic.prune.interval.ms", INT, 300_000, at_least(1), LOW, internal=True
)
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = NodeKey(
    "share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1), HIGH
)
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = NodeKey(
    "share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH
)
SHARE_COORDINATOR_THREADS = NodeKey("share.coordinator.threads", INT, 1, at_least(1))
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = NodeKey(
    "share.coordinator.write.timeout.ms", INT, 5000, at_least(1), HIGH
)
SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = NodeKey(
    "share.fetch.purgatory.purge.interval.requests", INT, 1000
)
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = NodeKey(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1), LOW
)
TRANSACTION_MAX_TIMEOUT_MS = NodeKey("transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = NodeKey(
    "transaction.partition.verification.enable", BOOLEAN, True, None, LOW, dynamic=CLUSTER
)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = NodeKey(
    "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW
)
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = NodeKey(
    "transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH
)
TRANSACTION_STATE_LOG_MIN_ISR = NodeKey("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH)
TRANSACTION_STATE_LOG_NUM_PARTITIONS = NodeKey(
    "transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = NodeKey(
    "transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = NodeKey(
    "transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH
)
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = NodeKey(
    "transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW
)
TRANSACTIONAL_ID_EXPIRATION_MS = NodeKey(
    "transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH
)
