"""The page of aims at the end of `make bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.aims import AIMS, KAFKA, Aim, judged, lines_of, main, of_moves, of_start, page, to_kafka

DOCS = Path(__file__).parents[2] / "docs" / "benchmarks.md"
ROW = "1 producer, acks=all, 1 KB: MB/s"


def test_the_median_of_the_rounds_is_held_against_the_aim() -> None:
    found = {ROW: {"kraftbox": [100, 130, 120], "kafka": [100, 100, 100]}}
    line = judged(Aim("single_node", ROW, to_kafka(ROW), least=1.2), found)
    assert line.figures == [1.0, 1.3, 1.2]
    assert line.met is True
    assert judged(Aim("single_node", ROW, to_kafka(ROW), least=1.21), found).met is False
    assert judged(Aim("single_node", ROW, to_kafka(ROW), most=1.2), found).met is True
    assert judged(Aim("single_node", ROW, to_kafka(ROW), most=1.19), found).met is False


def test_unmeasured_aim_is_neither_met_nor_missed() -> None:
    aim = Aim("single_node", ROW, to_kafka(ROW), least=1.2)
    assert judged(aim, None).word == judged(aim, {}).word == "not measured"
    lines = lines_of({})
    assert {one.met for one in lines} == {None}
    assert page(lines).endswith(f"0 aims are met, 0 are missed, {len(AIMS)} were not measured.")


def test_moves_are_compared_round_by_round() -> None:
    found = [
        {"case": "moves", "name": "Kraftbox", "p999_ms": 20.0},
        {"case": "moves", "name": KAFKA, "p999_ms": 40.0},
        {"case": "moves", "name": "Kraftbox", "p999_ms": 30.0},
        {"case": "moves", "name": KAFKA, "p999_ms": 120.0},
        {"case": "killed", "name": "Kraftbox", "p999_ms": 900.0},
    ]
    assert of_moves("p999_ms")(found) == [20.0, 30.0]
    assert of_moves("p999_ms", KAFKA)(found) == [0.5, 0.25]


def test_nodes_of_a_cluster_are_added_up() -> None:
    found = {"kraftbox": {"ready_s": [0.5, 0.6], "pss_mb": {"1": 20.0, "2": 22.5}}}
    assert of_start("ready_s")(found) == [0.5, 0.6]
    assert of_start("pss_mb")(found) == [42.5]


def test_every_compared_aim_row_exists_in_its_benchmark() -> None:
    """A row with another name than its benchmark's would never be measured."""
    text = DOCS.read_text(encoding="utf-8")
    named = [one.name for one in AIMS if one.benchmark in ("single_node", "replicated")]
    assert len(named) == 12 + 5 + 2 + 2 + 8
    assert [name for name in named if f"| {name} |" not in text] == []


def test_the_page_is_made_of_what_the_benchmarks_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "single_node.json").write_text(
        json.dumps({ROW: {"kraftbox": [130, 110], "kafka": [100, 100]}})
    )
    row = {"name": "copy", "value": 0.7, "aim": "at least 0.80", "met": False, "kafka": None}
    (tmp_path / "tier.json").write_text(json.dumps([row, {**row, "name": "no aim", "aim": ""}]))
    main([str(tmp_path)])
    told = capsys.readouterr().out
    assert f"| single_node | {ROW} | at least 1.20 | 1.20 | 1.10-1.30 | met |" in told
    assert "| tier | copy | at least 0.80 | 0.70 | 0.70-0.70 | missed |" in told
    assert "no aim" not in told
    assert "1 aims are met, 1 are missed" in told


def test_a_folder_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "none")])
    assert ended.value.code == 2
    assert "none" in capsys.readouterr().err
