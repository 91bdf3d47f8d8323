"""Shell: Command lines of kraftbox processes, isolated from the user's Python environment."""

from __future__ import annotations

import sys
from pathlib import Path


def own_command(*arguments: str) -> list[str]:
    """Return a command line that runs this installation in a fresh interpreter.

    `-P -E`: neither the current directory nor PYTHON* variables may decide which package `storage`
    is. It is not `-I`, which would also hide packages in the user's site directory.
    """
    main = Path(__file__).resolve().parents[1] / "__main__.py"
    return [sys.executable, "-P", "-E", str(main), *arguments]
