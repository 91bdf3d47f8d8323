"""What samplers write becomes shares that can be read."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from bench.profiled import Profiles, by_function, by_native, read_stacks, table, watched

WORK = "main (kraftbox/server.py:10);_work (protocol/transport/connection.py:340)"
STACKS = f"""\
{WORK};append (storage/files/real.py:99);pwrite64 (libc.so.6) 30
{WORK};append (storage/files/real.py:98);pwrite64 (libc.so.6) 10
{WORK} 40
epoll_wait (libc.so.6) 20
"""


class Rival:
    name = "kafka"

    def broker_pids(self) -> list[int]:
        raise AssertionError("nobody samples a rival")


def test_samples_count_for_the_innermost_function_of_python() -> None:
    assert by_function(read_stacks(STACKS)) == {
        "storage/files/real.py:append": 40,
        "protocol/transport/connection.py:_work": 40,
        "outside of Python": 20,
    }


def test_samples_count_for_the_innermost_function_in_c() -> None:
    assert by_native(read_stacks(STACKS)) == {
        "pwrite64": 40,
        "the interpreter": 40,
        "epoll_wait": 20,
    }


def test_a_table_begins_with_the_largest_share() -> None:
    lines = table("C function", Counter({"epoll_wait": 1, "pwrite64": 3})).splitlines()
    assert lines[0] == "| C function | % |"
    assert lines[2:] == ["| `pwrite64` | 75.0 |", "| `epoll_wait` | 25.0 |"]


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
