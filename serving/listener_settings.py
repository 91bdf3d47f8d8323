"""Connection and request limits of a role's listeners, read from the node's configuration.

The keys are Kafka's.
"""

from __future__ import annotations

from protocol.transport.admission import ConnectionLimits, ListenerLimits
from protocol.transport.limits import ServerLimits
from runtime import descriptors
from runtime.config import NodeConfig, keys_kraftbox, keys_server
from runtime.config.schema import NodeKey


def server_limits(config: NodeConfig) -> ServerLimits:
    """Return the limits of a single connection."""
    return ServerLimits(
        request_bytes_max=config[keys_server.SOCKET_REQUEST_MAX_BYTES],
        max_inflight=config[keys_kraftbox.KRAFTBOX_CONNECTION_MAX_INFLIGHT],
        idle_ms=config[keys_server.CONNECTIONS_MAX_IDLE_MS],
        backlog=config[keys_server.SOCKET_LISTEN_BACKLOG_SIZE],
    )


def connection_limits(config: NodeConfig) -> ConnectionLimits:
    """Return the limits of all connections of a role together.

    Raises:
        ConfigError: a limit of a single listener (`listener.name.<name>.max...`) is not a number.
    """
    files = config[keys_kraftbox.KRAFTBOX_FILES_OPEN_MAX] or descriptors.files_share()
    return ConnectionLimits(
        connections_max=config[keys_server.MAX_CONNECTIONS],
        per_ip_max=config[keys_server.MAX_CONNECTIONS_PER_IP],
        per_ip_overrides=_overrides(config[keys_server.MAX_CONNECTIONS_PER_IP_OVERRIDES]),
        rate_max=config[keys_server.MAX_CONNECTION_CREATION_RATE],
        listeners={
            listener.name: ListenerLimits(
                connections_max=_of_listener(config, listener.name, keys_server.MAX_CONNECTIONS),
                rate_max=_of_listener(
                    config, listener.name, keys_server.MAX_CONNECTION_CREATION_RATE
                ),
            )
            for listener in config.listeners
        },
        protected=config.inter_broker_listener_name,
        waiting_max=config[keys_server.SOCKET_LISTEN_BACKLOG_SIZE],
        descriptors_max=descriptors.connections_share(files),
        window_count=config[keys_server.QUOTA_WINDOW_NUM],
        window_ms=config[keys_server.QUOTA_WINDOW_SIZE_SECONDS] * 1000.0,
    )


def _of_listener(config: NodeConfig, listener: str, key: NodeKey[int]) -> int:
    text = config.of_listener(listener, key)
    return key.default if text is None else key.parse(text)


def _overrides(text: str) -> dict[str, int]:
    """Return the counts by host in `host:count,...`."""
    pairs = (entry.rpartition(":") for entry in text.split(",") if entry.strip())
    return {host.strip(): int(count) for host, _, count in pairs}
