"""`kraftbox up` and `kraftbox server`: from arguments to a running node in this process.

Parsed with argparse and printed as plain text, because this process becomes the node. What a start
needs is imported only once the arguments are known to be good.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

PORT_DEFAULT = 9092


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="kraftbox", add_help=False)
    commands = top.add_subparsers(dest="command", required=True)
    up = commands.add_parser(
        "up",
        help="start a ready node in the foreground",
        description="Start a node that is ready for clients, in the foreground. Ctrl-C stops it. "
        "A new directory is formatted, an existing one resumed under the same address. "
        "Internal topics get one replica and the first rebalance does not wait. "
        "On a pipe the first line is bootstrap.servers=HOST:PORT.",
    )
    up.add_argument(
        "--dir", default="kraftbox-data", help="everything the node keeps (default: %(default)s)"
    )
    up.add_argument(
        "--port",
        type=_port,
        default=None,
        help=f"client port; 0 takes a free one. Default: the directory's own, or {PORT_DEFAULT}",
    )
    up.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="a configuration key of Kafka's server.properties; may be repeated",
    )
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
    return top


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("must be from 0 to 65535")
    return port


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
    from kraftbox import server, up
    from runtime.config import ConfigError
    from runtime.errors import StartupRefused

    try:
        if options.command == "up":
            return up.run(options.dir, options.port, dict(options.settings))
        return server.run_file(options.file, dict(options.settings))
    except (ConfigError, StartupRefused) as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"kraftbox: {line}\n")
        return 1
