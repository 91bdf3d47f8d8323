"""Node keys: identity and roles, the metadata quorum and its log, registration and fencing."""

from __future__ import annotations

from runtime.config.schema import REQUIRED, Importance, Type, a_list, at_least
from runtime.config.schema import ConfigKey as Key

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
LIST = Type.LIST
HIGH = Importance.HIGH
LOW = Importance.LOW
LONG_MAX = 2**63 - 1


KEYS: tuple[Key, ...] = (
    Key("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH),
    Key("broker.heartbeat.interval.ms", INT, 2000),
    Key("broker.id", INT, -1, None, HIGH),
    Key("broker.session.timeout.ms", INT, 9000),
    Key("controller.listener.names", LIST, REQUIRED, a_list(empty=False), HIGH),
    Key("controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), internal=True),
    Key("controller.performance.sample.period.ms", LONG, 60_000, at_least(100), internal=True),
    Key("controller.quorum.append.linger.ms", INT, 25, at_least(0)),
    Key("controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW),
    Key("controller.quorum.bootstrap.servers", LIST, [], None, HIGH),
    Key("controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH),
    Key("controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH),
    Key("controller.quorum.fetch.max.bytes", INT, 1_048_576, at_least(1), LOW),
    Key("controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, at_least(1), LOW),
    Key("controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH),
    Key("controller.quorum.request.timeout.ms", INT, 2000, at_least(0)),
    Key("controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW),
    Key("controller.quorum.voters", LIST, [], None, HIGH),
    Key("controller.quota.window.num", INT, 11, at_least(1), LOW),
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW),
    Key("controller.socket.timeout.ms", INT, 30_000),
    Key("initial.broker.registration.timeout.ms", INT, 60_000),
    Key("internal.metadata.delete.delay.millis", LONG, 60_000, None, LOW, internal=True),
    Key("internal.metadata.log.segment.bytes", INT, None, None, LOW, internal=True),
    Key("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW, internal=True),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH),
    Key("metadata.log.dir", STRING, None, None, HIGH),
    Key("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, at_least(1), HIGH),
    Key("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0), HIGH),
    Key("metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608), HIGH),
    Key("metadata.log.segment.ms", LONG, 604_800_000, None, HIGH),
    Key("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW),
    Key("metadata.max.retention.bytes", LONG, 104_857_600, None, HIGH),
    Key("metadata.max.retention.ms", LONG, 604_800_000, None, HIGH),
    Key("node.id", INT, REQUIRED, at_least(0), HIGH),
    Key("process.roles", LIST, REQUIRED, a_list("broker", "controller", empty=False), HIGH),
    Key("server.max.startup.time.ms", LONG, LONG_MAX, at_least(0), internal=True),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), internal=True),
    Key("unstable.api.versions.enable", BOOLEAN, False, None, HIGH, internal=True),
    Key("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH, internal=True),
)
