"""Shell: The process of a node, from its fork to its end."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from kraftbox.launcher import addresses, frames
from kraftbox.node import Node
from kraftbox.process import lifetime
from kraftbox.process.formatting import format_if_new
from kraftbox.process.loop import CuttableLoop
from runtime import log
from runtime.config import ConfigError, NodeConfig
from runtime.errors import StartupRefused

_NAME = "/proc/self/comm"


def run(command: dict[str, Any], report: socket.socket) -> int:
    """Run the node that `command` describes; return the exit code.

    Standard output and error are already the node's log. The node sends a frame to `report` when it
    is ready, and when it refuses to start or fails. It stops when the other end of `report` closes.
    """
    name_process(command["id"])
    commands = frames.Decoder()

    def ready(node: Node) -> None:
        found = node.client_addresses() if node.config.is_broker else []
        tell(report, {"event": "ready", "addresses": found, "http": node.http_address})

    def failed(reason: str) -> None:
        tell(report, {"event": "refused", "error": frames.clipped(reason)})

    tied = lifetime.Lifeline(
        report.fileno(), lambda loop, data: obey(report, commands, loop, data), ready, failed
    )
    try:
        if command.get("namespace") is not None:
            addresses.enter(command["namespace"])
        config = NodeConfig.parse(command["properties"])
        lifetime.configure_log(config, log.sink_for(1))
        format_if_new(config, command["cluster_id"])
        return lifetime.run(config, tied)
    except (ConfigError, StartupRefused) as error:
        failed(str(error))
        log.get_logger("kraftbox").error("The node does not start", reason=str(error))
        log.flush()
        return 1
    except Exception as error:
        # A bug of kraftbox: the launcher gets the error, and the node's log the traceback.
        failed(f"{error!r}; see the node's log")
        raise


def tell(report: socket.socket, message: frames.Message) -> None:
    # The launcher may have gone; the node then stops by itself.
    with contextlib.suppress(OSError):
        report.sendall(frames.encode(message))


def obey(report: socket.socket, commands: frames.Decoder, loop: CuttableLoop, data: bytes) -> None:
    """Carry out the supervisor's commands to a running node: cut it off, or reconnect it.

    `commands` buffers incomplete frames between calls. Raises FrameError.
    """
    for command in commands.feed(data):
        action = command.get("do")
        error = None
        try:
            if action == "cut-off":
                loop.cut_off()
            elif action == "reconnect":
                loop.reconnect()
            else:
                error = f"unknown command {action!r:.80}"
        except OSError as failure:
            error = str(failure)
        tell(report, {"event": "network", "cut_off": action == "cut-off", "error": error})


def name_process(node_id: int) -> None:
    """Set the name that `ps` and `top` show, on systems with /proc."""
    with contextlib.suppress(OSError), open(_NAME, "w", encoding="ascii") as name:
        name.write(f"kraftbox-{node_id}")


def main(fd: int) -> int:
    """Run `_node`: a spawned node, which reads its command as the first frame on `fd`."""
    decoder = frames.Decoder()
    report = socket.socket(fileno=fd)
    while True:
        data = report.recv(1 << 16)
        if not data:
            return 1
        messages = decoder.feed(data)
        if messages:
            return run(messages[0], report)
