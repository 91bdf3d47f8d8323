"""The commands of docs/howto.md, run unchanged on real nodes.

Additions: `--port 0` where nodes start, so that the kernel chooses, and KRAFTBOX_BOOTSTRAP for
commands that need a client port. Commands that would run for minutes get an earlier end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kraftbox.launcher.place import ClusterPlace
from testkit.processes.waiting import until
from tests.e2e.commands import INTERRUPTIBLE, REPOSITORY

pytestmark = pytest.mark.e2e

HOWTO = (REPOSITORY / "docs/howto.md").read_text(encoding="utf-8")
CLUSTER = "kraftbox up --controllers 3 --brokers 3"
LINES = [f"order {number}" for number in range(20)]
TYPED_S = 120.0
"""Limit of a command that ends; one that hangs is killed and fails its test."""
RUNNING_S = 900.0
"""Limit of a command that runs on: all tests use the cluster."""


def recipes_of(text: str) -> list[tuple[str, ...]]:
    """Return the commands of each row of a table that has any."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [found for row in rows if (found := tuple(re.findall(r"`(kraftbox [^`]+)`", row)))]


TESTED: list[tuple[str, ...]] = []


def recipe(*commands: str) -> pytest.MarkDecorator:
    """Mark a test that runs the commands of one row of the tables and checks their effects."""
    TESTED.append(commands)
    return pytest.mark.parametrize("typed", [commands], ids=[commands[0]])


class Terminal:
    """A shell for lines of bash: a folder, and the brokers that commands find."""

    def __init__(self, folder: Path, bootstrap: str = "") -> None:
        self.folder = folder
        self.bootstrap = bootstrap

    def _open(self, line: str, stderr: int) -> subprocess.Popen[str]:
        # The shell becomes the command: a signal to the one reaches the other.
        shell = 'python=$0; program=$1; kraftbox() { exec "$python" -c "$program" "$@"; }; '
        return subprocess.Popen(
            ["bash", "-c", shell + line, sys.executable, INTERRUPTIBLE],
            cwd=self.folder,
            env={**os.environ, "KRAFTBOX_BOOTSTRAP": self.bootstrap, "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def run(self, line: str) -> str:
        """Return the standard output of a command that succeeds."""
        with self._open(line, subprocess.PIPE) as process:
            try:
                told, complaint = process.communicate(timeout=TYPED_S)
            except BaseException:
                process.kill()
                raise
        assert process.returncode == 0, f"{line}: {told}{complaint}"
        return told

    def asked(self, line: str) -> Any:
        """Return a command's output with `--json`."""
        return json.loads(self.run(f"{line} --json"))

    @contextmanager
    def running(self, line: str) -> Iterator[Running]:
        """Run a command that does not end by itself. It must not have ended until it is left."""
        with self._open(line, subprocess.STDOUT) as process:
            watchdog = threading.Timer(RUNNING_S, process.kill)
            watchdog.start()
            try:
                yield Running(process)
            finally:
                watchdog.cancel()
                process.kill()


class Running:
    """A running command, and its output on both streams."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._told: list[str] = []

    def says(self, pattern: str) -> str:
        """Return the next line that matches the pattern."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._told.append(line)
            if re.search(pattern, line):
                return line.rstrip("\n")
        raise AssertionError(f"{pattern!r} was not said: {''.join(self._told)}")

    def interrupted(self) -> tuple[int, str]:
        """Return the exit code after Ctrl-C, and the remaining output."""
        self._process.send_signal(signal.SIGINT)
        told, _ = self._process.communicate()
        return self._process.returncode, told


@contextmanager
def up(folder: Path, line: str) -> Iterator[Terminal]:
    """Run `kraftbox up` with its options in the foreground; it ends cleanly, as by Ctrl-C."""
    terminal = Terminal(folder)
    with terminal.running(f"{line} --port 0") as nodes:
        terminal.bootstrap = nodes.says("^bootstrap.servers=").partition("=")[2]
        yield terminal
        code, told = nodes.interrupted()
    assert (code, "Traceback" in told) == (0, False), told
    assert not ClusterPlace(folder / "kraftbox-data").is_taken


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Start the cluster for most recipes: a topic with some lines, and the file of them."""
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
    with up(folder, CLUSTER) as terminal:
        terminal.run("kraftbox topics create orders --replication-factor 3")
        terminal.run("kraftbox produce orders < lines.txt")
        yield terminal


def orders(cluster: Terminal) -> dict[str, Any]:
    """Return the partition of the topic as the cluster describes it."""
    (topic,) = cluster.asked("kraftbox topics describe orders")
    (partition,) = topic["partitions"]
    return dict(partition)


def everyone_is_in_sync(cluster: Terminal) -> None:
    until("everyone is in sync", lambda: sorted(orders(cluster)["isr"]) == [1, 2, 3])


def last_offset(cluster: Terminal) -> int:
    return int(cluster.run("kraftbox consume orders --offset -1 --exit -f '%o'"))


def test_every_recipe_is_run() -> None:
    assert sorted(recipes_of(HOWTO)) == sorted(TESTED)


@recipe("kraftbox up")
def test_for_a_moment(typed: tuple[str], tmp_path: Path) -> None:
    with up(tmp_path, typed[0]) as terminal:
        assert [node["roles"] for node in terminal.asked("kraftbox status")["nodes"]] == [
            "broker,controller"
        ]
    assert (tmp_path / "kraftbox-data/data/.kafka_cleanshutdown").exists()


@recipe(CLUSTER)
def test_several_brokers(typed: tuple[str], cluster: Terminal) -> None:
    roles = [node["roles"] for node in cluster.asked("kraftbox status")["nodes"]]
    assert roles == ["broker"] * 3 + ["controller"] * 3
    assert len(cluster.bootstrap.split(",")) == 3


@recipe("kraftbox up --detach", "kraftbox down")
def test_in_the_background(typed: tuple[str, str], tmp_path: Path) -> None:
    terminal, place = Terminal(tmp_path), ClusterPlace(tmp_path / "kraftbox-data")
    assert terminal.run(f"{typed[0]} --port 0").startswith("bootstrap.servers=")
    assert place.is_taken
    assert terminal.run(typed[1]) == "the cluster has stopped\n"
    assert not place.is_taken


@recipe("kraftbox up --set num.partitions=3")
def test_with_a_setting(typed: tuple[str], tmp_path: Path) -> None:
    with up(tmp_path, typed[0]) as terminal:
        terminal.run("kraftbox topics create drawn")
        (topic,) = terminal.asked("kraftbox topics describe drawn")
    assert len(topic["partitions"]) == 3


@recipe("kraftbox doctor")
def test_recipe_doctor(typed: tuple[str], cluster: Terminal) -> None:
    found = cluster.run(typed[0])
    assert re.search(r"^Python +ok +3\.", found, re.MULTILINE)
    assert re.search(r"^directory +ok .*: contains a running cluster$", found, re.MULTILINE)


@recipe("kraftbox status")
def test_nodes_quorum_leaders(typed: tuple[str], cluster: Terminal) -> None:
    shown = cluster.run(typed[0])
    assert "nodes: 6 running" in shown
    leader = re.search(r"^quorum: leader (10[123]),", shown, re.MULTILINE)
    assert leader is not None
    assert re.search(rf"^{leader[1]} +controller \* +running ", shown, re.MULTILINE)
    listed = re.findall(r"^(\d+) .* (127\.0\.0\.1:\d+) +127", shown, re.MULTILINE)
    assert [address for number, address in listed if int(number) < 100] == (
        cluster.bootstrap.split(",")
    )


@recipe("kraftbox logs --since 10m", "kraftbox logs 1 --follow")
def test_recipe_follow_logs(typed: tuple[str, str], cluster: Terminal) -> None:
    assert "  3 | [20" in cluster.run(typed[0])
    with cluster.running(typed[1]) as log:
        log.says("Transitioning from RECOVERY to RUNNING node_id=1 ")
        cluster.run("kraftbox node stop 1")
        cluster.run("kraftbox node start 1")
        log.says(r"Stopped node_id=1\b")
        log.says("Transitioning from RECOVERY to RUNNING node_id=1 ")
        assert log.interrupted() == (0, "")
    everyone_is_in_sync(cluster)


@recipe("kraftbox ls")
def test_list_of_running_clusters(typed: tuple[str], cluster: Terminal) -> None:
    assert re.search(r"kraftbox-data +running +6 of 6 running ", cluster.run(typed[0]))


@recipe("kraftbox events --since 12:02 --until 12:05")
def test_time_line(typed: tuple[str], cluster: Terminal) -> None:
    """The times of the recipe pass through the command; the time line has the start."""
    cluster.run(typed[0])
    told = cluster.run("kraftbox events --partition orders-0")
    assert "  the cluster is ready\n" in told and "  orders-0: created; broker " in told


@recipe("kraftbox topics list", "kraftbox topics describe orders")
def test_topics(typed: tuple[str, str], cluster: Terminal) -> None:
    assert re.search(r"^orders +1$", cluster.run(typed[0]), re.MULTILINE)
    assert re.search(r"^orders +0 +[123] +\d+ +([123],?){3} ", cluster.run(typed[1]), re.MULTILINE)


@recipe("kraftbox elect --explain orders-0")
def test_recipe_explain_candidates(typed: tuple[str], cluster: Terminal) -> None:
    told = cluster.run(typed[0])
    assert told.startswith(f"orders-0: broker {orders(cluster)['leader']} leads since 20")
    may_lead = re.findall(r"^([123]) +isr +yes ", told, re.MULTILINE)
    assert sorted(may_lead) == ["1", "2", "3"]


@recipe("kraftbox dump-log kraftbox-data/data/orders-0/00000000000000000000.log")
def test_files_of_a_log(typed: tuple[str], tmp_path: Path) -> None:
    with up(tmp_path, "kraftbox up") as terminal:
        terminal.run("kraftbox produce orders <<< 'the only one'")
        assert "the only one" in terminal.run(typed[0])


@recipe("kraftbox produce orders < lines.txt")
def test_lines_of_a_file(typed: tuple[str], cluster: Terminal) -> None:
    before = last_offset(cluster)
    cluster.run(typed[0])
    added = cluster.run(f"kraftbox consume orders -p 0 --offset {before + 1} --exit")
    assert added.splitlines() == LINES


@recipe("kraftbox consume orders --from-beginning --exit")
def test_everything_then_end(typed: tuple[str], cluster: Terminal) -> None:
    assert cluster.run(typed[0]).splitlines()[: len(LINES)] == LINES


@recipe("kraftbox consume orders --offset -5 --exit")
def test_the_last_five(typed: tuple[str], cluster: Terminal) -> None:
    everything = cluster.run("kraftbox consume orders --from-beginning --exit").splitlines()
    assert cluster.run(typed[0]).splitlines() == everything[-5:]


@recipe("kraftbox consume orders --group readers")
def test_as_a_group(typed: tuple[str], cluster: Terminal) -> None:
    """A group continues from its offsets, and gets records that are written in the meantime."""
    cluster.run("kraftbox produce orders <<< 'one more'")
    cluster.run("kraftbox consume orders --group readers --from-beginning -n 1")
    position = f"--to-offset {last_offset(cluster) + 1}"
    cluster.run(f"kraftbox groups reset-offsets readers --topic orders {position}")
    with cluster.running(typed[0]) as reader:
        cluster.run("kraftbox produce orders <<< 'for readers'")
        assert reader.says("") == "for readers"
        assert reader.interrupted() == (130, "")


@recipe("kraftbox groups describe readers")
def test_recipe_describe_group(typed: tuple[str], cluster: Terminal) -> None:
    cluster.run("kraftbox produce orders <<< 'one more'")  # the group may have read all records
    cluster.run("kraftbox consume orders --group readers --from-beginning -n 1")
    cluster.run("kraftbox groups reset-offsets readers --topic orders --to-offset 7")
    shown = cluster.run(typed[0])
    end = last_offset(cluster) + 1
    assert re.search(rf"^orders +0 +7 +{end} +{end - 7} ", shown, re.MULTILINE), shown


@recipe("kraftbox node kill 2", "kraftbox node pause 2", "kraftbox node cut-off 2")
def test_kill_pause_cut_off(typed: tuple[str, str, str], cluster: Terminal) -> None:
    kill, pause, cut_off = typed
    for command, state, remedy in (
        (kill, "killed", "start"),
        (pause, "paused", "resume"),
        (cut_off, "cut off", "reconnect"),
    ):
        assert cluster.run(command) == f"node 2 is {state}\n"
        try:
            assert f"1 {state} (2)" in cluster.run("kraftbox status")
        finally:
            cluster.run(f"kraftbox node {remedy} 2")
    everyone_is_in_sync(cluster)


@recipe("kraftbox chaos --minutes 2")
def test_faults_for_minutes(typed: tuple[str], tmp_path: Path) -> None:
    """Ctrl-C ends it once clients write: the history up to then is judged."""
    with Terminal(tmp_path).running(typed[0]) as chaos:
        assert "2 minutes" in chaos.says("^seed ")
        chaos.says(r" [1-9]\d* acknowledged,")
        code, told = chaos.interrupted()
    assert code == 0, told
    sums = re.search(r"^(\d+) sends: (\d+) acknowledged, ", told, re.MULTILINE)
    assert sums is not None and int(sums[2]) > 0
    assert told.endswith("every promise held\n")
    assert list(tmp_path.iterdir()) == []


@recipe("kraftbox sim --seed 42")
def test_repeatably(typed: tuple[str], tmp_path: Path) -> None:
    """Two runs of its first seconds end in the same states, and another seed in others."""
    terminal = Terminal(tmp_path)
    shown = terminal.run(f"{typed[0]} --until 1s")
    assert re.search(r"^at 1\.\d+ s, event \d+ of the trace$", shown, re.MULTILINE)
    assert terminal.run(f"{typed[0]} --until 1s") == shown
    assert terminal.run("kraftbox sim --seed 43 --until 1s") != shown


AUDIT = "kraftbox audit kraftbox-data --out report"


@recipe(AUDIT)
@pytest.mark.parametrize("tables", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_know_what_happened(
    typed: tuple[str], tables: bool, cluster: Terminal, tmp_path: Path
) -> None:
    """Without tables the audit needs no Spark, whose start takes seconds."""
    if tables and find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed (docs/gaps.md)")
    here = Terminal(tmp_path)
    (tmp_path / "kraftbox-data").symlink_to(cluster.folder / "kraftbox-data")
    told = here.run(typed[0] if tables else f"{typed[0]} --no-tables")
    assert "every promise holds" in told
    report = json.loads((tmp_path / "report/audit.json").read_text())
    assert {one["id"] for one in report["brokers"]} == {1, 2, 3}
    assert "orders" in (tmp_path / "report/audit.html").read_text()
    assert (tmp_path / "report/tables").exists() is tables


@recipe("kraftbox reassign orders-0 --to 2,3,1")
def test_move_a_partition(typed: tuple[str], cluster: Terminal) -> None:
    cluster.run("kraftbox reassign orders-0 --to 1,3,2")
    until("the first order", lambda: orders(cluster)["replicas"] == [1, 3, 2])
    cluster.run(typed[0])
    until("the new order", lambda: orders(cluster)["replicas"] == [2, 3, 1])


@recipe("kraftbox configs alter --topic orders --set retention.ms=60000")
def test_change_a_setting(typed: tuple[str], cluster: Terminal) -> None:
    assert cluster.run(typed[0]) == "changed retention.ms\n"
    shown = cluster.run("kraftbox configs describe --topic orders")
    assert re.search(r"^retention\.ms +60000 +topic$", shown, re.MULTILINE)
    cluster.run("kraftbox configs alter --topic orders --delete retention.ms")
