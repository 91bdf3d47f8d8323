"""`kraftbox up`: one directory, one command, a node that is ready for clients.

The directory holds everything: `server.properties` (what the node was first started with, and its
address from then on), `data/` in Kafka's formats, `node.log`. Starting again resumes it; the
options of the new start win over the file and are kept. Apart from addresses, only settings that a
cluster of one needs differ from Kafka's defaults, and they are printed.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Mapping

from kraftbox.launcher.differences import differences
from kraftbox.launcher.single import Place, properties
from kraftbox.node import Node
from kraftbox.process import lifetime
from kraftbox.process.formatting import format_if_new
from runtime import log
from runtime.config import NodeConfig
from runtime.errors import StartupRefused


def run(directory: str, port: int | None, settings: Mapping[str, str]) -> int:
    """Start and serve until stopped; raises ConfigError and StartupRefused."""
    begun = time.monotonic()
    place = Place(directory)
    fresh = not place.properties.exists()
    place.refuse_foreign()
    props = properties(place, port, settings)
    config = NodeConfig.parse(props)
    try:
        place.root.mkdir(parents=True, exist_ok=True)
        log_fd = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise StartupRefused(f"cannot use {place.root}: {error.strerror}") from error
    lifetime.configure_log(config, log.sink_for(log_fd))
    format_if_new(config)
    if fresh:
        place.remember(props)

    def ready(node: Node) -> None:
        bound = {**props, "listeners": _with_bound_ports(config, node)}
        if bound != place.remembered():
            place.remember(bound)
        report(place, node, config, begun)

    try:
        return lifetime.run(config, on_ready=ready)
    except StartupRefused as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE:
            hint = "--port takes another, --port 0 a free one"
            raise StartupRefused(f"{error} ({hint})") from error
        raise


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
    differing = differences(config)
    if differing:
        lines.append("  not as in Kafka's defaults:")
        lines += [f"    {line}" for line in differing]
    lines += [f"  warning: {warning}" for warning in config.warnings]
    if out.isatty():
        lines.append("Ctrl-C stops it; the same command resumes it.")
    out.write("".join(f"{line}\n" for line in lines))
    out.flush()
