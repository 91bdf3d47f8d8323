"""Keys that only Kraftbox has. All start with `kraftbox.`; each needs a reason to exist."""

from __future__ import annotations

from runtime.config.schema import BOOLEAN, CLUSTER, INT, LONG, LOW, STRING, NodeKey
from runtime.config.validators import at_least, one_of

KRAFTBOX_BROKER_CONNECTION_LOSS_FENCE_MS = NodeKey(
    "kraftbox.broker.connection.loss.fence.ms", INT, 0, at_least(0)
)
KRAFTBOX_CONNECTION_MAX_INFLIGHT = NodeKey("kraftbox.connection.max.inflight", INT, 5, at_least(1))
KRAFTBOX_FAULT_ACKS = NodeKey("kraftbox.fault.acks", STRING, "none", one_of("none", "leader"), LOW)
KRAFTBOX_FAULT_FILES = NodeKey(
    "kraftbox.fault.files", STRING, "none", one_of("none", "lossy", "slow"), LOW
)
KRAFTBOX_FAULT_FILES_FLUSH_MS = NodeKey(
    "kraftbox.fault.files.flush.ms", INT, 1000, at_least(0), LOW
)
KRAFTBOX_FAULT_FILES_ON_SIGNAL = NodeKey(
    "kraftbox.fault.files.on.signal", BOOLEAN, False, None, LOW
)
KRAFTBOX_FAULT_FILES_READ_MS = NodeKey("kraftbox.fault.files.read.ms", INT, 100, at_least(0), LOW)
KRAFTBOX_FAULT_STALL_MS = NodeKey("kraftbox.fault.stall.ms", INT, 0, at_least(0), LOW)
KRAFTBOX_FILES_OPEN_MAX = NodeKey("kraftbox.files.open.max", INT, 0, at_least(0))
KRAFTBOX_HTTP_LISTENER = NodeKey("kraftbox.http.listener", STRING, "localhost:9404")
KRAFTBOX_LAST_KNOWN_LEADER_ELECTION_ENABLE = NodeKey(
    "kraftbox.last.known.leader.election.enable", BOOLEAN, True
)
KRAFTBOX_LEADER_DISCOVERY_ENABLE = NodeKey(
    "kraftbox.leader.discovery.enable", BOOLEAN, True, dynamic=CLUSTER
)
KRAFTBOX_LOCAL_LOG_REPORT_INTERVAL_MS = NodeKey(
    "kraftbox.local.log.report.interval.ms", INT, 30_000, at_least(1)
)
KRAFTBOX_LOG_FORMAT = NodeKey("kraftbox.log.format", STRING, "console", one_of("console", "json"))
KRAFTBOX_LOG_LEVEL = NodeKey(
    "kraftbox.log.level", STRING, "info", one_of("debug", "info", "warning", "error")
)
KRAFTBOX_LOG_REQUESTS = NodeKey("kraftbox.log.requests", BOOLEAN, False)
KRAFTBOX_LOOP_LAG_INTERVAL_MS = NodeKey("kraftbox.loop.lag.interval.ms", INT, 500, at_least(1), LOW)
KRAFTBOX_METRICS_PARTITIONS = NodeKey(
    "kraftbox.metrics.partitions", STRING, "all", one_of("all", "leader", "none")
)
KRAFTBOX_PRODUCE_DECOMPRESSED_MAX_BYTES = NodeKey(
    "kraftbox.produce.decompressed.max.bytes", LONG, 134_217_728, at_least(1)
)
KRAFTBOX_PRODUCE_VALIDATE_RECORDS = NodeKey("kraftbox.produce.validate.records", BOOLEAN, False)
KRAFTBOX_REPLICA_SELECTOR_LOCAL_LOG_ENABLE = NodeKey(
    "kraftbox.replica.selector.local.log.enable", BOOLEAN, False
)
