"""The end of programs that start others: after SIGTERM no process is left."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.clusters import Kraftbox

ROOT = Path(__file__).parents[2]

CHILD = """
import sys, time
from testkit.processes.ending import end_on_sigterm
end_on_sigterm()
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    open(sys.argv[1], "w").close()
"""
PARENT = """
import sys
from testkit.processes.ending import end_on_sigterm, output_of
end_on_sigterm()
print("ready", flush=True)
output_of([sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", *arguments], cwd=ROOT, stdout=subprocess.PIPE, bufsize=0
    )


def test_program_ended_by_sigterm_runs_its_clean_up(tmp_path: Path) -> None:
    process = started(CHILD, str(tmp_path / "cleaned"))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    process.stdout.close()
    assert (tmp_path / "cleaned").exists()


def test_program_inside_a_program_ends_with_sigterm_too(tmp_path: Path) -> None:
    """`subprocess.run` would kill the inner program, and processes that it has started would go
    on."""
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    child = CHILD.replace('print("ready", flush=True)', f"open({str(fifo)!r}, 'w').close()")
    process = started(PARENT, str(tmp_path / "cleaned"), child)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    fifo.open().close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    process.stdout.close()
    assert (tmp_path / "cleaned").exists()


def test_benchmark_cluster_ends_with_its_process(tmp_path: Path) -> None:
    """This also holds after SIGKILL, which runs no clean-up."""
    assert "--lifeline" in Kraftbox(tmp_path, 1, 1)._command


OWN_HANDLERS = {"bench/timed_node.py"}
"""A node, which stops on SIGTERM by itself."""
STARTS = re.compile(
    r"subprocess|bench\.(clusters|nodes|compare|place|failover|elections)|testkit\.(processes|kafka)"
)


def programs() -> list[Path]:
    found = [
        path for folder in ("bench", "fuzz", "scripts") for path in (ROOT / folder).glob("*.py")
    ]
    return [*found, *(ROOT / "testkit").rglob("*.py")]


@pytest.mark.parametrize("path", programs(), ids=lambda path: str(path.relative_to(ROOT)))
def test_program_that_starts_others_handles_sigterm(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if 'if __name__ == "__main__":' not in text or str(path.relative_to(ROOT)) in OWN_HANDLERS:
        return
    imported = [
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    if any(STARTS.match(str(name)) for name in imported):
        after = text.rpartition('if __name__ == "__main__":')[2]
        assert "end_on_sigterm()" in after or "signal.SIGTERM" in after
