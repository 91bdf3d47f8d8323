"""Node keys: listeners, connections, requests, quotas and the rest that fits nowhere else."""

from __future__ import annotations

from runtime.config.schema import ConfigKey as Key
from runtime.config.schema import Dynamic, Importance, Type, a_list, at_least

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
LIST = Type.LIST
CLASS = Type.CLASS
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER = Dynamic.CLUSTER_WIDE
PER_BROKER = Dynamic.PER_BROKER
INT_MAX = 2**31 - 1


KEYS: tuple[Key, ...] = (
    Key("advertised.listeners", LIST, None, a_list(empty=False), HIGH),
    Key("alter.config.policy.class.name", CLASS, None, None, LOW),
    Key("auto.create.topics.enable", BOOLEAN, True, None, HIGH),
    Key("broker.rack", STRING),
    Key("client.quota.callback.class", CLASS, None, None, LOW),
    Key("config.providers", LIST, [], a_list(empty=True), LOW, dynamic=CLUSTER),
    Key("connections.max.idle.ms", LONG, 600_000),
    Key("create.topic.policy.class.name", CLASS, None, None, LOW),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1),
    Key("delete.topic.enable", BOOLEAN, True, None, HIGH),
    Key("early.start.listeners", LIST, None, a_list(empty=True), HIGH),
    Key("fetch.max.bytes", INT, 57_671_680, at_least(1024)),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000),
    Key("inter.broker.listener.name", STRING),
    Key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW),
    Key("kafka.metrics.reporters", LIST, [], a_list(empty=True), LOW),
    Key(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        LOW,
        dynamic=PER_BROKER,
    ),
    Key("listeners", LIST, ["PLAINTEXT://:9092"], a_list(empty=False), HIGH, dynamic=PER_BROKER),
    Key("max.connection.creation.rate", INT, INT_MAX, at_least(0), dynamic=CLUSTER),
    Key("max.connections", INT, INT_MAX, at_least(0), dynamic=CLUSTER),
    Key("max.connections.per.ip", INT, INT_MAX, at_least(0), dynamic=CLUSTER),
    Key("max.connections.per.ip.overrides", STRING, "", dynamic=CLUSTER),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0)),
    Key("max.request.partition.size.limit", INT, 2000, at_least(1)),
    Key(
        "metric.reporters",
        LIST,
        ["org.apache.kafka.common.metrics.JmxReporter"],
        a_list(empty=True),
        LOW,
        dynamic=CLUSTER,
    ),
    Key("metrics.num.samples", INT, 2, at_least(1), LOW),
    Key("metrics.recording.level", STRING, "INFO", None, LOW),
    Key("metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW),
    Key("num.io.threads", INT, 8, at_least(1), HIGH, dynamic=CLUSTER),
    Key("num.network.threads", INT, 3, at_least(1), HIGH, dynamic=CLUSTER),
    Key("num.partitions", INT, 1, at_least(1)),
    Key("producer.purgatory.purge.interval.requests", INT, 1000),
    Key("queued.max.request.bytes", LONG, -1),
    Key("queued.max.requests", INT, 500, at_least(1), HIGH),
    Key("quota.window.num", INT, 11, at_least(1), LOW),
    Key("quota.window.size.seconds", INT, 1, at_least(1), LOW),
    Key("request.timeout.ms", INT, 30_000, None, HIGH),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30_000),
    Key("socket.connection.setup.timeout.ms", LONG, 10_000),
    Key("socket.listen.backlog.size", INT, 50, at_least(1)),
    Key("socket.receive.buffer.bytes", INT, 102_400, None, HIGH),
    Key("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH),
    Key("socket.send.buffer.bytes", INT, 102_400, None, HIGH),
    Key("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW),
)
