"""A node's configuration: parsed once, typed, with what was given kept beside it.

`NodeConfig.parse` takes text properties (a file, the environment, overrides) and either returns a
configuration that is whole or raises one ConfigError that lists every problem. Keys that nobody
knows are kept as warnings: clients' keys and plug-ins' keys are common in such files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.config.checks import check_node
from runtime.config.errors import ConfigError
from runtime.config.listeners import (
    HostPort,
    Listener,
    Voter,
    parse_host_ports,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from runtime.config.schema import REQUIRED, ConfigKey, Type
from runtime.config.tables import BROKER_DYNAMIC_KEYS, NODE_KEYS, TOPIC_KEYS

LISTENER_PREFIX = "listener.name."
_PLUGIN_PREFIXES = (LISTENER_PREFIX, "rsm.config.", "rlmm.config.", "client.quota.callback.")
_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
LONG_MAX = 2**63 - 1


class NodeConfig:
    """Typed values by Kafka's key names: `config["num.partitions"]`; common ones as properties.

    `given` holds the text properties as they came; `warnings` sentences for the log.
    """

    def __init__(
        self,
        values: dict[str, Any],
        given: Mapping[str, str],
        warnings: list[str],
        hostname: str,
    ) -> None:
        self._values = values
        self._for_listeners = {
            name.lower(): text for name, text in given.items() if name.startswith(LISTENER_PREFIX)
        }
        self.given = dict(given)
        self.warnings = warnings
        self.hostname = hostname
        self.process_roles: frozenset[str] = frozenset(values["process.roles"])
        self.is_broker = "broker" in self.process_roles
        self.is_controller = "controller" in self.process_roles
        self.node_id: int = values["node.id"]
        self.controller_listener_names: tuple[str, ...] = tuple(
            name.upper() for name in values["controller.listener.names"]
        )
        self.security_protocols = self._security_protocols()
        self.listeners: tuple[Listener, ...] = parse_listeners(
            "listeners", values["listeners"], self.security_protocols
        )
        self._advertised: tuple[Listener, ...] = parse_listeners(
            "advertised.listeners", values["advertised.listeners"] or (), self.security_protocols
        )
        self.quorum_voters: tuple[Voter, ...] = parse_voters(values["controller.quorum.voters"])
        self.quorum_bootstrap_servers: tuple[HostPort, ...] = parse_host_ports(
            "controller.quorum.bootstrap.servers", values["controller.quorum.bootstrap.servers"]
        )

    @classmethod
    def parse(cls, props: Mapping[str, str], *, hostname: str = "localhost") -> NodeConfig:
        """Parse and check. `hostname` is advertised by listeners that name no host.

        Raises ConfigError with every bad value, every missing key, every rule broken.
        """
        values, errors = _parse_values(props)
        if errors:
            raise ConfigError.join(errors)
        config = cls(values, props, _warnings(props), hostname)
        errors = list(check_node(config))
        if errors:
            raise ConfigError.join(errors)
        heartbeat_ms, session_ms = (
            config["broker.heartbeat.interval.ms"],
            config["broker.session.timeout.ms"],
        )
        if heartbeat_ms * 2 > session_ms:
            config.warnings.append(
                f"broker.heartbeat.interval.ms={heartbeat_ms} is more than half of "
                f"broker.session.timeout.ms={session_ms}: one lost heartbeat fences the broker"
            )
        return config

    def __getitem__(self, key: str) -> Any:
        """The typed value; KeyError for a key that does not exist."""
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def text(self, key: str) -> str | None:
        """The value in effect as text."""
        return NODE_KEYS[key].format(self._values[key])

    def of_listener(self, listener: str, key: str) -> str | None:
        """What is given for one listener alone (`listener.name.<listener>.<key>`), as text."""
        return self._for_listeners.get(f"{LISTENER_PREFIX}{listener}.{key}".lower())

    def is_set(self, key: str) -> bool:
        """Whether the key was given, as opposed to defaulted."""
        return key in self.given

    def overlaid(self, changes: Mapping[str, str]) -> NodeConfig:
        """A configuration with `changes` (dynamic values) on top; raises ConfigError."""
        changed = NodeConfig.parse({**self.given, **changes}, hostname=self.hostname)
        changed.given = dict(self.given)
        return changed

    # Where data lives.

    @property
    def log_dir(self) -> str:
        """The one log directory."""
        directories: list[str] = self._values["log.dirs"] or self._values["log.dir"]
        return directories[0]

    @property
    def metadata_log_dir(self) -> str:
        directory: str | None = self._values["metadata.log.dir"]
        return directory or self.log_dir

    # Who listens where.

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Listeners of the broker role; none without that role."""
        if not self.is_broker:
            return ()
        return tuple(e for e in self.listeners if e.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Listeners of the controller role; none without that role."""
        if not self.is_controller:
            return ()
        return tuple(e for e in self.listeners if e.name in self.controller_listener_names)

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """What the broker tells clients, hosts filled in. Port 0 stands for the port bound."""
        source = self._advertised if self._values["advertised.listeners"] else self.listeners
        return tuple(
            self._with_host(e) for e in source if e.name not in self.controller_listener_names
        )

    @property
    def advertised_controller_listeners(self) -> tuple[Listener, ...]:
        """What the controller tells other nodes, in the order of controller.listener.names."""
        by_name = {e.name: e for e in (*self.controller_listeners, *self._advertised)}
        return tuple(
            self._with_host(by_name[name])
            for name in self.controller_listener_names
            if name in by_name
        )

    @property
    def inter_broker_listener_name(self) -> str:
        name: str | None = self._values["inter.broker.listener.name"]
        return (name or self._values["security.inter.broker.protocol"]).upper()

    # Time in one unit.

    @property
    def log_retention_ms(self) -> int:
        """-1 when unlimited."""
        value: int | None = self._values["log.retention.ms"]
        if value is None and self._values["log.retention.minutes"] is not None:
            value = self._values["log.retention.minutes"] * _MINUTE_MS
        if value is None:
            value = self._values["log.retention.hours"] * _HOUR_MS
        return -1 if value < 0 else value

    @property
    def log_roll_ms(self) -> int:
        value: int | None = self._values["log.roll.ms"]
        hours: int = self._values["log.roll.hours"]
        return value if value is not None else hours * _HOUR_MS

    @property
    def log_roll_jitter_ms(self) -> int:
        value: int | None = self._values["log.roll.jitter.ms"]
        hours: int = self._values["log.roll.jitter.hours"]
        return value if value is not None else hours * _HOUR_MS

    @property
    def log_flush_interval_ms(self) -> int:
        value: int | None = self._values["log.flush.interval.ms"]
        fallback: int = self._values["log.flush.scheduler.interval.ms"]
        return value if value is not None else fallback

    @property
    def broker_rack(self) -> str | None:
        rack: str | None = self._values["broker.rack"]
        return rack

    def _with_host(self, listener: Listener) -> Listener:
        return listener if listener.host else listener._replace(host=self.hostname)

    def _security_protocols(self) -> dict[str, str]:
        protocols = parse_protocol_map(self._values["listener.security.protocol.map"])
        in_use = {entry.partition("://")[0].upper() for entry in self._values["listeners"]}
        others = {
            protocols.get(name)
            for name in in_use - set(self.controller_listener_names)
            if protocols.get(name) != "PLAINTEXT"
        }
        for name in self.controller_listener_names:
            if name in protocols:
                continue
            if self.is_set("listener.security.protocol.map") or others:
                raise ConfigError(
                    "listener.security.protocol.map",
                    self._values["listener.security.protocol.map"],
                    f"must have an entry for controller listener {name}",
                )
            protocols[name] = "PLAINTEXT"
        return protocols


def _parse_values(props: Mapping[str, str]) -> tuple[dict[str, Any], list[ConfigError]]:
    values: dict[str, Any] = {}
    errors: list[ConfigError] = []
    for name, key in NODE_KEYS.items():
        text = props.get(name)
        if text is not None:
            try:
                values[name] = key.parse(text)
            except ConfigError as error:
                errors.append(error)
        elif key.default is REQUIRED:
            errors.append(ConfigError(name, None, _missing_phrase(key)))
        else:
            values[name] = key.default
    return values, errors


def _missing_phrase(key: ConfigKey) -> str:
    hints = {
        "process.roles": "must be broker, controller or broker,controller",
        "node.id": "must be an integer of at least 0, different for every node",
        "controller.listener.names": "must name the listener of the controllers",
    }
    return hints.get(key.name, f"needs a {key.type.name.lower()} value")


def _hint(name: str) -> str:
    """What somebody who set a key that does not exist may have meant."""
    topic_key = TOPIC_KEYS.get(name)
    if topic_key is not None and topic_key.synonyms:
        return f"; it is a key of topics, of nodes it is {topic_key.synonyms[0][0]}"
    # Only who makes a mistake pays for the import.
    from difflib import get_close_matches

    near = get_close_matches(name, NODE_KEYS, n=1, cutoff=0.85)
    return f"; did you mean {near[0]}?" if near else ""


def _warnings(props: Mapping[str, str]) -> list[str]:
    warnings = []
    for name in props:
        if name in NODE_KEYS or name in BROKER_DYNAMIC_KEYS or name.startswith(_PLUGIN_PREFIXES):
            continue
        warnings.append(f"{name} is not a known configuration key and has no effect{_hint(name)}")
    for name, key in NODE_KEYS.items():
        if key.type is Type.CLASS and name in props and props[name] != key.default:
            warnings.append(f"{name} names a Java class and has no effect")
    return warnings
