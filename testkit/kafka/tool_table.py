"""The tables of docs/tools.md, which tests generate and compare with their results.

A table stands between two comment lines with its name. With `KRAFTBOX_WRITE_TABLES=1` the results
replace the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from testkit.kafka.tools import PATIENCE_MS, KafkaTools, ToolRun

DOCUMENT = Path(__file__).parents[2] / "docs/tools.md"
REWRITE = "KRAFTBOX_WRITE_TABLES"

Row = tuple[str, ...]


def rows(table: str) -> list[Row]:
    """Return the rows of a table in the document, cells stripped, without its heading."""
    inside = _parts(table)[1].splitlines()
    cells = [line.strip().strip("|").split(" | ") for line in inside if line.startswith("|")]
    return [tuple(cell.strip() for cell in row) for row in cells[2:]]


def check_row(table: str, row: Row) -> None:
    """Compare one row, identified by its first cell, or write it."""
    there = rows(table)
    if row in there:
        return
    wanted = sorted([row, *(other for other in there if other[0] != row[0])])
    _check(table, there, wanted)


def check_rows(table: str, found: Iterable[Row]) -> None:
    """Compare a whole table, or write it."""
    _check(table, rows(table), sorted(found))


def _check(table: str, there: Sequence[Row], wanted: Sequence[Row]) -> None:
    if os.environ.get(REWRITE) == "1":
        before, old, after = _parts(table)
        heading = [line for line in old.splitlines() if line.startswith("|")][:2]
        lines = [*heading, *("| " + " | ".join(row) + " |" for row in wanted)]
        DOCUMENT.write_text(before + "\n" + "\n".join(lines) + "\n" + after)
        return
    new = [row for row in wanted if row not in there]
    gone = [row for row in there if row not in wanted]
    assert (new, gone) == ([], []), (
        f"docs/tools.md differs from the result; {REWRITE}=1 writes it. Found: {new}. "
        f"Not found: {gone}."
    )


def _parts(table: str) -> tuple[str, str, str]:
    text = DOCUMENT.read_text()
    begin, end = f"<!-- {table}: begin -->", f"<!-- {table}: end -->"
    before, _, rest = text.partition(begin)
    inside, found, after = rest.partition(end)
    assert found, f"docs/tools.md has no table {table}"
    return before + begin, inside, end + after


class Trial:
    """Runs of one tool, with the results that become its row of the table."""

    def __init__(self, tools: KafkaTools, name: str, script: str | None) -> None:
        self.tools = tools
        self.name = name
        self.script = script
        self._works: list[str] = []
        self._refused: list[tuple[str, str]] = []

    def run(self, *arguments: str, stdin: str = "", patience_ms: int = PATIENCE_MS) -> ToolRun:
        """Run the tool without an entry in the table."""
        return self.tools.run(self.name, *arguments, stdin=stdin, patience_ms=patience_ms)

    def works(
        self, what: str, *arguments: str, stdin: str = "", patience_ms: int = PATIENCE_MS
    ) -> str:
        """Run the tool and require success without an exception. Returns: its output, for further
        checks."""
        done = self.run(*arguments, stdin=stdin, patience_ms=patience_ms)
        return self.worked(what, done)

    def worked(self, what: str, done: ToolRun) -> str:
        """Require success of a run that the caller has made, and enter it."""
        assert done.code == 0, done.text
        assert "Exception" not in done.text, done.text
        if what not in self._works:
            self._works.append(what)
        return done.out

    def refuses(
        self, what: str, *arguments: str, saying: str, patience_ms: int = PATIENCE_MS
    ) -> None:
        """Run the tool and require that it ends in time with this text."""
        self.refused(what, self.run(*arguments, patience_ms=patience_ms), saying)

    def refused(self, what: str, done: ToolRun, saying: str) -> None:
        """Require a refusal with this text of a run that the caller has made, and enter it."""
        assert done.code != -1, f"did not end: {done.text}"
        assert saying in done.text, done.text
        self._refused.append((what, saying))

    def row(self) -> Row:
        """Return the row: class, script, verdict, what works, what is refused and how."""
        assert self._works or self._refused
        verdict = "in part" if self._refused else "works"
        if not self._works:
            verdict = "unsupported"
        refused = "; ".join(f"{what}: “{saying}”" for what, saying in self._refused)
        return (
            f"`{self.name}`",
            f"`{self.script}`" if self.script else "–",
            verdict,
            "; ".join(self._works) or "–",
            refused or "–",
        )
