"""The ledger of runs, whose entries count and are not played again."""

from __future__ import annotations

import json
import threading
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simulation import command, ledger
from simulation.command import Options
from simulation.ledger import Ledger, code_id
from simulation.shapes.shape import BadShape

pytestmark = pytest.mark.sim

OUTCOME: dict[str, Any] = {
    "broken": None,
    "virtual_s": 1800.0,
    "drawn": {"kill": 2},
    "took_effect": {"kill": 1},
    "marks": {},
    "shape": {"controllers": "1", "brokers": "1", "layout": "combined"},
}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the seeds that are played; seed 4 breaks a promise."""
    found: list[int] = []

    def task(asked: tuple[int, Any, Any, bool]) -> tuple[dict[str, Any], list[str]]:
        seed = asked[0]
        found.append(seed)
        broken = {"code": "P1"} if seed == 4 else None
        return {**OUTCOME, "seed": seed, "broken": broken}, ["words"] if broken else []

    monkeypatch.setattr(command, "_task", task)
    return found


def test_recorded_run_is_not_repeated_and_counts(
    played: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "seeds.jsonl"
    assert command.main(Options(seed=1, runs=2, ledger=path)) == command.HELD
    capsys.readouterr()
    assert command.main(Options(seed=1, runs=4, ledger=path)) == command.BROKEN
    assert played == [1, 2, 3, 4]
    told = capsys.readouterr().out
    assert "seed 4\nwords" in told
    *_, effects, broken, pace, kept, held = told.splitlines()
    assert effects == "  kill: 4 of 8 took effect"
    assert broken == "broken: 4"
    assert pace.startswith("1.00 virtual hours in ")
    assert kept == "2 of the runs were played earlier, 2.00 virtual hours with them"
    assert held == "3 of 4 seeds held"
    # A broken promise stays broken as long as the code is the same.
    assert command.main(Options(seed=1, runs=1, ledger=path)) == command.BROKEN
    assert played == [1, 2, 3, 4]


@pytest.mark.parametrize("has_ledger", [False, True])
def test_slow_seed_delays_the_others_only_if_reports_are_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_ledger: bool
) -> None:
    others_are_over = threading.Event()
    ended: list[int] = []

    def task(asked: tuple[int, Any, Any, bool]) -> tuple[dict[str, Any], list[str]]:
        seed = asked[0]
        if seed == 1:
            assert others_are_over.wait(30)
        ended.append(seed)
        if len(ended) == (9 if has_ledger else 3):
            others_are_over.set()
        return {**OUTCOME, "seed": seed}, []

    monkeypatch.setattr(command, "_task", task)
    threads = SimpleNamespace(Pool=lambda jobs, _begin: ThreadPool(jobs))
    monkeypatch.setattr(command, "get_context", lambda _way: threads)
    path = tmp_path / "seeds.jsonl" if has_ledger else None
    assert command.main(Options(seed=1, runs=10, jobs=2, ledger=path)) == command.HELD
    assert sorted(ended) == [*range(1, 11)]
    if path is not None:
        lines = path.read_text().splitlines()
        written = [json.loads(line)["outcome"]["seed"] for line in lines]
        assert written[-1] == 1 and sorted(written) == [*range(1, 11)]


def test_other_faults_and_other_code_are_other_runs(
    played: list[int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "seeds.jsonl"
    for options in (
        Options(seed=1, runs=1, ledger=path),
        Options(seed=1, runs=1, ledger=path, faults="kill"),
        Options(seed=1, runs=1, ledger=path, tiered=True),
    ):
        assert command.main(options) == command.HELD
    assert played == [1, 1, 1]
    monkeypatch.setattr(command, "code_id", lambda: "other")
    assert command.main(Options(seed=1, runs=1, ledger=path)) == command.HELD
    assert played == [1, 1, 1, 1]
    told = capsys.readouterr().out
    assert told.endswith("3 runs of other code count for nothing\n1 of 1 seeds held\n")


def test_a_line_that_was_cut_off_is_taken_away(tmp_path: Path) -> None:
    """Its writer was ended in the middle of the line."""
    path = tmp_path / "seeds.jsonl"
    Ledger(path, "a").add("--seed 1", {"seed": 1})
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    again = Ledger(path, "a")
    assert list(again.runs) == ["--seed 1"]
    again.add("--seed 2", {"seed": 2})
    assert list(Ledger(path, "a").runs) == ["--seed 1", "--seed 2"]


@pytest.mark.parametrize("line", ["", "x", "[]", "3", '{"code":"a","replay":"b"}', '{"code":"a"}'])
def test_invalid_line_of_the_ledger_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "seeds.jsonl"
    Ledger(path, "a").add("--seed 1", {"seed": 1})
    path.write_text(f"{path.read_text()}{line}\n")
    before = path.read_bytes()
    with pytest.raises(BadShape, match="line 2 is not a run"):
        Ledger(path, "a")
    assert path.read_bytes() == before


def test_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, words in (
        (Options(seed=1, ledger=tmp_path / "x"), "--ledger records many runs"),
        (Options(seed=1, runs=1, ledger=tmp_path), "Is a directory"),
        (Options(seed=1, runs=1, ledger=tmp_path / "no" / "x"), "No such file"),
    ):
        assert command.main(options) == command.MISUSE
        assert words in capsys.readouterr().err


def test_a_run_that_cannot_be_written_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "seeds.jsonl"

    def task(asked: tuple[int, Any, Any, bool]) -> tuple[dict[str, Any], list[str]]:
        path.unlink()
        path.mkdir()
        return {**OUTCOME, "seed": asked[0]}, []

    monkeypatch.setattr(command, "_task", task)
    assert command.main(Options(seed=1, runs=3, ledger=path)) == command.MISUSE
    assert f"--ledger {path}: Is a directory" in capsys.readouterr().err


def test_the_code_is_known_by_every_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_id() == code_id.__wrapped__()
    (tmp_path / "below").mkdir()
    module = tmp_path / "below" / "module.py"
    module.write_text("a = 1\n")
    monkeypatch.setattr(ledger, "_folders", lambda name: [tmp_path])
    before = code_id.__wrapped__()
    module.write_text("a = 2\n")
    changed = code_id.__wrapped__()
    module.rename(tmp_path / "module.py")
    assert len({code_id(), before, changed, code_id.__wrapped__()}) == 4


def test_a_run_survives_the_file(tmp_path: Path) -> None:
    path = tmp_path / "seeds.jsonl"
    outcome = {"seed": 3, "broken": {"words": 'a "quoted"\nline'}}
    Ledger(path, "a").add("--seed 3 --faults 'power cut'", outcome)
    assert Ledger(path, "a").runs == {"--seed 3 --faults 'power cut'": outcome}
    assert len(path.read_text().splitlines()) == 1
    assert json.loads(path.read_text())["code"] == "a"
