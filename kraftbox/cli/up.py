"""`kraftbox up` and `kraftbox server`: from arguments to a supervisor, or to a node.

Parsed with argparse and printed as plain text, because this process becomes one of the two. What a
start needs is imported only once the arguments are known to be good.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

PORT_DEFAULT = 9092


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises SystemExit after a message."""
    top = argparse.ArgumentParser(prog="kraftbox", add_help=False)
    commands = top.add_subparsers(dest="command", required=True)
    _add_up(commands)
    _add_server(commands)
    options, unknown = top.parse_known_args(arguments)
    if unknown:
        # By the command's own parser, whose usage shows the options that there are.
        commands.choices[options.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _add_up(commands: Commands) -> None:
    up = commands.add_parser(
        "up",
        allow_abbrev=False,
        help="start a ready node in the foreground",
        description="Start a node that is ready for clients, in the foreground, or a cluster of "
        "several. Ctrl-C stops it. A new directory is formatted, an existing one resumed under the "
        "same addresses. Internal topics get up to three replicas, and the first rebalance "
        "does not wait. "
        "On a pipe the first line is bootstrap.servers=HOST:PORT[,HOST:PORT...]. "
        "kraftbox status, node, logs and down look after it, and a start with a larger --brokers "
        "adds brokers.",
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
        "--isolate",
        action="store_true",
        help="a new cluster gets a network of its own, whose links chaos can cut (Linux, root)",
    )
    up.add_argument(
        "--detach", action="store_true", help="return when it is ready, and let it run on"
    )
    up.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)
    # A cluster that ends with its standard input: whoever holds the other end owns it.
    up.add_argument("--lifeline", action="store_true", help=argparse.SUPPRESS)
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
        options = parse(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    if options.command == "up":
        return _failing_well(lambda: _up(options, arguments))
    return _failing_well(lambda: _serve(options))


def _failing_well(work: Callable[[], int]) -> int:
    """What an operator can remove becomes a message and exit code 1."""
    try:
        return work()
    except Exception as error:
        from runtime.config import ConfigError
        from runtime.errors import StartupRefused

        if not isinstance(error, ConfigError | StartupRefused):
            raise
        for line in str(error).splitlines():
            sys.stderr.write(f"kraftbox: {line}\n")
        return 1


def _serve(options: argparse.Namespace) -> int:
    from kraftbox.process.lifetime import run_file

    return run_file(options.file, dict(options.settings))


def _up(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """This process only supervises, and imports no more than it needs for that."""
    if options.detach:
        from kraftbox.launcher.detach import detach

        return detach([argument for argument in arguments[1:] if argument != "--detach"])
    begun = time.monotonic()
    from kraftbox.launcher.early import Early

    try:
        early = Early(options.dir)
    except OSError as error:
        sys.stderr.write(f"kraftbox: cannot use {options.dir}: {error.strerror}\n")
        return 1
    from kraftbox.launcher import start
    from kraftbox.launcher.plan import AskedShape

    shape = AskedShape(options.controllers, options.brokers, options.combined, options.racks)
    asked = start.Options(
        options.port,
        dict(options.settings),
        # `--isolate` alone asks for a controller and a broker, whose link it is about.
        shape if options.isolate or shape != AskedShape() else None,
        options.isolate,
    )
    lifeline = 0 if options.lifeline else None
    return start.run(early, asked, begun=begun, detached=options.detached, lifeline=lifeline)
