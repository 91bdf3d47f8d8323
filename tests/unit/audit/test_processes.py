"""An audit by several processes: the same document, and errors that reach the caller."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from audit import job
from audit.planning import intervals
from audit.reading.inputs import read_inputs
from audit.reading.logs import UnreadableInput
from audit.report.json_text import as_json
from audit.tasks import processes
from audit.tasks.work import WorkOptions
from bench.audit_log import Size, write_log
from testkit.records.metadata_logs import LogBuilder

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three segments with a snapshot before each but the first."""
    folder = tmp_path_factory.mktemp("log") / "__cluster_metadata-0"
    write_log(folder, Size(3_000, 3, 100))
    return folder


def test_one_document(log: Path) -> None:
    seen: list[tuple[int, int]] = []
    inputs = read_inputs([log])
    several = job.run_here(
        inputs, width=2, processes=2, progress=lambda *counts: seen.append(counts)
    )
    alone = job.run_here(inputs, width=2)
    assert as_json(several.data) == as_json(alone.data)
    assert several.promises_hold
    assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))
    assert len(seen) > 1


def test_broken_promises_come_from_wherever_they_are_found(tmp_path: Path) -> None:
    builder = LogBuilder().begin()
    builder.topic()
    builder.snapshot()
    builder.add(builder.change(leader=2, isr=[1, 3]))
    path = builder.write(tmp_path)
    several = job.run_here(read_inputs([path]), processes=2)
    assert not several.promises_hold
    assert as_json(several.data) == as_json(job.run_here(read_inputs([path])).data)


def test_audit_processes_raise_an_unreadable_input_error(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / log.name
    copy.mkdir()
    for path in log.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    inputs = read_inputs([copy])
    for path in copy.glob("*.log"):
        path.unlink()
    with pytest.raises((UnreadableInput, OSError)):
        job.run_here(inputs, processes=2)


def test_audit_process_ended_from_outside_raises_oserror() -> None:
    broken: Future[list[processes.Event]] = Future()
    broken.set_exception(BrokenProcessPool())
    with pytest.raises(OSError, match="audit process was killed"):
        processes._rows_of(broken)


def test_a_killed_process_ends_the_audit(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process to start work is killed, and its answer is not awaited."""
    inputs = read_inputs([log])
    plan = list(intervals.plan_intervals(inputs.logs[0], []))
    monkeypatch.setattr(processes, "performed", killed)
    with pytest.raises(OSError, match="audit process was killed"):
        list(processes.on_processes(plan, WorkOptions(), 2, None))


def killed(*_: object) -> Iterator[None]:
    """Kill the worker process in which this function runs."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_one_piece_of_work_needs_no_other_process(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ProcessPoolExecutor", None)
    plan = list(intervals.plan_intervals(read_inputs([log]).logs[0], []))
    assert list(processes.on_processes(plan[:1], WorkOptions(), 2, None))
    assert list(processes.on_processes(plan, WorkOptions(), 1, None))


def test_the_text_has_a_line_for_each_row() -> None:
    document = {"summary": {"records": 2}, "elections": [{"offset": 1}, {"offset": 2}], "none": []}
    text = as_json(document)
    assert json.loads(text) == document
    assert text.splitlines() == [
        "{",
        '"summary": {"records": 2},',
        '"elections": [',
        ' {"offset": 1},',
        ' {"offset": 2}',
        "],",
        '"none": []',
        "}",
    ]
