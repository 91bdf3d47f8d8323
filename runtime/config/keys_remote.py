"""Node keys: tiered storage."""

from __future__ import annotations

from runtime.config.schema import NON_EMPTY, Dynamic, Importance, Type, at_least, between
from runtime.config.schema import ConfigKey as Key

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
LOW = Importance.LOW
CLUSTER = Dynamic.CLUSTER_WIDE
LONG_MAX = 2**63 - 1


KEYS: tuple[Key, ...] = (
    Key("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, dynamic=CLUSTER),
    Key("log.local.retention.bytes", LONG, -2, at_least(-2), dynamic=CLUSTER),
    Key("log.local.retention.ms", LONG, -2, at_least(-2), dynamic=CLUSTER),
    Key("remote.fetch.max.wait.ms", INT, 500, at_least(1), dynamic=CLUSTER),
    Key("remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), dynamic=CLUSTER),
    Key(
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        1_073_741_824,
        at_least(1),
        LOW,
        dynamic=CLUSTER,
    ),
    Key("remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW, internal=True),
    Key("remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), dynamic=CLUSTER),
    Key(
        "remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER
    ),
    Key("remote.log.manager.copy.quota.window.num", INT, 11, at_least(1)),
    Key("remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1)),
    Key("remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), dynamic=CLUSTER),
    Key(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        LONG_MAX,
        at_least(1),
        dynamic=CLUSTER,
    ),
    Key("remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1)),
    Key("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1)),
    Key("remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), dynamic=CLUSTER),
    Key("remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1), LOW),
    Key(
        "remote.log.manager.task.retry.backoff.max.ms",
        LONG,
        30_000,
        at_least(1),
        LOW,
        internal=True,
    ),
    Key("remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW, internal=True),
    Key("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0.0, 0.5), LOW, internal=True),
    Key("remote.log.manager.thread.pool.size", INT, 2, at_least(1)),
    Key("remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW),
    Key(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NON_EMPTY,
    ),
    Key("remote.log.metadata.manager.class.path", STRING),
    Key("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NON_EMPTY),
    Key("remote.log.metadata.manager.listener.name", STRING, None, NON_EMPTY),
    Key("remote.log.reader.max.pending.tasks", INT, 100, at_least(1)),
    Key("remote.log.reader.threads", INT, 10, at_least(1), dynamic=CLUSTER),
    Key("remote.log.storage.manager.class.name", STRING, None, NON_EMPTY),
    Key("remote.log.storage.manager.class.path", STRING),
    Key("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NON_EMPTY),
    Key("remote.log.storage.system.enable", BOOLEAN, False),
)
