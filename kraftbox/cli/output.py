"""Output of commands: tables for people, JSON for programs, errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DONE = 0
FAILED = 1
"""The third exit code, 2 for wrong usage, is given by the parser of options."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class CommandFailed(Exception):
    """Ends the command with exit code 1 and the message on stderr."""


def command_group(help_text: str) -> typer.Typer:
    """A group of commands, told and parsed as all are."""
    return typer.Typer(
        help=help_text, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


def say(text: str) -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(json.dumps(value, separators=(",", ":"), default=str) + "\n")


def say_error(text: str) -> None:
    """A line on standard error for each of the text."""
    sys.stderr.write("".join(f"kraftbox: {line}\n" for line in text.splitlines() or [""]))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; drawn by rich on a terminal, plain on a pipe."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        drawn = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            drawn.add_column(column, overflow="fold")
        for row in cells:
            drawn.add_row(*row)
        Console().print(drawn, markup=False)
        return
    widths = [max(len(row[at]) for row in [list(columns), *cells]) for at in range(len(columns))]
    for row in [list(columns), *cells]:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


class Ticker:
    """Counts work on a terminal's stderr; silent on a pipe."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def advance(self, by: int = 1) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, by)


@contextmanager
def progress(what: str, total: int | None = None) -> Any:
    """Show progress on stderr while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield Ticker(None, None)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        yield Ticker(shown, shown.add_task(what, total=total))
