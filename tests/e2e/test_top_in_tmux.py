"""`kraftbox top` on a terminal of 60 columns, in tmux, while two of three controllers are paused.

The screen is captured ten times a second: its clock, the shown age, and the answering nodes. Only
for a machine with a processor to spare: `make soak`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux (docs/gaps.md)"),
]

WIDTH, HEIGHT = 60, 40
AGE = re.compile(r"data at most ([\d.]+) s old")
CLOCK = re.compile(r"^(\d\d):(\d\d):(\d\d)")
SILENT = re.compile(r"^ *(\d+) +controller +paused +- ", re.MULTILINE)
HEARD = re.compile(r"^ *\d+ +(?:broker|controller) +running +0\.\d s ", re.MULTILINE)
DAY_S = 86_400
OLD_S_MAX = 1.0
WATCHED_S = 6.0
EVERY_S = 0.1


class Look(NamedTuple):
    """A screen, and the seconds by which its clock is behind.

    The true lag may be up to a second more, since the clock shows whole seconds.
    """

    text: str
    behind_s: float
    age_s: float


class Terminal:
    """A terminal that tmux holds, with one program on it."""

    def __init__(self, socket: Path, *command: str) -> None:
        self._tmux = ("tmux", "-S", str(socket))
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        self._run("-f", "/dev/null", "new-session", "-d", *size, *command)

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def press(self, key: str) -> None:
        self._run("send-keys", key)

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    def look(self) -> Look | None:
        """Return the screen; None until something is drawn."""
        text = self.screen()
        now = datetime.now().astimezone()
        clock, age = CLOCK.search(text), AGE.search(text)
        if clock is None or age is None:
            return None
        shown = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3]))
        behind = now - shown.replace(microsecond=0)
        return Look(text, behind.total_seconds() % DAY_S, float(age[1]))

    def watch(self, seconds: float) -> list[Look]:
        """Return all screens in that time."""
        found, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            look = self.look()
            assert look is not None
            found.append(look)
            time.sleep(EVERY_S)
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KraftboxCluster]:
    shape = ("--port", "0", "--controllers", "3", "--brokers", "3")
    found = KraftboxCluster(tmp_path / "cluster", *shape).start()
    yield found
    found.end()


@pytest.fixture
def terminal(cluster: KraftboxCluster, tmp_path: Path) -> Iterator[Terminal]:
    command = (sys.executable, "-m", "kraftbox", "top", "--dir", str(cluster.directory))
    found = Terminal(tmp_path / "tmux", *command)
    yield found
    found.end()


def shows(terminal: Terminal, *words: str) -> Callable[[], bool]:
    return lambda: all(word in terminal.screen() for word in words)


def test_nothing_is_older_than_a_second_with_two_of_three_controllers_paused(
    cluster: KraftboxCluster, terminal: Terminal
) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    made = cluster.run("topics", "create", "orders", "--replication-factor", "3", *server)
    assert made.returncode == 0, made.stderr
    until("the view", shows(terminal, "quorum: leader", "6 running", "partitions 1: 0 without"))
    before = terminal.watch(2.0)
    paused = ("101", "102")
    for node in paused:
        cluster.command("node", "pause", node)
    until("both are seen", shows(terminal, "2 paused (101,102)", "quorum: no answer from a leader"))
    during = terminal.watch(WATCHED_S)
    for node in paused:
        cluster.command("node", "resume", node)
    until("all answer again", shows(terminal, "6 running", "quorum: leader"))
    after = terminal.watch(2.0)
    for one in (*before, *during, *after):
        assert one.age_s <= OLD_S_MAX, one.text
        assert one.behind_s <= OLD_S_MAX + 1.0, one.text
        assert all(len(line) <= WIDTH for line in one.text.splitlines())
    for one in during:
        assert "4 running, 2 paused (101,102)" in one.text
        # Silent nodes have no values, and the others are updated.
        assert SILENT.findall(one.text) == list(paused)
        assert len(HEARD.findall(one.text)) == 4
    terminal.press("q")
