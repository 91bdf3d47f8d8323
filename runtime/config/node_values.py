"""Values of a node's keys, each valid for its key, not yet checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from runtime.config import keys_log, keys_quorum, keys_security, keys_server
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
from runtime.config.schema import NodeKey, TopicKey

LISTENER_PREFIX = "listener.name."

T = TypeVar("T")


class NodeValues:
    """Typed values by key: `values[keys_server.NUM_PARTITIONS]`; derived ones are properties.

    `given` holds the given text properties; `warnings` holds sentences for the log.
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
        self.process_roles = frozenset(self[keys_quorum.PROCESS_ROLES])
        self.is_broker = "broker" in self.process_roles
        self.is_controller = "controller" in self.process_roles
        self.node_id = self[keys_quorum.NODE_ID]
        self.controller_listener_names = tuple(self[keys_quorum.CONTROLLER_LISTENER_NAMES])
        self.security_protocols = self._security_protocols()
        self.listeners: tuple[Listener, ...] = parse_listeners(
            keys_server.LISTENERS.name, self[keys_server.LISTENERS], self.security_protocols
        )
        advertised = self[keys_server.ADVERTISED_LISTENERS]
        self._advertised: tuple[Listener, ...] = parse_listeners(
            keys_server.ADVERTISED_LISTENERS.name, advertised or (), self.security_protocols
        )
        self.quorum_voters: tuple[Voter, ...] = parse_voters(
            self[keys_quorum.CONTROLLER_QUORUM_VOTERS]
        )
        self.quorum_bootstrap_servers: tuple[HostPort, ...] = parse_host_ports(
            keys_quorum.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name,
            self[keys_quorum.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS],
        )

    def __getitem__(self, key: NodeKey[T]) -> T:
        value: T = self._values[key.name]
        return value

    def text(self, key: NodeKey[Any]) -> str | None:
        """Return the value in effect as text."""
        return key.format(self[key])

    def of_listener(self, listener: str, key: NodeKey[Any]) -> str | None:
        """Return the text given for one listener only (`listener.name.<listener>.<key>`), or
        None.
        """
        return self._for_listeners.get(f"{LISTENER_PREFIX}{listener}.{key.name}".lower())

    def is_set(self, key: NodeKey[Any]) -> bool:
        """Return whether the key was given, as opposed to defaulted."""
        return key.name in self.given

    def topic_default(self, key: TopicKey[T]) -> T:
        """Return a topic's value without an override.

        It is that of the first synonym with a value, converted to the unit of the key.
        """
        for synonym, factor in key.synonyms:
            value = self[synonym]
            if value is not None:
                scaled: T = value if factor == 1 else value * factor
                return scaled
        return key.default

    # Log directories.

    @property
    def log_dir(self) -> str:
        """The path of the single log directory."""
        return (self[keys_log.LOG_DIRS] or self[keys_log.LOG_DIR])[0]

    @property
    def metadata_log_dir(self) -> str:
        return self[keys_quorum.METADATA_LOG_DIR] or self.log_dir

    # Listeners by role.

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners of the broker role; none without that role."""
        if not self.is_broker:
            return ()
        return tuple(e for e in self.listeners if e.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners of the controller role; none without that role."""
        if not self.is_controller:
            return ()
        return tuple(e for e in self.listeners if e.name in self.controller_listener_names)

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """The broker's listeners for clients, with their hosts.

        Port 0 stands for the bound port.
        """
        source = self._advertised if self[keys_server.ADVERTISED_LISTENERS] else self.listeners
        return tuple(
            self._with_host(e) for e in source if e.name not in self.controller_listener_names
        )

    @property
    def advertised_controller_listeners(self) -> tuple[Listener, ...]:
        """The controller's listeners for other nodes, in the order of controller.listener.names."""
        by_name = {e.name: e for e in (*self.controller_listeners, *self._advertised)}
        return tuple(
            self._with_host(by_name[name])
            for name in self.controller_listener_names
            if name in by_name
        )

    @property
    def inter_broker_listener_name(self) -> str:
        name = self[keys_server.INTER_BROKER_LISTENER_NAME]
        return (name or self[keys_security.SECURITY_INTER_BROKER_PROTOCOL]).upper()

    def _with_host(self, listener: Listener) -> Listener:
        return listener if listener.host else listener._replace(host=self.hostname)

    def _security_protocols(self) -> dict[str, str]:
        key = keys_server.LISTENER_SECURITY_PROTOCOL_MAP
        protocols = parse_protocol_map(self[key])
        in_use = {entry.partition("://")[0].upper() for entry in self[keys_server.LISTENERS]}
        for name in self.controller_listener_names:
            if self.is_controller and name not in in_use and name.upper() in in_use:
                raise ConfigError(
                    keys_quorum.CONTROLLER_LISTENER_NAMES.name,
                    name,
                    f"must be {name.upper()}: listener names are upper case, and this "
                    "key is compared literally",
                )
        others = {
            protocols.get(name)
            for name in in_use - set(self.controller_listener_names)
            if protocols.get(name) != "PLAINTEXT"
        }
        for name in self.controller_listener_names:
            if name in protocols:
                continue
            if self.is_set(key) or others:
                raise ConfigError(
                    key.name, self[key], f"must have an entry for controller listener {name}"
                )
            protocols[name] = "PLAINTEXT"
        return protocols
