"""Keys that only Kraftbox has. All start with `kraftbox.`; each needs a reason to exist."""

from __future__ import annotations

from runtime.config.schema import ConfigKey as Key
from runtime.config.schema import Importance, Type, at_least, one_of

KEYS: tuple[Key, ...] = (
    Key("kraftbox.broker.connection.loss.fence.ms", Type.INT, 0, at_least(0)),
    Key("kraftbox.connection.max.inflight", Type.INT, 5, at_least(1)),
    Key(
        "kraftbox.fault.acks",
        Type.STRING,
        "none",
        one_of("none", "leader"),
        Importance.LOW,
    ),
    Key(
        "kraftbox.fault.files",
        Type.STRING,
        "none",
        one_of("none", "lossy", "slow"),
        Importance.LOW,
    ),
    Key("kraftbox.fault.files.flush.ms", Type.INT, 1000, at_least(0), Importance.LOW),
    Key("kraftbox.fault.files.on.signal", Type.BOOLEAN, False, importance=Importance.LOW),
    Key("kraftbox.fault.files.read.ms", Type.INT, 100, at_least(0), Importance.LOW),
    Key("kraftbox.fault.stall.ms", Type.INT, 0, at_least(0), Importance.LOW),
    Key("kraftbox.files.open.max", Type.INT, 0, at_least(0)),
    Key("kraftbox.http.listener", Type.STRING, "localhost:9404"),
    Key("kraftbox.leader.discovery.enable", Type.BOOLEAN, True),
    Key("kraftbox.log.format", Type.STRING, "console", one_of("console", "json")),
    Key("kraftbox.log.level", Type.STRING, "info", one_of("debug", "info", "warning", "error")),
    Key("kraftbox.log.requests", Type.BOOLEAN, False),
    Key("kraftbox.metrics.partitions", Type.STRING, "all", one_of("all", "leader", "none")),
    Key("kraftbox.produce.decompressed.max.bytes", Type.LONG, 134_217_728, at_least(1)),
    Key("kraftbox.produce.validate.records", Type.BOOLEAN, False),
)
