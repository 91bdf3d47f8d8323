"""Histories as schedules of faults and as EDN, and their location after a run."""

from __future__ import annotations

import random
import re
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kraftbox.chaos.checks import BROKEN, Finding
from kraftbox.chaos.edn import edn_lines
from kraftbox.chaos.history import Fault, History, Poll, Send, Topic, load, save
from kraftbox.chaos.history import SendOutcome as Known
from kraftbox.chaos.ledger import Ledger
from kraftbox.chaos.run import Run, RunResult
from kraftbox.chaos.schedule import BadSchedule, Step, replayed, steps
from kraftbox.chaos.workload import Load
from kraftbox.cli import chaos
from kraftbox.cli.main import main
from testkit.memory.chaos_target import Target

KINDS = ["kill-leader", "pause-leader", "restart"]


def test_faults_of_a_history_come_again_with_their_draws() -> None:
    ledger = Ledger(lambda: 5)
    for step in islice(steps(random.Random(7), KINDS), 4):
        ledger.fault(step.kind, [1], 0, "", draw=step.draw, length_s=step.length_s)
    assert replayed(ledger.history, random.Random) == list(
        islice(steps(random.Random(7), KINDS), 4)
    )


def test_of_an_older_history_the_seed_draws_them_again() -> None:
    made = list(islice(steps(random.Random(7), KINDS), 5))
    old = History(about={"seed": 7, "kinds": KINDS}, faults=[Fault(s.kind, [], 0, 1) for s in made])
    assert replayed(old, random.Random) == made


@pytest.mark.parametrize(
    ("about", "faults", "said"),
    [
        ({"seed": 7, "kinds": KINDS}, [], "the schedule has no faults"),
        ({}, ["kill-leader"], "neither the draws of its faults nor a seed"),
        ({"seed": 7, "kinds": KINDS}, ["unheard-of"], "draws other faults"),
    ],
)
def test_history_that_cannot_be_replayed_is_refused_with_reason(
    about: dict[str, Any], faults: list[str], said: str
) -> None:
    history = History(about=about, faults=[Fault(kind, [], 0, 1) for kind in faults])
    with pytest.raises(BadSchedule, match=said):
        replayed(history, random.Random)


