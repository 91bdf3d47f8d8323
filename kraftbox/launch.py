"""`kraftbox up` and `kraftbox server`: from arguments to a running node in this process.

Parsed with argparse and printed as plain text, because this process becomes the node. What a start
needs is imported only once the arguments are known to be good.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftbox.cluster.plan import Shape

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

PORT_DEFAULT = 9092


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="kraftbox", add_help=False)
    commands = top.add_subparsers(dest="command", required=True)
    _add_up(commands)
    _add_server(commands)
    return top


def _add_up(commands: Commands) -> None:
    up = commands.add_parser(
        "up",
        allow_abbrev=False,
        help="start a ready node in the foreground",
        description="Start a node that is ready for clients, in the foreground, or a cluster of "
        "several. Ctrl-C stops it. A new directory is formatted, an existing one resumed under the "
        "same addresses. Internal topics get one replica and the first rebalance does not wait. "
        "On a pipe the first line is bootstrap.servers=HOST:PORT[,HOST:PORT...]. "
        "kraftbox status, node, logs and down look after a cluster.",
    )
    up.add_argument(
        "--dir", default="kraftbox-data", help="everything the node keeps (default: %(default)s)"
    )
    up.add_argument(
        "--port",
        type=_port,
        default=None,
        help="client port, of several brokers the first; 0 takes free ones. "
        f"Default: the directory's own, or {PORT_DEFAULT}",
    )
    up.add_argument(
        "--controllers", type=int, metavar="N", help="controllers of a cluster (default: 1)"
    )
    up.add_argument("--brokers", type=int, metavar="M", help="brokers of a cluster (default: 1)")
    up.add_argument(
        "--combined",
        action="store_true",
        help="nodes are controllers and brokers at once, as far as both go",
    )
    up.add_argument(
        "--racks",
        metavar="A,B,C",
        type=_racks,
        default=(),
        help="racks that the brokers are in, in turn",
    )
    up.add_argument(
        "--detach", action="store_true", help="return when it is ready, and let it run on"
    )
    up.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)
    up.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="a configuration key of Kafka's server.properties; may be repeated",
    )


def _add_server(commands: Commands) -> None:
    server = commands.add_parser(
        "server",
        help="run a node from a server.properties",
        description="Run one node from a server.properties file with Kafka's defaults, logging to "
        "standard output. KAFKA_* environment variables are read by the rules of Kafka's "
        "container image and win over the file; --override wins over both. The log directory must "
        "have been formatted (kraftbox storage format).",
    )
    server.add_argument("file", nargs="?", help="server.properties; may be left out with KAFKA_*")
    server.add_argument(
        "--override",
        dest="settings",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="a key that wins over the file and the environment; may be repeated",
    )


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("must be from 0 to 65535")
    return port


def _racks(text: str) -> tuple[str, ...]:
    racks = tuple(rack.strip() for rack in text.split(","))
    if not all(racks):
        raise argparse.ArgumentTypeError(f"{text!r} is not A,B,C")
    return racks


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def main(arguments: Sequence[str]) -> int:
    """Run until stopped; returns the exit code."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    from runtime.config import ConfigError
    from runtime.errors import StartupRefused

    try:
        if options.command == "up":
            return _up(options, arguments)
        from kraftbox import server

        return server.run_file(options.file, dict(options.settings))
    except (ConfigError, StartupRefused) as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"kraftbox: {line}\n")
        return 1


def _up(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    from kraftbox.cluster.place import ClusterPlace

    shape = shape_asked_for(options)
    supervised = shape or options.detach or options.detached
    if not supervised and not ClusterPlace(options.dir).is_cluster:
        from kraftbox import up

        return up.run(options.dir, options.port, dict(options.settings))
    # A cluster: this process will only supervise, and imports no more than it needs for that.
    from kraftbox.cluster import start

    if options.detach:
        return start.detach([argument for argument in arguments[1:] if argument != "--detach"])
    asked = start.Options(options.dir, options.port, dict(options.settings), shape)
    return start.run(asked, detached=options.detached)


def shape_asked_for(options: argparse.Namespace) -> Shape | None:
    """The cluster that the options describe; None when none of them does."""
    counts = (options.controllers, options.brokers)
    if counts == (None, None) and not options.combined and not options.racks:
        return None
    from kraftbox.cluster.plan import Shape

    brokers = 1 if options.brokers is None else options.brokers
    controllers = 1 if options.controllers is None else options.controllers
    return Shape(controllers, brokers, options.combined, options.racks)
