"""Output of commands: tables for users, JSON for programs, errors on stderr.

Most output contains text from elsewhere (names, errors of brokers, settings). Therefore everything
but JSON is escaped here, and no caller has to know which part is untrusted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.printable import escape, escape_bytes, escape_lines

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DONE = 0
FAILED = 1
"""The option parser returns the third exit code, 2 for wrong usage."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class CommandFailed(Exception):
    """Ends the command with exit code 1 and prints its arguments on stderr, one per line."""

    def __str__(self) -> str:
        return "\n".join(escape(str(line)) for line in self.args)


def command_group(help_text: str) -> typer.Typer:
    """Create a command group with the settings that all groups share."""
    return typer.Typer(
        help=help_text, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


def say(text: str) -> None:
    """Print one line on standard output."""
    sys.stdout.write(escape(text) + "\n")


def say_cells(*cells: str) -> None:
    """Print one line of cells with tabs between them."""
    sys.stdout.write("\t".join(map(escape, cells)) + "\n")


def say_lines(text: str) -> None:
    """Print text that kraftbox generated on standard output; line ends and tabs stay."""
    sys.stdout.write(escape_lines(text) + "\n")


def shown_bytes(data: bytes) -> bytes:
    """Return lines of data for standard output: exact for a pipe, escaped for a terminal."""
    return escape_bytes(data) if sys.stdout.isatty() else data


def say_json(value: Any) -> None:
    """Print a JSON document on one line."""
    sys.stdout.write(json.dumps(value, separators=(",", ":"), default=str) + "\n")


def say_error(*lines: str) -> None:
    """Print lines on standard error."""
    sys.stderr.write("".join(f"kraftbox: {escape(line)}\n" for line in lines))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns.

    No cell is folded: a line that is longer than the terminal goes on in the next one, so that it
    can be copied and searched as a whole.
    """
    cells = [["-" if cell is None else escape(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [list(columns), *cells]) for at in range(len(columns))]
    for row in [list(columns), *cells]:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 partition`, `2 partitions`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Ticker:
    """Progress counter on a terminal's stderr; silent on a pipe."""

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