def test_a_history_names_seed_and_faults_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "h.kbxh"
    fault = Fault("restart", [1], 0, 1, draw=3, length_ms=2500)
    save(file, History(about={"seed": 9}, faults=[fault]))
    wanted = chaos._wanted(None, None, file, 2.0)
    assert (wanted.written, wanted.kinds) == ([Step("restart", 2.5, 3)], ["restart"])
    assert wanted.first_seed(None) == 9 and wanted.first_seed(4) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--replay", "/nowhere"], "cannot read /nowhere: No such file or directory"),
        (["--replay", "/dev/null"], "/dev/null: not a client history"),
        (["--replay", "f", "--schedule", "g"], "give --schedule or --replay, not both"),
        (["--replay", "f", "--faults", "restart"], "--replay defines the faults"),
        (["--replay", "f", "--until-broken"], "--replay defines the faults"),
        (["--client", "java"], "'java': invalid client; allowed: librdkafka"),
    ],
)
def test_wrong_usage(capsys: Any, arguments: list[str], said: str) -> None:
    assert main(["chaos", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in " ".join(err.replace("│", " ").split())


def test_a_fault_of_another_release_is_named(capsys: Any, tmp_path: Path) -> None:
    save(tmp_path / "h", History(faults=[Fault("melt", [1], 0, 1, draw=1, length_ms=1)]))
    assert main(["chaos", "--replay", str(tmp_path / "h")]) == 2
    assert "invalid kind 'melt'; allowed: kill-leader" in " ".join(capsys.readouterr().err.split())


# --- seed after seed ------------------------------------------------------------------------------


def rounds(ends: dict[int, RunResult], *, until_broken: bool) -> tuple[list[Any], RunResult, int]:
    """Return seed, topic and faults of each run, and the result of `go`; `ends` has the unusual
    runs."""
    seen = []

    class Noted(Run):
        async def go(self, steps: Any, *_: Any) -> RunResult:
            seed = self.ledger.history.about["seed"]
            assert len(seen) < 3, "it goes on beyond what ends it"
            seen.append((seed, self.load.topic, [step.draw for step in islice(steps, 3)]))
            return ends.get(seed, RunResult(History(), [], []))

    faults = chaos._wanted(None, None, None, 1.0)._replace(kinds=KINDS)
    made = chaos._Rounds(Noted, Target(), faults, Load(), start=False, quiet=True)

    async def free(_: Any, base: str) -> str:
        return base

    with mock.patch.object(chaos, "free_topic", free):
        return seen, *made.go(7, until_broken=until_broken)


def test_runs_go_on_with_the_next_seeds_until_a_promise_breaks(capsys: Any) -> None:
    broken = RunResult(History(), [Finding("H3 lost-write", BROKEN, 1, "lost", [])], [])
    seen, outcome, seed = rounds({9: broken}, until_broken=True)
    assert (outcome, seed) == (broken, 9)
    draws = [[step.draw for step in islice(steps(random.Random(n), KINDS), 3)] for n in (7, 8, 9)]
    assert seen == [(n, f"chaos-{n}", drawn) for n, drawn in zip((7, 8, 9), draws, strict=True)]
    out, err = capsys.readouterr()
    assert out == "" and err.count("every promise held; continuing with seed") == 2


def test_a_run_that_was_ended_early_is_the_last() -> None:
    early = RunResult(History(), [], [], ended_early=True)
    seen, outcome, seed = rounds({8: early}, until_broken=True)
    assert (outcome, seed, len(seen)) == (early, 8, 2)


def test_without_the_option_there_is_one_run() -> None:
    seen, _, seed = rounds({}, until_broken=False)
    assert (len(seen), seed) == (1, 7)


# --- where a history is kept ----------------------------------------------------------------------


def test_no_file_appears_unasked(tmp_path: Path, monkeypatch: Any) -> None:
    work, spare = tmp_path / "work", tmp_path / "spare"
    work.mkdir()
    spare.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(chaos.tempfile, "gettempdir", lambda: str(spare))
    held = RunResult(History(), [], [])
    broken = RunResult(History(), [Finding("H3 lost-write", BROKEN, 1, "lost", [])], [])
    assert chaos._kept(held, 7, None, None) is None
    kept = chaos._kept(broken, 7, None, None)
    assert kept is not None and kept.name == "chaos-7.kbxh" and load(kept) == History()
    # A folder with an unpredictable name that other users cannot enter.
    assert kept.parent.parent == spare and kept.parent.name.startswith("kraftbox-chaos-")
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert chaos._kept(broken, 7, None, None) != kept
    assert chaos._kept(held, 7, work / "asked", None) == work / "asked"
    # The audit reads it, and has a folder of its own.
    assert chaos._kept(held, 7, None, tmp_path / "report") == tmp_path / "report/chaos-7.kbxh"
    assert [path.name for path in work.iterdir()] == ["asked"]


# --- Elle -----------------------------------------------------------------------------------------

LINE = re.compile(
    r"\{:index (\d+), :type (:\w+), :f :txn, :value \[(.*)\], :process (\d+), :time (\d+)\}"
)


def operations(history: History) -> list[tuple[str, str, int, int]]:
    """Return type, value, process and time in us of each line, whose indexes count from 0."""
    found = []
    for number, line in enumerate(edn_lines(history)):
        match = LINE.fullmatch(line)
        assert match is not None and int(match[1]) == number, line
        found.append((match[2], match[3], int(match[4]), int(match[5]) // 1000))
    return found


def send(value: int, begin: int, end: int, outcome: Known = Known.OK, process: int = 1) -> Send:
    return Send(process, 0, 0, value, begin, end, outcome, 0, 0)


TOPICS = [Topic("t", bytes(16), 1, 3, 2)]


def test_sends_are_appends_and_the_final_read_is_the_list() -> None:
    history = History(topics=TOPICS, sends=[send(10, 100, 200), send(11, 300, 400)])
    history.polls = [
        Poll(2, 0, 0, 350, 360, [0], [10]),
        Poll(3, 0, 0, 520, 530, [1, 2], [11, -1], final=True),
        Poll(3, 0, 0, 500, 510, [0], [10], final=True),
        Poll(3, 0, 0, 540, 550, [1], [11], final=True),
    ]
    assert operations(history) == [
        (":invoke", '[:append "t-0" 10]', 0, 0),
        (":ok", '[:append "t-0" 10]', 0, 100),
        (":invoke", '[:append "t-0" 11]', 0, 200),
        (":ok", '[:append "t-0" 11]', 0, 300),
        (":invoke", '[:r "t-0" nil]', 1, 400),
        (":ok", '[:r "t-0" [10 11]]', 1, 450),
    ]


def test_a_process_does_one_thing_at_a_time_and_none_after_an_unknown_end() -> None:
    sends = [
        send(1, 0, 50),
        send(2, 10, 20, Known.UNKNOWN),
        send(3, 30, 40, Known.FAILED),
        send(4, 60, 70),
        send(5, 60, 70, process=2),
    ]
    busy: set[int] = set()
    gone: set[int] = set()
    for kind, _, process, _ in operations(History(topics=TOPICS, sends=sends)):
        assert process not in gone
        if kind == ":invoke":
            assert process not in busy
            busy.add(process)
        else:
            busy.remove(process)
            if kind == ":info":
                gone.add(process)
    assert gone and not busy


def test_an_operation_without_length_ends_after_its_begin() -> None:
    found = operations(History(topics=TOPICS, sends=[send(1, 5, 5), send(2, 5, 5), send(3, 9, 2)]))
    for value in (1, 2, 3):
        kinds = [kind for kind, text, *_ in found if text.endswith(f" {value}]")]
        assert kinds == [":invoke", ":ok"]


def test_nothing_is_an_empty_file() -> None:
    assert list(edn_lines(History())) == []
