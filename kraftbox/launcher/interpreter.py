"""Shell: The command line of our own processes: our packages first, no user environment."""

from __future__ import annotations

import sys
from pathlib import Path


def own_command(*arguments: str) -> list[str]:
    """A command line of this installation in a fresh interpreter.

    `-P -E`: neither the current directory nor PYTHON* variables may decide what `storage` is;
    not `-I`, which would also hide packages that a user installed for themselves.
    """
    main = Path(__file__).resolve().parents[1] / "__main__.py"
    return [sys.executable, "-P", "-E", str(main), *arguments]
