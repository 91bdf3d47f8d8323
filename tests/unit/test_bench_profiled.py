"""Readable shares, computed from the output of samplers."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from bench.profiled import Profiles, by_function, read_stacks, table, watched

RUN = "run (asyncio/runners.py:190);Runner.run (asyncio/runners.py:118)"
WORK = f"{RUN};_work (protocol/transport/connection.py:340)"
STACKS = f"""\
{WORK};append (storage/files/real.py:99) 30
{WORK};append (storage/files/real.py:98) 10
{WORK} 40
{RUN} 15
_bootstrap (threading.py:1);_worker (concurrent/futures/thread.py:81) 70
epoll_wait (libc.so.6) 5
"""


class Rival:
    name = "kafka"

    def broker_pids(self) -> list[int]:
        raise AssertionError("nobody samples a rival")


def test_samples_count_for_the_innermost_function_and_idle_workers_for_nothing() -> None:
    assert by_function(read_stacks(STACKS)) == {
        "storage/files/real.py:append": 40,
        "protocol/transport/connection.py:_work": 40,
        "the event loop itself": 15,
        "outside of Python": 5,
    }


def test_a_table_begins_with_the_largest_share() -> None:
    lines = table(Counter({"a.py:idle": 1, "b.py:work": 3})).splitlines()
    assert lines[0] == "| function | % |"
    assert lines[2:] == ["| `b.py:work` | 75.0 |", "| `a.py:idle` | 25.0 |"]


def test_only_our_own_processes_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    profiles = Profiles(tmp_path)
    with watched(profiles, "a row", Rival()):
        pass
    assert profiles.report() == ""


def test_without_the_sampler_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="pip install py-spy"):
        Profiles(tmp_path)
