"""Permitted skips: those that docs/gaps.md lists, and on CI only those it allows there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.skips import GAPS, Allowed, allowed_skips, complaint

ROOT = GAPS.parents[1]
TOOL = "Prometheus is not installed (docs/gaps.md)"
NO_TOOL = "Apache Kafka fails inside and never answers"


def test_the_table_is_read() -> None:
    rows = allowed_skips(GAPS.read_text())
    assert Allowed("needs go", on_ci=False) in rows
    assert Allowed(NO_TOOL, on_ci=True) in rows


def test_invalid_row_of_skip_table_is_refused() -> None:
    table = "\n## Skipped tests\n\n|a|b|c|\n|---|---|---|\n| `one` | tests | perhaps |\n\n## Next\n"
    with pytest.raises(ValueError, match="'fails' or 'skipped'"):
        allowed_skips(table)
    assert allowed_skips(table.replace("perhaps", "fails")) == [Allowed("one", on_ci=False)]


@pytest.mark.parametrize(
    ("reason", "on_ci", "said"),
    [
        ("Skipped: needs go (docs/gaps.md)", False, None),
        (
            "Skipped: needs go (docs/gaps.md)",
            True,
            "CI must run this test: needs go (docs/gaps.md)",
        ),
        (f"Skipped: {NO_TOOL}", True, None),
        (
            "Skipped: not today (docs/gaps.md)",
            False,
            "docs/gaps.md does not list this skipped test: not today (docs/gaps.md)",
        ),
    ],
)
def test_a_reason(reason: str, on_ci: bool, said: str | None) -> None:
    rows = allowed_skips(GAPS.read_text())
    assert complaint(reason, rows, on_ci=on_ci) == said


SKIPS = """
import pytest

def test_one():
    pytest.skip({reason!r})

@pytest.mark.skipif(True, reason={reason!r})
def test_two():
    pass

@pytest.mark.xfail(reason="is said to be broken")
def test_three():
    assert False

def test_four():
    pytest.importorskip("no_such_module", reason={reason!r})
"""
WHOLE_MODULE = "import pytest\npytest.skip({reason!r}, allow_module_level=True)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ci", "reason", "counted"),
    [
        ("", TOOL, "3 skipped, 1 xfailed"),
        ("true", TOOL, "2 failed, 1 xfailed, 2 errors"),
        ("true", NO_TOOL, "3 skipped, 1 xfailed"),
        ("", "I do not like it", "2 failed, 1 xfailed, 2 errors"),
    ],
)
def test_a_run(tmp_path: Path, ci: str, reason: str, counted: str) -> None:
    """Calls, marks, missing modules and whole modules count; an expected failure is not a skip."""
    (tmp_path / "test_tests.py").write_text(SKIPS.format(reason=reason))
    if "error" in counted:
        (tmp_path / "test_whole.py").write_text(WHOLE_MODULE.format(reason=reason))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", str(tmp_path)]
        + ["-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", os.devnull],
        env={**os.environ, "CI": ci},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1].startswith(counted), done.stdout
    assert done.returncode == (" failed" in counted)
