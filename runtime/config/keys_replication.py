"""Node keys: replica fetching, replication quotas, shutdown."""

from __future__ import annotations

from runtime.config.schema import ConfigKey as Key
from runtime.config.schema import Dynamic, Importance, Type, at_least

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER = Dynamic.CLUSTER_WIDE


KEYS: tuple[Key, ...] = (
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW),
    Key("controlled.shutdown.enable", BOOLEAN, True),
    Key("default.replication.factor", INT, 1),
    Key("num.replica.alter.log.dirs.threads", INT, None, None, HIGH),
    Key("num.replica.fetchers", INT, 1, at_least(1), HIGH, dynamic=CLUSTER),
    Key("replica.fetch.backoff.ms", INT, 1000, at_least(0)),
    Key("replica.fetch.max.bytes", INT, 1_048_576, at_least(0)),
    Key("replica.fetch.min.bytes", INT, 1, None, HIGH),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0)),
    Key("replica.fetch.wait.max.ms", INT, 500, None, HIGH),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH),
    Key("replica.lag.time.max.ms", LONG, 30_000, None, HIGH),
    Key("replica.selector.class", STRING),
    Key("replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH),
    Key("replica.socket.timeout.ms", INT, 30_000, None, HIGH),
    Key("replication.quota.window.num", INT, 11, at_least(1), LOW),
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW),
)
