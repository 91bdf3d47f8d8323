"""kafka-storage.sh: run `kraftbox storage`, which has the same options."""

from __future__ import annotations

from collections.abc import Sequence


def main(name: str, arguments: Sequence[str]) -> int:
    from kraftbox.cli.main import main as cli

    return 1 if cli(["storage", *arguments]) else 0
