"""Allowed skips of tests: docs/gaps.md lists the reasons, under "Skipped tests"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MAY_BE_MISSING = "docs/gaps.md"
"""The page that lists allowed reasons; a skip's message may name it."""
GAPS = Path(__file__).resolve().parents[1] / MAY_BE_MISSING
HEADING = "## Skipped tests"
SKIPPED = "skipped"


class Allowed(NamedTuple):
    """A reason as docs/gaps.md lists it, by its beginning; `on_ci`: the skip is allowed
    there, too."""

    reason: str
    on_ci: bool


def allowed_skips(gaps: str) -> list[Allowed]:
    """Return the rows of the table: reasons between backticks, the tests, and `fails` or `skipped`,
    the effect with CI=true.

    Raises: ValueError for any other row.
    """
    section = gaps.partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    found = []
    for line in table[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        reasons = re.findall(r"`([^`]+)`", cells[0])
        if len(cells) != 3 or not reasons or cells[2] not in (SKIPPED, "fails"):
            raise ValueError(
                f"{line!r}: expected reasons in backticks, tests, and 'fails' or 'skipped'"
            )
        found += [Allowed(reason, cells[2] == SKIPPED) for reason in reasons]
    return found


def complaint(reason: str, allowed: Sequence[Allowed], *, on_ci: bool) -> str | None:
    """Return why a test may not be skipped for this reason; None if it may."""
    stated = reason.removeprefix("Skipped: ")
    row = next((row for row in allowed if stated.startswith(row.reason)), None)
    if row is None:
        return f"docs/gaps.md does not list this skipped test: {stated}"
    if on_ci and not row.on_ci:
        return f"CI must run this test: {stated}"
    return None
