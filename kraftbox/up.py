"""`kraftbox up`: one directory, one command, a node that is ready for clients.

The directory holds everything: `server.properties` (what the node was first started with, and its
address from then on), `data/` in Kafka's formats, `node.log`. Starting again resumes it; the
options of the new start win over the file and are kept. Apart from addresses, only settings that a
cluster of one needs differ from Kafka's defaults, and they are printed.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from kraftbox import server
from kraftbox.node import Node
from metalog.format import FormatRefused, FormatRequest, format_directories
from protocol.ids import random_uuid, uuid_to_text
from runtime import log
from runtime.clock import SystemClock
from runtime.config import NodeConfig
from runtime.config.properties import format_properties
from runtime.config.tables import NODE_KEYS
from runtime.errors import StartupRefused
from storage.files import RealFiles
from storage.log.directory import META_PROPERTIES, read_meta
from storage.log.errors import BadLogDirectory

HOST = "127.0.0.1"
NODE_ID = "1"
PORT_DEFAULT = 9092

# What the number of brokers allows, which is one; and nobody to wait for.
FOR_ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# Keys that say who and where a node is: not shown as differences.
_IDENTITY = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dirs",
        "node.id",
        "process.roles",
        "kraftbox.http.listener",
    }
)


class Place:
    """The directory of `up` and the names in it."""

    def __init__(self, directory: str) -> None:
        self.root = Path(directory).absolute()
        self.data = self.root / "data"
        self.properties = self.root / "server.properties"
        self.log = self.root / "node.log"

    def remembered(self) -> dict[str, str]:
        """What the directory was started with before; empty for a new one."""
        return server.read_properties(str(self.properties)) if self.properties.exists() else {}

    def remember(self, props: Mapping[str, str]) -> None:
        comment = "Written by `kraftbox up`, which reads it again; --set changes it."
        temporary = self.properties.with_suffix(".tmp")
        temporary.write_text(format_properties(props, comment), encoding="utf-8")
        os.replace(temporary, self.properties)


def properties(place: Place, port: int | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The node's properties: defaults of `up`, then what is remembered, then the options."""
    base = {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "listeners": _listeners(PORT_DEFAULT),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:0",
        "log.dirs": str(place.data),
        "kraftbox.http.listener": f"{HOST}:0",
        **FOR_ONE_NODE,
    }
    remembered = place.remembered()
    # The directory may have been moved since.
    merged = {**base, **remembered, "log.dirs": str(place.data)}
    if port is not None and not (port == 0 and remembered):
        merged["listeners"] = _listeners(port)
    return {**merged, **settings}


def _listeners(port: int) -> str:
    return f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:0"


def run(directory: str, port: int | None, settings: Mapping[str, str]) -> int:
    """Start and serve until stopped; raises ConfigError and StartupRefused."""
    begun = time.monotonic()
    place = Place(directory)
    fresh = not place.properties.exists()
    if fresh and (place.root / META_PROPERTIES).exists():
        raise StartupRefused(
            f"{place.root} is a log directory of another node: use `kraftbox server`"
        )
    props = properties(place, port, settings)
    config = NodeConfig.parse(props)
    try:
        place.root.mkdir(parents=True, exist_ok=True)
        log_fd = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise StartupRefused(f"cannot use {place.root}: {error.strerror}") from error
    server.configure_log(config, log.sink_for(log_fd))
    format_if_new(config)
    if fresh:
        place.remember(props)

    def ready(node: Node) -> None:
        bound = {**props, "listeners": _with_bound_ports(config, node)}
        if bound != place.remembered():
            place.remember(bound)
        report(place, node, config, begun)

    return server.run(config, on_ready=ready)


def format_if_new(config: NodeConfig) -> None:
    """Format what has no identity yet, under the cluster id of what has; raises StartupRefused."""
    files = RealFiles()
    rng = random.Random(random.SystemRandom().getrandbits(128))
    try:
        meta = read_meta(files, config.log_dir)
        cluster_id = uuid_to_text(random_uuid(rng)) if meta is None else meta.cluster_id
        request = FormatRequest.from_node_config(config, cluster_id)
        format_directories(
            request._replace(ignore_formatted=True), files=files, clock=SystemClock(), rng=rng
        )
    except (FormatRefused, BadLogDirectory, OSError) as error:
        raise StartupRefused(str(error)) from error
    finally:
        files.close()


def _with_bound_ports(config: NodeConfig, node: Node) -> str:
    """`listeners` with the client ports that the kernel chose. The controller's port stays 0:
    only this process uses it, and it must never be the reason that a restart fails."""
    entries = []
    for listener in config.listeners:
        port = node.bound_port(listener.name) if listener in config.broker_listeners else 0
        entries.append(f"{listener.name}://{listener.host}:{port}")
    return ",".join(entries)


def report(place: Place, node: Node, config: NodeConfig, begun: float) -> None:
    """Tell a person or a pipe that the node is ready."""
    out = sys.stdout
    bootstrap = ",".join(node.client_addresses())
    if not out.isatty():
        out.write(f"bootstrap.servers={bootstrap}\n")
    lines = [
        f"Node {config.node_id} is ready after {time.monotonic() - begun:.2f} s.",
        f"  connect to   {bootstrap}",
        f"  data         {config.log_dir}",
        f"  log          {place.log}",
    ]
    if node.http_address is not None:
        lines.append(f"  health       http://{node.http_address}/readyz, /healthz, /metrics")
    differing = list(differences(config))
    if differing:
        lines.append("  not as in Kafka's defaults:")
        lines += [f"    {line}" for line in differing]
    if out.isatty():
        lines.append("Ctrl-C stops it; the same command resumes it.")
    out.write("".join(f"{line}\n" for line in lines))
    out.flush()


def differences(config: NodeConfig) -> list[str]:
    """`key=value (default)` for every setting that is not Kafka's default."""
    found = []
    for name in sorted(config.given):
        key = NODE_KEYS.get(name)
        if key is None or name in _IDENTITY or config[name] == key.default:
            continue
        default = "none" if key.required else key.format(key.default) or "none"
        shown = "(hidden)" if key.sensitive else config.text(name)
        found.append(f"{name}={shown} (default {default})")
    return found
