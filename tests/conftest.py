"""Hooks and settings for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import settings

from testkit.skips import GAPS, Allowed, allowed_skips, complaint

# The time of one example depends on the load of the machine, not on the code.
settings.register_profile("kraftbox", deadline=None)
settings.load_profile("kraftbox")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@cache
def allowed() -> list[Allowed]:
    return allowed_skips(GAPS.read_text(encoding="utf-8"))


def pytest_configure() -> None:
    """Let SIGTERM end the run as Ctrl-C does: fixtures stop the nodes that they have started."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_register(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's running clusters out of error messages (`kraftbox/launcher/registry.py`)."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("runtime")
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", help="run only the K-th of N parts of the tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select every N-th test, in whatever order they run."""
    shard = config.getoption("--shard")
    if shard is None:
        return
    part, parts = map(int, shard.split("/"))
    mine = set(sorted(item.nodeid for item in items)[part - 1 :: parts])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
    items[:] = [item for item in items if item.nodeid in mine]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return judged((yield))


def judged(report: Report) -> Report:
    """Return the report, failed if the test was skipped for a reason that docs/gaps.md does not
    list.

    On CI, where every tool must be there, a test skipped for want of a tool fails, too.
    """
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        place = report.longrepr
        reason = str(place[-1] if isinstance(place, tuple) else place)
        wrong = complaint(reason, allowed(), on_ci=os.environ.get("CI") == "true")
        if wrong is not None:
            report.outcome = "failed"
            report.longrepr = wrong
    return report
