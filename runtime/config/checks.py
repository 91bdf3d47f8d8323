"""Checks between keys of one node: what no single key's validator can decide.

Each check yields the errors it finds, so that a start that is refused names all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.config.errors import ConfigError
from runtime.config.listeners import parse_host_ports, unsupported_protocols

if TYPE_CHECKING:
    from runtime.config.node import NodeConfig

REPLICA_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
_CLEANER_BUFFER_MIN_BYTES = 1 << 20


def check_node(config: NodeConfig) -> Iterator[ConfigError]:
    """Every violated rule, most basic first."""
    yield from _roles(config)
    yield from _quorum(config)
    yield from _listeners(config)
    yield from _log(config)
    yield from _limits(config)
    yield from _groups(config)
    yield from _http(config)
    yield from _not_built(config)
    yield from _gone(config)


def _roles(config: NodeConfig) -> Iterator[ConfigError]:
    broker_id = config["broker.id"]
    if broker_id not in (-1, config.node_id):
        yield ConfigError("broker.id", broker_id, f"must equal node.id={config.node_id}, if given")
    if not config["controller.listener.names"]:
        yield ConfigError("controller.listener.names", "", "must name at least one listener")


def _quorum(config: NodeConfig) -> Iterator[ConfigError]:
    voters = {voter.node_id for voter in config.quorum_voters}
    if not voters and not config.quorum_bootstrap_servers:
        yield ConfigError(
            "controller.quorum.bootstrap.servers",
            None,
            "it or controller.quorum.voters must say where the controllers are",
        )
    if voters and config.is_controller and config.node_id not in voters:
        yield ConfigError(
            "controller.quorum.voters",
            config.text("controller.quorum.voters"),
            f"must contain node.id={config.node_id}, because process.roles has controller",
        )
    if voters and not config.is_controller and config.node_id in voters:
        yield ConfigError(
            "controller.quorum.voters",
            config.text("controller.quorum.voters"),
            f"must not contain node.id={config.node_id}, which is only a broker",
        )


def _listeners(config: NodeConfig) -> Iterator[ConfigError]:
    names = set(config.controller_listener_names)
    listening = {listener.name for listener in config.listeners}
    shown = config.text("listeners")
    if config.is_controller and not names & listening:
        yield ConfigError(
            "controller.listener.names",
            config.text("controller.listener.names"),
            "must contain a name that is in listeners, because process.roles has controller",
        )
    if not config.is_broker and listening - names:
        yield ConfigError(
            "listeners", shown, "may only have listeners of controller.listener.names here"
        )
    if config.is_broker and not config.is_controller and names & listening:
        yield ConfigError(
            "listeners", shown, "a broker must not listen on one of controller.listener.names"
        )
    if config.is_broker:
        yield from _advertised(config, listening)
    yield from unsupported_protocols(config.listeners)
    unknown = {name.upper() for name in config["early.start.listeners"] or ()} - listening - names
    for name in sorted(unknown):
        yield ConfigError(
            "early.start.listeners", name, "must be in listeners or controller.listener.names"
        )


def _advertised(config: NodeConfig, listening: set[str]) -> Iterator[ConfigError]:
    advertised = config.advertised_listeners
    key = "advertised.listeners" if config["advertised.listeners"] else "listeners"
    if not advertised:
        yield ConfigError(
            key, config.text(key), "must leave a listener that controller.listener.names has not"
        )
        return
    for listener in advertised:
        if listener.host == "0.0.0.0":
            yield ConfigError(
                key, f"{listener.name}://0.0.0.0", "clients cannot connect to 0.0.0.0"
            )
        if listener.name not in listening:
            yield ConfigError(
                key, listener.name, f"must be in listeners: {', '.join(sorted(listening))}"
            )
    if config.is_set("inter.broker.listener.name") and config.is_set(
        "security.inter.broker.protocol"
    ):
        yield ConfigError(
            "inter.broker.listener.name",
            config.text("inter.broker.listener.name"),
            "cannot be given together with security.inter.broker.protocol",
        )
    names = [listener.name for listener in advertised]
    if config.inter_broker_listener_name not in names:
        yield ConfigError(
            "inter.broker.listener.name",
            config.inter_broker_listener_name,
            f"must be an advertised listener: {', '.join(names)}",
        )


def _log(config: NodeConfig) -> Iterator[ConfigError]:
    retention_key = next(
        (key for key in ("log.retention.ms", "log.retention.minutes") if config[key] is not None),
        "log.retention.hours",
    )
    if config[retention_key] == 0:
        yield ConfigError(retention_key, 0, "must be -1 (no limit) or at least 1")
    roll_ms = config["log.roll.ms"]
    if roll_ms is not None and roll_ms < 1:
        yield ConfigError("log.roll.ms", roll_ms, "must be at least 1")
    jitter_ms = config["log.roll.jitter.ms"]
    if jitter_ms is not None and jitter_ms < 0:
        yield ConfigError("log.roll.jitter.ms", jitter_ms, "must be at least 0")
    threads = max(1, config["log.cleaner.threads"])
    buffer_bytes = config["log.cleaner.dedupe.buffer.size"]
    if config["log.cleaner.enable"] and buffer_bytes // threads <= _CLEANER_BUFFER_MIN_BYTES:
        yield ConfigError(
            "log.cleaner.dedupe.buffer.size", buffer_bytes, "must be over 1 MB per cleaner thread"
        )
    for key in ("offsets.topic.compression.codec",):
        if not 0 <= config[key] <= 4:
            yield ConfigError(key, config[key], "must be a codec number from 0 to 4")


def _limits(config: NodeConfig) -> Iterator[ConfigError]:
    wait_ms = config["replica.fetch.wait.max.ms"]
    if wait_ms > config["replica.socket.timeout.ms"]:
        yield ConfigError(
            "replica.fetch.wait.max.ms", wait_ms, "must not be above replica.socket.timeout.ms"
        )
    if wait_ms > config["replica.lag.time.max.ms"]:
        yield ConfigError(
            "replica.fetch.wait.max.ms", wait_ms, "must not be above replica.lag.time.max.ms"
        )
    queued = config["queued.max.request.bytes"]
    if 0 < queued < config["socket.request.max.bytes"]:
        yield ConfigError(
            "queued.max.request.bytes", queued, "must not be below socket.request.max.bytes"
        )
    delay_ms = config["connection.failed.authentication.delay.ms"]
    if delay_ms and delay_ms >= config["connections.max.idle.ms"]:
        yield ConfigError(
            "connection.failed.authentication.delay.ms",
            delay_ms,
            "must be below connections.max.idle.ms",
        )
    if config["max.connections.per.ip"] == 0 and not config["max.connections.per.ip.overrides"]:
        yield ConfigError(
            "max.connections.per.ip", 0, "may be 0 only with max.connections.per.ip.overrides"
        )
    yield from _ip_overrides(config)


def _ip_overrides(config: NodeConfig) -> Iterator[ConfigError]:
    key = "max.connections.per.ip.overrides"
    for entry in (part.strip() for part in config[key].split(",")):
        host, _, count = entry.rpartition(":")
        if entry and not (host and count.isdigit()):
            yield ConfigError(key, entry, "each entry must be host:count")


def _groups(config: NodeConfig) -> Iterator[ConfigError]:
    for kind in ("consumer", "share", "streams"):
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            low = f"group.{kind}.min.{what}"
            value = f"group.{kind}.{what}"
            high = f"group.{kind}.max.{what}"
            if config[high] < config[low]:
                yield ConfigError(high, config[high], f"must not be below {low}={config[low]}")
            elif not config[low] <= config[value] <= config[high]:
                yield ConfigError(
                    value,
                    config[value],
                    f"must be from {low} to {high} ({config[low]} to {config[high]})",
                )
        if config[f"group.{kind}.heartbeat.interval.ms"] >= (
            session := config[f"group.{kind}.session.timeout.ms"]
        ):
            yield ConfigError(
                f"group.{kind}.heartbeat.interval.ms",
                config[f"group.{kind}.heartbeat.interval.ms"],
                f"must be below group.{kind}.session.timeout.ms={session}",
            )
    if "classic" not in config["group.coordinator.rebalance.protocols"]:
        yield ConfigError(
            "group.coordinator.rebalance.protocols",
            config.text("group.coordinator.rebalance.protocols"),
            "must contain classic",
        )


def _http(config: NodeConfig) -> Iterator[ConfigError]:
    key = "kraftbox.http.listener"
    if config[key]:
        try:
            parse_host_ports(key, [config[key]])
        except ConfigError as error:
            yield error


def _gone(config: NodeConfig) -> Iterator[ConfigError]:
    """Keys that Kafka once had, where ignoring them would mislead."""
    key = "replica.lag.max.messages"
    if config.is_set(key):
        yield ConfigError(
            key,
            config.given[key],
            "must not be set: no number of messages puts a replica out of the ISR any more, "
            "because a burst would and a stuck replica of a quiet topic would not (KIP-16); "
            "use replica.lag.time.max.ms",
        )


def _not_built(config: NodeConfig) -> Iterator[ConfigError]:
    """Settings whose promise cannot be kept yet: refused, never ignored in silence."""
    if len(config["log.dirs"] or config["log.dir"]) > 1:
        yield ConfigError(
            "log.dirs", config.text("log.dirs"), "only one log directory is supported so far"
        )
    for key, what in (
        ("authorizer.class.name", "authorization is not built"),
        ("config.providers", "configuration providers are not built"),
        ("create.topic.policy.class.name", "policy classes cannot run here"),
        ("alter.config.policy.class.name", "policy classes cannot run here"),
        ("client.quota.callback.class", "quota callback classes cannot run here"),
    ):
        if config[key]:
            yield ConfigError(key, config.text(key), f"must be empty: {what}")
    selector = config["replica.selector.class"]
    if selector and selector not in REPLICA_SELECTORS:
        yield ConfigError(
            "replica.selector.class",
            selector,
            f"must be one of {', '.join(REPLICA_SELECTORS)}: other classes cannot run here",
        )
    for key, what in (
        ("remote.log.storage.system.enable", "tiered storage is not built so far"),
        ("controller.quorum.auto.join.enable", "joining a quorum by itself is not built so far"),
    ):
        if config[key]:
            yield ConfigError(key, "true", f"must be false: {what}")
