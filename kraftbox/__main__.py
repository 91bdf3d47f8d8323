"""Shell: The `kraftbox` command.

Nothing but the standard library's smallest parts is imported here: `up` and `server` become a node
and must not carry the terminal libraries that the other commands use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

NODE_COMMANDS = ("up", "server")
OWN_PROCESSES = ("_fork-server", "_node", "_router", "_testbed", "_testing")
"""Started by other processes of ours, not by people."""
KAFKA_TOOL_PREFIX = "kafka-"
NO_WINDOWS = (
    "kraftbox: nodes are forked and talk over Unix sockets, which Windows has not: use WSL 2, or "
    "the container image\n"
)


def use_own_packages() -> None:
    """Put our packages first on the path, so that a user's own `storage` cannot be meant.

    In the wheel they lie below `kraftbox/_root`; in a working copy beside this package.
    """
    here = Path(__file__).resolve().parent
    root = here / "_root"
    if not root.is_dir():
        root = here.parent
    text = str(root)
    if not sys.path or sys.path[0] != text:
        sys.path.insert(0, text)


def own_process(name: str, arguments: Sequence[str]) -> int:
    if name == "_node":
        from kraftbox.launcher.node_process import main as node

        return node(3)
    if name == "_testing":
        from kraftbox.testing.helper import main as helper

        return helper()
    if name == "_testbed":
        from kraftbox.cli.testbed import main as testbed

        return testbed(arguments)
    if name == "_router":
        from kraftbox.launcher.router import main as router

        return router(arguments)
    from kraftbox.launcher.fork_server import main as fork_server

    return fork_server(list(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 failed, 2 wrong usage. Without `arguments`
    the command is the process's own."""
    if os.name == "nt":
        sys.stderr.write(NO_WINDOWS)
        return 1
    use_own_packages()
    if arguments is not None:
        return run(list(arguments))
    from kraftbox.process.interrupts import end_silently

    end_silently()
    code = run(sys.argv[1:])
    if "obstore" in sys.modules:
        # Threads of the object store may come back from Rust while Python takes itself apart, which
        # aborts the process in place of its exit code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def run(given: list[str]) -> int:
    """The command that is `given`, by its first word."""
    if given and given[0] in NODE_COMMANDS:
        from kraftbox.cli import up

        with suppress(up.NotPlain):
            return up.main(given)
    if given and given[0] in OWN_PROCESSES:
        return own_process(given[0], given[1:])
    if given and given[0] == "container":
        from kraftbox.process.container import main as container

        return container(given[1:])
    if given and given[0].startswith(KAFKA_TOOL_PREFIX):
        from kraftbox.kafka_tools import main as kafka_tool

        return kafka_tool(given[0], given[1:])
    from kraftbox.cli.main import main as cli

    return cli(given)


if __name__ == "__main__":
    sys.exit(main())
