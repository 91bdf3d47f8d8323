"""The runner of the test groups: no test is left out, and none passes without having run."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from scripts import run_tests
from scripts.run_tests import Job, Result

MARK = "pytest.mark"
"""Separated from the next text: the runner reads a group's marks from the files."""
MARKS = ("core", "rest", "slow", "soak")


def selects(expression: str | None, marks: tuple[str, ...]) -> bool:
    """Return whether the expression selects a test with these marks."""
    if expression is None:
        return False
    return Expression.compile(expression).evaluate(lambda name, **_: name in marks)


@pytest.mark.parametrize("group", run_tests.all_groups())
def test_core_and_rest_are_all_but_soak_and_nothing_twice(group: str) -> None:
    core, rest = (run_tests.selection(suite).get(group) for suite in ("core", "rest"))
    used = [m for m in MARKS if group in run_tests.groups_with(m)]
    for count in range(len(used) + 1):
        for marks in itertools.combinations(used, count):
            chosen = selects(core, marks) + selects(rest, marks)
            assert chosen == ("soak" not in marks), (group, marks)


def test_every_group_that_is_named_is_there() -> None:
    there = set(run_tests.all_groups())
    named = {*run_tests.COMPUTING, *run_tests.WAITING, *run_tests.CHOSEN, *run_tests.QUICK}
    assert named == there
    assert set(run_tests.IN_ORDER) <= there


def test_every_soak_test_is_in_soak() -> None:
    assert set(run_tests.selection("soak").values()) == {"soak"}
    assert {"sim", "e2e"} <= run_tests.selection("soak").keys()


def test_a_job_for_each_group_and_part() -> None:
    for suite in run_tests.SUITES:
        selected = run_tests.selection(suite)
        computing, waiting = run_tests.jobs(selected)
        assert {job.group for job in (*computing, *waiting)} == selected.keys()
        for job in computing:
            parts = {j.part for j in computing if j.group == job.group}
            assert parts == set(range(1, job.parts + 1))
        assert not {job.group for job in computing} & {job.group for job in waiting}


def test_group_without_order_is_run() -> None:
    computing, waiting = run_tests.jobs({"unit": "m", "news": "m", "e2e": "m"})
    assert [job.name for job in computing] == ["unit 1/2", "unit 2/2"]
    assert [job.group for job in waiting] == ["news", "e2e"]


def test_a_test_that_hangs_fails_and_an_order_can_be_had_again() -> None:
    seeded, limited = f"--randomly-seed={run_tests.SEED}", f"--timeout={run_tests.TEST_S}"
    assert {seeded, limited} <= set(Job("unit", "not soak").command)
    assert limited in Job("e2e", "not soak").command
    assert seeded not in Job("e2e", "not soak").command
    assert limited not in Job("unit", "soak").command


def heard(*lines: str, code: int = 0, group: str = "unit", marks: str = "m") -> Result:
    result = Result(Job(group, marks), code)
    for line in lines:
        result.hear(f"{line}\n")
    return result


def test_closing_line_sums_results_of_pytest() -> None:
    results = [
        heard("3 passed, 1 skipped, 2 deselected in 1.20s"),
        heard("1 failed, 2 passed, 1 error, 1 xfailed in 61.02s (0:01:01)", code=1),
        heard("no tests ran in 0.01s", code=5),
    ]
    assert run_tests.closing_line(results) == "6 passed, 2 failed, 1 skipped"
    assert [result.failed for result in results] == [False, True, False]


def test_a_part_that_broke_off_is_a_failure() -> None:
    assert run_tests.closing_line([heard("Killed", code=-9)]) == "0 passed, 1 failed, 0 skipped"


def test_a_group_that_selects_nothing_in_any_part_is_a_failure() -> None:
    nothing, something = heard(code=5), heard("1 passed in 0.01s")
    assert run_tests.empty([nothing, something]) == set()
    assert run_tests.empty([nothing, nothing]) == {("unit", "m")}
    other = heard("1 passed in 0.01s", marks="other")
    assert run_tests.empty([nothing, other]) == {("unit", "m")}
    assert run_tests.closing_line([nothing, other]) == "1 passed, 1 failed, 0 skipped"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with tests of its own."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(run_tests, "IN_ORDER", ())
    monkeypatch.setattr(run_tests, "PLUGINS", False)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "COMPUTING", {"unit": 1})
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers\nmarkers =\n    core:\n    rest:\n    soak:\n"
    )
    for group, text in {
        "unit": "import time\n\ndef test_one():\n    time.sleep(1.01)\n",
        "e2e": f"import pytest\n\n@{MARK}.core\ndef test_two():\n    pass\n\n"
        "def test_three():\n    pytest.skip('no')\n",
    }.items():
        (tmp_path / "tests" / group).mkdir(parents=True)
        (tmp_path / "tests" / group / f"test_{group}.py").write_text(text)
    return tmp_path


@pytest.mark.slow
def test_a_whole_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main([]) == 0
    said = capsys.readouterr().out
    assert said.endswith("\n2 passed, 0 failed, 1 skipped\n")
    slowest = said.partition("== the slowest 10\n")[2].partition("== summary")[0]
    assert slowest.split()[2] == "tests/unit/test_unit.py::test_one"
    assert "         SKIPPED [1] tests/e2e/test_e2e.py:8: no" in said


@pytest.mark.slow
def test_a_failure_ends_the_run_before_the_next_suite(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "tests/unit/test_unit.py").write_text(
        "def test_one():\n    assert False, 'why'\n\ndef test_two(missing):\n    pass\n"
    )
    assert run_tests.main([]) == 1
    said = capsys.readouterr().out
    assert "== what failed in unit\n" in said and "AssertionError: why" in said
    assert "== not run, because core failed: rest" in said
    summary = said.partition("== summary\n")[2]
    assert "         FAILED tests/unit/test_unit.py::test_one - AssertionError: why" in summary
    assert "         ERROR tests/unit/test_unit.py::test_two" in summary
    assert said.endswith("\n1 passed, 2 failed, 0 skipped\n")


@pytest.mark.slow
def test_a_run_that_selects_nothing_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "tests/unit/test_unit.py").write_text(
        f"import pytest\n\n@{MARK}.soak\ndef test_one():\n    pass\n"
    )
    assert run_tests.main(["unit"]) == 1
    said = capsys.readouterr().out
    assert "no test of tests/unit is selected by 'not soak'" in said
    assert said.endswith("\n0 passed, 1 failed, 0 skipped\n")
    assert run_tests.main(["--suite", "soak"]) == 0


def test_a_group_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit):
        run_tests.main(["unti"])
