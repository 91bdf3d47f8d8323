"""Working directories of benchmarks, removed however the benchmark ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.place import OWNER, PREFIX, bench_place, sweep
from bench.report import put_between, shown


def test_the_folder_goes_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAFTBOX_BENCH_DIR", str(tmp_path))
    with pytest.raises(RuntimeError, match="in the middle"), bench_place(0) as place:
        (place / "data").write_bytes(b"x")
        raise RuntimeError("in the middle")
    assert list(tmp_path.iterdir()) == []


def test_bench_place_is_removed_after_signal(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom bench.place import bench_place\n"
        "with bench_place(0) as place:\n    print(place, flush=True)\n    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "KRAFTBOX_BENCH_DIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert Path(process.stdout.readline().strip()).is_dir()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert "ended by signal 15" in told
    assert list(tmp_path.iterdir()) == []


def test_bench_place_of_killed_run_is_removed_by_next_run(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name, owner in (("left", gone.pid), ("busy", os.getpid())):
        folder = tmp_path / f"{PREFIX}{name}"
        folder.mkdir()
        (folder / OWNER).write_text(str(owner))
    (tmp_path / f"{PREFIX}foreign").mkdir()
    assert sweep(tmp_path) == [tmp_path / f"{PREFIX}left"]
    assert {path.name for path in tmp_path.iterdir()} == {f"{PREFIX}busy", f"{PREFIX}foreign"}


def test_bench_place_without_enough_space_exits_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAFTBOX_BENCH_DIR", str(tmp_path))
    with pytest.raises(SystemExit, match="KRAFTBOX_BENCH_DIR"), bench_place(1 << 60):
        raise AssertionError("not reached")
    assert list(tmp_path.iterdir()) == []


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n")
    put_between(page, "x", "new")
    assert page.read_text() == "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n"
    put_between(page, "y", "another")
    assert page.read_text().endswith("\nb\n<!-- y: begin -->\nanother\n<!-- y: end -->\n")
    put_between(tmp_path / "fresh.md", "x", "new")
    assert (tmp_path / "fresh.md").read_text() == "<!-- x: begin -->\nnew\n<!-- x: end -->\n"
    assert [shown(value) for value in (1.234, 123.4, 12345.6)] == ["1.23", "123", "12,346"]
