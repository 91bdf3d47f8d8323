"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

MAY_BE_MISSING = "docs/gaps.md"
"""A test that is skipped because a tool is missing says where that is listed."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On CI every tool must be there: what would be skipped for want of one fails."""
    report = yield
    reason: Any = report.longrepr
    if report.skipped and os.environ.get("CI") == "true" and MAY_BE_MISSING in str(reason):
        report.outcome = "failed"
        report.longrepr = f"CI must run this: {reason[-1] if isinstance(reason, tuple) else reason}"
    return report
