"""The report of the benchmark of tiered storage."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bench import tier_metadata
from bench.tier import Memory, Run, table


def test_an_aim_is_met_up_to_itself() -> None:
    run = Run(Path("unused"), Namespace(quick=True, cases="copy"))
    run.note("copy", 0.8, least=0.8)
    run.note("copy", 0.79, least=0.8)
    run.note("late", 20, most=20)
    run.note("late", 20.1, most=20)
    run.note("plain", 1_234, kafka=5)
    assert [one.met for one in run.rows] == [True, False, True, False, None]
    assert table(run.rows).splitlines()[2:] == [
        "| copy | 0.80 | at least 0.80 | met |  |",
        "| copy | 0.79 | at least 0.80 | missed |  |",
        "| late | 20.00 | at most 20.00 | met |  |",
        "| late | 20.10 | at most 20.00 | missed |  |",
        "| plain | 1,234 |  |  | 5.00 |",
    ]


def test_memory_growth_compares_end_with_middle() -> None:
    memory = Memory(0)
    memory._seen = [10, 50, 100, 100, 100, 99]
    assert (memory.first_mb, memory.most_mb, memory.growth) == (10, 100, 1.0)
    memory._seen = [10, 20, 30, 40, 50, 60]
    assert memory.growth == 1.5


def test_tier_metadata_replays_written_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_metadata, "SEGMENTS", 1_000)
    path = tmp_path / "metadata"
    tier_metadata.write(path)
    assert tier_metadata.replay(path)["s"] > 0
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(SystemExit):
        tier_metadata.replay(path)
