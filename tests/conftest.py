"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

# How long one example takes says how busy the machine is, and nothing about the code.
settings.register_profile("kraftbox", deadline=None)
settings.load_profile("kraftbox")

MAY_BE_MISSING = "docs/gaps.md"
"""A test that is skipped because a tool is missing says where that is listed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", help="run only the K-th of N parts of the tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every N-th test, whatever order they are run in."""
    shard = config.getoption("--shard")
    if shard is None:
        return
    part, parts = map(int, shard.split("/"))
    mine = set(sorted(item.nodeid for item in items)[part - 1 :: parts])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
    items[:] = [item for item in items if item.nodeid in mine]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On CI every tool must be there: what would be skipped for want of one fails."""
    report = yield
    reason: Any = report.longrepr
    if report.skipped and os.environ.get("CI") == "true" and MAY_BE_MISSING in str(reason):
        report.outcome = "failed"
        report.longrepr = f"CI must run this: {reason[-1] if isinstance(reason, tuple) else reason}"
    return report
