"""Node keys: listeners, connections, requests, quotas and other keys of the server."""

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
    PER_BROKER,
    STRING,
    NodeKey,
)
from runtime.config.validators import a_list, at_least

ADVERTISED_LISTENERS = NodeKey("advertised.listeners", LIST, None, a_list(empty=False), HIGH)
ALTER_CONFIG_POLICY_CLASS_NAME = NodeKey("alter.config.policy.class.name", CLASS, None, None, LOW)
AUTO_CREATE_TOPICS_ENABLE = NodeKey("auto.create.topics.enable", BOOLEAN, True, None, HIGH)
BROKER_RACK = NodeKey("broker.rack", STRING, None)
CLIENT_QUOTA_CALLBACK_CLASS = NodeKey("client.quota.callback.class", CLASS, None, None, LOW)
CONFIG_PROVIDERS = NodeKey("config.providers", LIST, [], a_list(empty=True), LOW, dynamic=CLUSTER)
CONNECTIONS_MAX_IDLE_MS = NodeKey("connections.max.idle.ms", LONG, 600_000)
CREATE_TOPIC_POLICY_CLASS_NAME = NodeKey("create.topic.policy.class.name", CLASS, None, None, LOW)
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS = NodeKey(
    "delete.records.purgatory.purge.interval.requests", INT, 1
)
DELETE_TOPIC_ENABLE = NodeKey("delete.topic.enable", BOOLEAN, True, None, HIGH)
EARLY_START_LISTENERS = NodeKey("early.start.listeners", LIST, None, a_list(empty=True), HIGH)
FETCH_MAX_BYTES = NodeKey("fetch.max.bytes", INT, 57_671_680, at_least(1024))
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = NodeKey(
    "fetch.purgatory.purge.interval.requests", INT, 1000
)
INTER_BROKER_LISTENER_NAME = NodeKey("inter.broker.listener.name", STRING, None)
KAFKA_METRICS_POLLING_INTERVAL_SECS = NodeKey(
    "kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW
)
KAFKA_METRICS_REPORTERS = NodeKey("kafka.metrics.reporters", LIST, [], a_list(empty=True), LOW)
LISTENER_SECURITY_PROTOCOL_MAP = NodeKey(
    "listener.security.protocol.map",
    STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    None,
    LOW,
    dynamic=PER_BROKER,
)
LISTENERS = NodeKey(
    "listeners", LIST, ["PLAINTEXT://:9092"], a_list(empty=False), HIGH, dynamic=PER_BROKER
)
MAX_CONNECTION_CREATION_RATE = NodeKey(
    "max.connection.creation.rate", INT, INT_MAX, at_least(0), dynamic=CLUSTER
)
MAX_CONNECTIONS = NodeKey("max.connections", INT, INT_MAX, at_least(0), dynamic=CLUSTER)
MAX_CONNECTIONS_PER_IP = NodeKey(
    "max.connections.per.ip", INT, INT_MAX, at_least(0), dynamic=CLUSTER
)
MAX_CONNECTIONS_PER_IP_OVERRIDES = NodeKey(
    "max.connections.per.ip.overrides", STRING, "", dynamic=CLUSTER
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = NodeKey(
    "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0)
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = NodeKey(
    "max.request.partition.size.limit", INT, 2000, at_least(1)
)
METRIC_REPORTERS = NodeKey(
    "metric.reporters",
    LIST,
    ["org.apache.kafka.common.metrics.JmxReporter"],
    a_list(empty=True),
    LOW,
    dynamic=CLUSTER,
)
METRICS_NUM_SAMPLES = NodeKey("metrics.num.samples", INT, 2, at_least(1), LOW)
METRICS_RECORDING_LEVEL = NodeKey("metrics.recording.level", STRING, "INFO", None, LOW)
METRICS_SAMPLE_WINDOW_MS = NodeKey("metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW)
NUM_IO_THREADS = NodeKey("num.io.threads", INT, 8, at_least(1), HIGH, dynamic=CLUSTER)
NUM_NETWORK_THREADS = NodeKey("num.network.threads", INT, 3, at_least(1), HIGH, dynamic=CLUSTER)
NUM_PARTITIONS = NodeKey("num.partitions", INT, 1, at_least(1))
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS = NodeKey(
    "producer.purgatory.purge.interval.requests", INT, 1000
)
QUEUED_MAX_REQUEST_BYTES = NodeKey("queued.max.request.bytes", LONG, -1)
QUEUED_MAX_REQUESTS = NodeKey("queued.max.requests", INT, 500, at_least(1), HIGH)
QUOTA_WINDOW_NUM = NodeKey("quota.window.num", INT, 11, at_least(1), LOW)
QUOTA_WINDOW_SIZE_SECONDS = NodeKey("quota.window.size.seconds", INT, 1, at_least(1), LOW)
REQUEST_TIMEOUT_MS = NodeKey("request.timeout.ms", INT, 30_000, None, HIGH)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = NodeKey(
    "socket.connection.setup.timeout.max.ms", LONG, 30_000
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = NodeKey("socket.connection.setup.timeout.ms", LONG, 10_000)
SOCKET_LISTEN_BACKLOG_SIZE = NodeKey("socket.listen.backlog.size", INT, 50, at_least(1))
SOCKET_RECEIVE_BUFFER_BYTES = NodeKey("socket.receive.buffer.bytes", INT, 102_400, None, HIGH)
SOCKET_REQUEST_MAX_BYTES = NodeKey("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH)
SOCKET_SEND_BUFFER_BYTES = NodeKey("socket.send.buffer.bytes", INT, 102_400, None, HIGH)
TELEMETRY_MAX_BYTES = NodeKey("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW)
