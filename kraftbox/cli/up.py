"""`kraftbox up` and `kraftbox server`: from arguments to a supervisor, or to a node.

This process becomes a supervisor or a node. So it parses valid arguments with the standard library
alone, and imports the rest once they are known to be valid. The parser of all commands
(`kraftbox.cli.starts`) prints help and argument errors.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from runtime.printable import escape

DIR_DEFAULT = "kraftbox-data"


class NotPlain(Exception):
    """The arguments request help or are invalid; `kraftbox.cli.main` parses them again."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NotPlain(message)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options of `up` or `server`, as `kraftbox.cli.starts` defines them.

    Raises NotPlain.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    if arguments[0] == "up":
        _add_up(parser)
    else:
        parser.add_argument("file", nargs="?")
        parser.add_argument("--override", dest="settings", type=setting, action="append")
    options = parser.parse_args(arguments[1:], argparse.Namespace(command=arguments[0]))
    options.settings = dict(options.settings or ())
    return options


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", default=os.environ.get("KRAFTBOX_DIR") or DIR_DEFAULT)
    parser.add_argument("--file")
    parser.add_argument("--port", type=port)
    parser.add_argument("--controllers", type=int)
    parser.add_argument("--brokers", type=int)
    parser.add_argument("--racks", type=racks, default=())
    for flag in ("--combined", "--isolate", "--detach", "--detached", "--lifeline"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--set", dest="settings", type=setting, action="append")


def port(text: str) -> int:
    """Parse a port, 0 for a free one. Raises ValueError, as the parsers below do."""
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise ValueError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def racks(text: str) -> tuple[str, ...]:
    """Parse rack names, separated by commas."""
    found = tuple(rack.strip() for rack in text.split(","))
    if not all(found):
        raise ValueError(f"expected A,B,C, got {text!r}")
    return found


def setting(text: str) -> tuple[str, str]:
    """Parse a key and its value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"expected KEY=VALUE, got {text!r}")
    return key.strip(), value


def main(arguments: Sequence[str]) -> int:
    """Run until stopped; return the exit code. Raises NotPlain."""
    return run(parse(arguments), arguments)


def run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run until stopped; return the exit code. `arguments` are the command line as given."""
    if options.command == "up":
        return _failing_well(lambda: _up(options, arguments))
    return _failing_well(lambda: _serve(options))


def _failing_well(work: Callable[[], int]) -> int:
    """Print errors that an operator can remove, and return exit code 1 for them."""
    try:
        return work()
    except Exception as error:
        from runtime.config import ConfigError
        from runtime.errors import StartupRefused

        if not isinstance(error, ConfigError | StartupRefused):
            raise
        for line in str(error).split("\n"):
            sys.stderr.write(f"kraftbox: {escape(line)}\n")
        return 1


def _serve(options: argparse.Namespace) -> int:
    from kraftbox.process.lifetime import run_file

    return run_file(options.file, options.settings)


def _up(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Start the supervisor in this process, with as few imports as possible."""
    options.settings = {**_handed(), **options.settings}
    if options.detach:
        from kraftbox.launcher.detach import detach

        left = [argument for argument in arguments[1:] if argument != "--detach"]
        return detach(left, options.settings)
    begun = time.monotonic()
    testbed = None
    if options.file is not None:
        # The file is read first, so that an invalid file leaves nothing behind.
        testbed = _testbed(options)
        if testbed is None:
            return 2
    from kraftbox.launcher.early import Early

    try:
        early = Early(options.dir)
    except OSError as error:
        why = "not a directory" if isinstance(error, FileExistsError) else error.strerror
        sys.stderr.write(f"kraftbox: cannot use --dir {options.dir}: {escape(str(why))}\n")
        return 1
    from kraftbox.launcher import start
    from kraftbox.launcher.plan import AskedShape

    lifeline = 0 if options.lifeline else None
    if testbed is not None:
        options_of_start = start.Options(
            testbed.port if options.port is None else options.port,
            {**testbed.settings, **options.settings},
            testbed.asked,
            testbed.isolate and not _is_begun(options.dir),
            testbed.own,
            testbed.after,
        )
        return start.run(
            early, options_of_start, begun=begun, detached=options.detached, lifeline=lifeline
        )
    shape = AskedShape(options.controllers, options.brokers, options.combined, options.racks)
    options_of_start = start.Options(
        options.port,
        options.settings,
        # `--isolate` alone means one controller and one broker, so that there is a link between
        # nodes.
        shape if options.isolate or shape != AskedShape() else None,
        options.isolate,
    )
    return start.run(
        early, options_of_start, begun=begun, detached=options.detached, lifeline=lifeline
    )


def _handed() -> dict[str, str]:
    """Take the settings that the parent process passed. Raises StartupRefused."""
    from kraftbox.launcher.handed_settings import VARIABLE, taken

    return taken(os.environ) if VARIABLE in os.environ else {}


def _is_begun(directory: str) -> bool:
    """Return whether the directory has a cluster, whose network can no longer change."""
    from kraftbox.launcher.place import ClusterPlace

    return not ClusterPlace(directory).is_new


SAID_BY_THE_FILE = ("controllers", "brokers", "combined", "racks", "isolate")


def _testbed(options: argparse.Namespace) -> Any:
    """Read the testbed file; return None after printing an error about an invalid one."""
    file = options.file
    for name in SAID_BY_THE_FILE:
        if getattr(options, name):
            sys.stderr.write(
                f"kraftbox: --{name}: not allowed with --file; set it in the testbed\n"
            )
            return None
    from kraftbox.cli.testbed import read
    from kraftbox.documents.base import BadDocument

    try:
        return read(file)
    except OSError as error:
        sys.stderr.write(f"kraftbox: --file {file}: {error.strerror}\n")
    except UnicodeDecodeError:
        sys.stderr.write(f"kraftbox: --file {file}: not UTF-8 text\n")
    except BadDocument as error:
        for line in str(error).split("\n"):
            sys.stderr.write(f"kraftbox: {file}: {escape(line)}\n")
    return None
