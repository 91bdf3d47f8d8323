"""Node keys: transactions and the share coordinator."""

from __future__ import annotations

from runtime.config.schema import ConfigKey as Key
from runtime.config.schema import Dynamic, Importance, Type, at_least, between

BOOLEAN = Type.BOOLEAN
INT = Type.INT
SHORT = Type.SHORT
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER = Dynamic.CLUSTER_WIDE


KEYS: tuple[Key, ...] = (
    Key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH),
    Key("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH),
    Key("share.coordinator.append.linger.ms", INT, -1, at_least(-1)),
    Key(
        "share.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        at_least(524_288),
        dynamic=CLUSTER,
    ),
    Key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        300_000,
        at_least(1),
        LOW,
        internal=True,
    ),
    Key("share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1), HIGH),
    Key("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500)),
    Key("share.coordinator.state.topic.compression.codec", INT, 0, None, HIGH),
    Key("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1), HIGH),
    Key("share.coordinator.state.topic.num.partitions", INT, 50, at_least(1), HIGH),
    Key(
        "share.coordinator.state.topic.prune.interval.ms",
        INT,
        300_000,
        at_least(1),
        LOW,
        internal=True,
    ),
    Key("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1), HIGH),
    Key("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH),
    Key("share.coordinator.threads", INT, 1, at_least(1)),
    Key("share.coordinator.write.timeout.ms", INT, 5000, at_least(1), HIGH),
    Key("share.fetch.purgatory.purge.interval.requests", INT, 1000),
    Key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1), LOW
    ),
    Key("transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH),
    Key("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, dynamic=CLUSTER),
    Key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        at_least(1),
        LOW,
    ),
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH),
    Key("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH),
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH),
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH),
    Key("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH),
    Key("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW),
    Key("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH),
)
