"""Shares of the file descriptors, in a process of its own whose limit may be changed."""

from __future__ import annotations

import resource
import subprocess
import sys

from runtime import descriptors


def test_shares_fit_into_the_limit() -> None:
    files = descriptors.files_share()
    assert 0 < files <= descriptors.FILES_MAX
    room = descriptors.connections_share(files)
    assert room > 0
    assert files + room + descriptors.RESERVE_MIN <= descriptors.limit()
    assert descriptors.connections_share(10**9) == 1


def test_the_limit_is_raised_as_far_as_allowed() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = (
        "import resource\n"
        "from runtime import descriptors\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))\n"
        "assert descriptors.files_share() == 128\n"
        "assert descriptors.connections_share(128) == 64\n"
        "descriptors.raise_limit()\n"
        "print(descriptors.limit())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) == min(hard, descriptors.RAISED_MAX)
