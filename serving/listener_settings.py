"""A listener's limits out of a node's configuration; the keys are Kafka's."""

from __future__ import annotations

from protocol.transport.admission import ConnectionLimits, ListenerLimits
from protocol.transport.limits import ServerLimits
from runtime import descriptors
from runtime.config import NodeConfig
from runtime.config.tables import NODE_KEYS


def server_limits(config: NodeConfig) -> ServerLimits:
    """What holds for each connection."""
    return ServerLimits(
        request_bytes_max=config["socket.request.max.bytes"],
        max_inflight=config["kraftbox.connection.max.inflight"],
        idle_ms=config["connections.max.idle.ms"],
        backlog=config["socket.listen.backlog.size"],
    )


def connection_limits(config: NodeConfig) -> ConnectionLimits:
    """What holds for all connections of a role together.

    Raises ConfigError for a limit of a single listener (`listener.name.<name>.max...`) that is not
    a number.
    """
    files = config["kraftbox.files.open.max"] or descriptors.files_share()
    return ConnectionLimits(
        connections_max=config["max.connections"],
        per_ip_max=config["max.connections.per.ip"],
        per_ip_overrides=_overrides(config["max.connections.per.ip.overrides"]),
        rate_max=config["max.connection.creation.rate"],
        listeners={
            listener.name: ListenerLimits(
                connections_max=_of_listener(config, listener.name, "max.connections"),
                rate_max=_of_listener(config, listener.name, "max.connection.creation.rate"),
            )
            for listener in config.listeners
        },
        protected=config.inter_broker_listener_name,
        waiting_max=config["socket.listen.backlog.size"],
        descriptors_max=descriptors.connections_share(files),
        window_count=config["quota.window.num"],
        window_ms=config["quota.window.size.seconds"] * 1000.0,
    )


def _of_listener(config: NodeConfig, listener: str, key: str) -> int:
    text = config.of_listener(listener, key)
    number: int = NODE_KEYS[key].default if text is None else NODE_KEYS[key].parse(text)
    return number


def _overrides(text: str) -> dict[str, int]:
    """`host:count,...`"""
    pairs = (entry.rpartition(":") for entry in text.split(",") if entry.strip())
    return {host.strip(): int(count) for host, _, count in pairs}
