"""Shell: The `kraftbox` command.

This module imports only small parts of the standard library. `up` and `server` become a node, which
must not load the terminal libraries of the other commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

NODE_COMMANDS = ("up", "server")
OWN_PROCESSES = ("_fork-server", "_node", "_router", "_testbed", "_testing")
"""Commands that other kraftbox processes start, not users."""
KAFKA_TOOL_PREFIX = "kafka-"
NO_WINDOWS = (
    "kraftbox: Windows is not supported, because nodes are forked and use Unix "
    "sockets; use WSL 2 or the container image\n"
)


def use_own_packages() -> None:
    """Put kraftbox's packages first on `sys.path`, before a user's package of the same name.

    In the wheel they are below `kraftbox/_root`; in a working copy they are next to this package.
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
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage.

    `arguments` None means the process's own command line.
    """
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
        # Threads of the object store may call into Python while the interpreter shuts down. That
        # aborts the process and loses its exit code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def run(given: list[str]) -> int:
    """Run the command that the first word of `given` names."""
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
