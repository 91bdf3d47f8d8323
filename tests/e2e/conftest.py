"""Shared fixtures of these tests."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.commands import REPOSITORY, run

THEIR_PACKAGES = ("storage", "protocol")


class Installed(NamedTuple):
    """An environment with our wheel: its interpreter, and the packages that the wheel alone
    added."""

    python: Path
    added: frozenset[str]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build and install the wheel once, next to packages with names of ours."""
    place = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", place, REPOSITORY)
    venv.create(place / "venv", with_pip=True)
    python = place / "venv" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for name in THEIR_PACKAGES:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("OWNER = 'theirs'\n")
    before = {entry.name for entry in site.iterdir()}
    wheel = next(place.glob("*.whl"))
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
    added = {entry.name for entry in site.iterdir()} - before
    run(python, "-m", "pip", "install", "-q", wheel)
    return Installed(python, frozenset(added))
