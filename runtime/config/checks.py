"""Checks across the keys of one node, beyond the validators of single keys.

Each check yields all errors that it finds, so that a refused start lists them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.config import (
    keys_group_coordinator,
    keys_kraftbox,
    keys_log,
    keys_quorum,
    keys_remote,
    keys_replication,
    keys_security,
    keys_server,
)
from runtime.config.errors import ConfigError
from runtime.config.group_bounds import OTHER_BOUNDS, PROTOCOLS, Bounds
from runtime.config.listeners import parse_host_ports, unsupported_protocols
from runtime.config.node_values import NodeValues
from runtime.config.schema import NodeKey
from runtime.config.tiering import (
    LAG_PAIRS,
    RETENTION_PAIRS,
    copy_lag_problem,
    local_retention_problem,
)
from runtime.config.validators import repeats

REPLICA_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
_CLEANER_BUFFER_MIN_BYTES = 1 << 20


def check_node(node: NodeValues) -> Iterator[ConfigError]:
    """Yield every violated rule, the most basic first."""
    yield from _roles(node)
    yield from _quorum(node)
    yield from _listeners(node)
    yield from _log(node)
    yield from _limits(node)
    yield from _groups(node)
    yield from _http(node)
    yield from _tiering(node)
    yield from _not_built(node)
    yield from _gone(node)


def _wrong(key: NodeKey[Any], value: object, allowed: str) -> ConfigError:
    return ConfigError(key.name, value, allowed)


def _roles(node: NodeValues) -> Iterator[ConfigError]:
    broker_id = node[keys_quorum.BROKER_ID]
    if broker_id not in (-1, node.node_id):
        yield _wrong(
            keys_quorum.BROKER_ID, broker_id, f"must equal node.id={node.node_id}, if given"
        )
    if not node[keys_quorum.CONTROLLER_LISTENER_NAMES]:
        yield _wrong(keys_quorum.CONTROLLER_LISTENER_NAMES, "", "must name at least one listener")


def _quorum(node: NodeValues) -> Iterator[ConfigError]:
    voters = {voter.node_id for voter in node.quorum_voters}
    if not voters and not node.quorum_bootstrap_servers:
        yield _wrong(
            keys_quorum.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS,
            None,
            "must be set, or controller.quorum.voters, to locate the controllers",
        )
    key = keys_quorum.CONTROLLER_QUORUM_VOTERS
    if voters and node.is_controller and node.node_id not in voters:
        yield _wrong(
            key,
            node.text(key),
            f"must contain node.id={node.node_id}, because process.roles has controller",
        )
    if voters and not node.is_controller and node.node_id in voters:
        yield _wrong(
            key,
            node.text(key),
            f"must not contain node.id={node.node_id}, which is only a broker",
        )


def _listeners(node: NodeValues) -> Iterator[ConfigError]:
    names = set(node.controller_listener_names)
    listening = {listener.name for listener in node.listeners}
    key = keys_server.LISTENERS
    shown = node.text(key)
    if node.is_controller and not names & listening:
        yield _wrong(
            keys_quorum.CONTROLLER_LISTENER_NAMES,
            node.text(keys_quorum.CONTROLLER_LISTENER_NAMES),
            "must contain a name that is in listeners, because process.roles has controller",
        )
    elif node.is_controller and names - listening:
        yield _wrong(
            keys_quorum.CONTROLLER_LISTENER_NAMES,
            ",".join(sorted(names - listening)),
            "must only contain names that are in listeners, because process.roles has controller",
        )
    if not node.is_broker and listening - names:
        yield _wrong(key, shown, "may only have listeners of controller.listener.names here")
    if node.is_broker and not node.is_controller and names & listening:
        yield _wrong(key, shown, "a broker must not listen on one of controller.listener.names")
    if node.is_broker:
        yield from _advertised(node, listening)
    yield from unsupported_protocols(node.listeners)
    early = node[keys_server.EARLY_START_LISTENERS] or ()
    unknown = set(early) - listening - names
    for name in sorted(unknown):
        yield _wrong(
            keys_server.EARLY_START_LISTENERS,
            name,
            "must be in listeners or controller.listener.names",
        )


def _advertised(node: NodeValues, listening: set[str]) -> Iterator[ConfigError]:
    advertised = node.advertised_listeners
    key: NodeKey[Any] = keys_server.ADVERTISED_LISTENERS
    if not node[key]:
        key = keys_server.LISTENERS
    if not advertised:
        yield _wrong(
            key, node.text(key), "must have a listener that is not in controller.listener.names"
        )
        return
    for listener in advertised:
        if listener.host == "0.0.0.0":
            yield _wrong(key, f"{listener.name}://0.0.0.0", "clients cannot connect to 0.0.0.0")
        if listener.name not in listening:
            yield _wrong(
                key, listener.name, f"must be in listeners: {', '.join(sorted(listening))}"
            )
    key = keys_server.INTER_BROKER_LISTENER_NAME
    if node.is_set(key) and node.is_set(keys_security.SECURITY_INTER_BROKER_PROTOCOL):
        yield _wrong(
            key,
            node.text(key),
            "cannot be given together with security.inter.broker.protocol",
        )
    names = [listener.name for listener in advertised]
    if node.inter_broker_listener_name not in names:
        yield _wrong(
            key,
            node.inter_broker_listener_name,
            f"must be an advertised listener: {', '.join(names)}",
        )


def _log(node: NodeValues) -> Iterator[ConfigError]:
    retention_keys: tuple[NodeKey[int | None], ...] = (
        keys_log.LOG_RETENTION_MS,
        keys_log.LOG_RETENTION_MINUTES,
    )
    retention_key = next(
        (key for key in retention_keys if node[key] is not None), keys_log.LOG_RETENTION_HOURS
    )
    if node[retention_key] == 0:
        yield _wrong(retention_key, 0, "must be -1 (no limit) or at least 1")
    roll_ms = node[keys_log.LOG_ROLL_MS]
    if roll_ms is not None and roll_ms < 1:
        yield _wrong(keys_log.LOG_ROLL_MS, roll_ms, "must be at least 1")
    jitter_ms = node[keys_log.LOG_ROLL_JITTER_MS]
    if jitter_ms is not None and jitter_ms < 0:
        yield _wrong(keys_log.LOG_ROLL_JITTER_MS, jitter_ms, "must be at least 0")
    threads = max(1, node[keys_log.LOG_CLEANER_THREADS])
    buffer_bytes = node[keys_log.LOG_CLEANER_DEDUPE_BUFFER_SIZE]
    if node[keys_log.LOG_CLEANER_ENABLE] and buffer_bytes // threads <= _CLEANER_BUFFER_MIN_BYTES:
        yield _wrong(
            keys_log.LOG_CLEANER_DEDUPE_BUFFER_SIZE,
            buffer_bytes,
            "must be over 1 MB per cleaner thread",
        )
    codec = node[keys_group_coordinator.OFFSETS_TOPIC_COMPRESSION_CODEC]
    if not 0 <= codec <= 4:
        yield _wrong(
            keys_group_coordinator.OFFSETS_TOPIC_COMPRESSION_CODEC,
            codec,
            "must be a codec number from 0 to 4",
        )


def _limits(node: NodeValues) -> Iterator[ConfigError]:
    wait_ms = node[keys_replication.REPLICA_FETCH_WAIT_MAX_MS]
    for above in (
        keys_replication.REPLICA_SOCKET_TIMEOUT_MS,
        keys_replication.REPLICA_LAG_TIME_MAX_MS,
    ):
        if wait_ms > node[above]:
            yield _wrong(
                keys_replication.REPLICA_FETCH_WAIT_MAX_MS,
                wait_ms,
                f"must not be above {above.name}",
            )
    queued = node[keys_server.QUEUED_MAX_REQUEST_BYTES]
    if 0 < queued < node[keys_server.SOCKET_REQUEST_MAX_BYTES]:
        yield _wrong(
            keys_server.QUEUED_MAX_REQUEST_BYTES,
            queued,
            "must not be below socket.request.max.bytes",
        )
    delay_ms = node[keys_security.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS]
    if delay_ms and delay_ms >= node[keys_server.CONNECTIONS_MAX_IDLE_MS]:
        yield _wrong(
            keys_security.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
            delay_ms,
            "must be below connections.max.idle.ms",
        )
    overrides = node[keys_server.MAX_CONNECTIONS_PER_IP_OVERRIDES]
    if node[keys_server.MAX_CONNECTIONS_PER_IP] == 0 and not overrides:
        yield _wrong(
            keys_server.MAX_CONNECTIONS_PER_IP,
            0,
            "may be 0 only with max.connections.per.ip.overrides",
        )
    for entry in (part.strip() for part in overrides.split(",")):
        host, _, count = entry.rpartition(":")
        if entry and not (host and count.isdigit()):
            yield _wrong(
                keys_server.MAX_CONNECTIONS_PER_IP_OVERRIDES, entry, "each entry must be host:count"
            )


def _groups(node: NodeValues) -> Iterator[ConfigError]:
    for protocol in PROTOCOLS:
        for bounds in protocol:
            yield from _bounded(node, bounds)
        (session, *_), (heartbeat, *_), _ = protocol
        if node[heartbeat] >= node[session]:
            yield _wrong(
                heartbeat, node[heartbeat], f"must be below {session.name}={node[session]}"
            )
    tags = keys_group_coordinator.GROUP_STREAMS_RACK_AWARE_ASSIGNMENT_TAGS.name
    if repeats(node.given.get(tags, "")):
        yield ConfigError(tags, node.given[tags], "must not repeat a tag")
    for bounds in OTHER_BOUNDS:
        yield from _bounded(node, bounds)
    key = keys_group_coordinator.GROUP_COORDINATOR_REBALANCE_PROTOCOLS
    if "classic" not in node[key]:
        yield _wrong(key, node.text(key), "must contain classic")


def _bounded(node: NodeValues, bounds: Bounds) -> Iterator[ConfigError]:
    key, least, most = bounds
    if least is not None and most is not None:
        if node[most] < node[least]:
            yield _wrong(most, node[most], f"must be at least {least.name}={node[least]}")
        elif not node[least] <= node[key] <= node[most]:
            yield _wrong(
                key,
                node[key],
                f"must be from {least.name} to {most.name} ({node[least]} to {node[most]})",
            )
    elif least is not None and node[key] < node[least]:
        yield _wrong(key, node[key], f"must be at least {least.name}={node[least]}")
    elif most is not None and node[key] > node[most]:
        yield _wrong(key, node[key], f"must be at most {most.name}={node[most]}")


def _http(node: NodeValues) -> Iterator[ConfigError]:
    key = keys_kraftbox.KRAFTBOX_HTTP_LISTENER
    if node[key]:
        try:
            parse_host_ports(key.name, [node[key]])
        except ConfigError as error:
            yield error


def _gone(node: NodeValues) -> Iterator[ConfigError]:
    """Yield errors for removed keys of Kafka or a proposal, if ignoring them would mislead."""
    for name, reason in _GONE.items():
        if name in node.given:
            yield ConfigError(name, node.given[name], f"must not be set: {reason}")


_GONE = {
    "replica.lag.max.messages": (
        "the number of missing messages no longer removes a replica from the ISR, "
        "because it would remove replicas after a burst and miss a stuck replica of "
        "a quiet topic (KIP-16); use replica.lag.time.max.ms"
    ),
    "eligible.leader.replicas.enabled": (
        "eligible leader replicas (KIP-966) are a feature of the cluster, not of a "
        "node; use kafka-features upgrade --feature "
        "eligible.leader.replicas.version=1, or downgrade with 0"
    ),
}


_NEVER_SET: tuple[tuple[NodeKey[Any], str], ...] = (
    (keys_security.AUTHORIZER_CLASS_NAME, "authorization is not supported"),
    (keys_server.CONFIG_PROVIDERS, "configuration providers are not supported"),
    (keys_server.CREATE_TOPIC_POLICY_CLASS_NAME, "Java classes for policies are not supported"),
    (keys_server.ALTER_CONFIG_POLICY_CLASS_NAME, "Java classes for policies are not supported"),
    (keys_server.CLIENT_QUOTA_CALLBACK_CLASS, "Java classes for quota callbacks are not supported"),
)
_NEVER_TRUE = (
    (
        keys_quorum.CONTROLLER_QUORUM_AUTO_JOIN_ENABLE,
        "joining a quorum automatically is not supported",
    ),
)


def _tiering(node: NodeValues) -> Iterator[ConfigError]:
    """Yield errors of the node's local retention limits with tiered storage."""
    if not node[keys_remote.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
        return
    for local, total in RETENTION_PAIRS:
        problem = local_retention_problem(
            local.synonyms[0][0].name,
            node.topic_default(local),
            total.synonyms[0][0].name,
            node.topic_default(total),
        )
        if problem is not None:
            yield problem
    for lag, local, total in LAG_PAIRS:
        problem = copy_lag_problem(
            lag.synonyms[0][0].name,
            node.topic_default(lag),
            local.synonyms[0][0].name,
            node.topic_default(local),
            node.topic_default(total),
        )
        if problem is not None:
            yield problem


def _not_built(node: NodeValues) -> Iterator[ConfigError]:
    """Yield errors for settings whose promise cannot be kept yet: they are refused, not ignored."""
    if len(node[keys_log.LOG_DIRS] or node[keys_log.LOG_DIR]) > 1:
        yield _wrong(
            keys_log.LOG_DIRS,
            node.text(keys_log.LOG_DIRS),
            "only one log directory is supported",
        )
    for key, what in _NEVER_SET:
        if node[key]:
            yield _wrong(key, node.text(key), f"must be empty: {what}")
    selector = node[keys_replication.REPLICA_SELECTOR_CLASS]
    if selector and selector not in REPLICA_SELECTORS:
        yield _wrong(
            keys_replication.REPLICA_SELECTOR_CLASS,
            selector,
            f"must be one of {', '.join(REPLICA_SELECTORS)}: other Java classes are not supported",
        )
    for switch, what in _NEVER_TRUE:
        if node[switch]:
            yield _wrong(switch, "true", f"must be false: {what}")
