"""Formatting of figures, and their output to files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any


def shown(value: float) -> str:
    """Return a figure with at least three significant digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def put_between(path: Path, name: str, text: str) -> None:
    """Replace the text between the marks of this name in a Markdown file.

    A file without such marks gets them at its end; a missing file is created.
    """
    begin_mark, end_mark = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, begin, rest = page.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        before, after = page, "\n"
    path.write_text(f"{before}{begin_mark}\n{text}\n{end_mark}{after}", encoding="utf-8")


def names_among(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser of an option `A,B,...`, which raises ArgumentTypeError for unknown names."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown {unknown}; allowed: {', '.join(known)}")
        return names

    return read


def options_of(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Add the common options of benchmarks with rounds, and parse all options."""
    parser.add_argument("--quick", action="store_true", help="run every step once, without figures")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--markdown", type=Path, help="write the table between the marks of this file"
    )
    return parser.parse_args(arguments)


def keep(options: argparse.Namespace, mark: str, text: str, rows: Sequence[Any]) -> None:
    """Write the results to `--markdown` and `--json`; `rows` are named tuples with every figure."""
    if options.json:
        options.json.write_text(json.dumps([one._asdict() for one in rows], indent=1))
    if options.markdown:
        put_between(options.markdown, mark, text)
