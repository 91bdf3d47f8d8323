"""The fault matrix on real processes: no acknowledged record is lost, doubled or out of order.

Our own clients and librdkafka write and read under a ledger while one fault comes, stays and goes.
At the end the replicas hold the same bytes (reliability F1-F16, F22, F24, F28, F35, F36; P1, P4,
P6, T1, H). Four faults always run; the others, and longer ones, with the marker `soak`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraftbox.chaos import local
from kraftbox.chaos.checks import is_broken, summary
from kraftbox.chaos.faults import KINDS
from kraftbox.chaos.history import load as load_history
from kraftbox.chaos.history import save as save_history
from kraftbox.chaos.librdkafka import WitnessedRun
from kraftbox.chaos.report import timeline_rows, verdict_lines
from kraftbox.chaos.run import Pace, RunResult
from kraftbox.chaos.schedule import Step
from kraftbox.chaos.target import Ability, LocalTarget
from kraftbox.chaos.workload import Load
from kraftbox.launcher import control
from kraftbox.launcher.interpreter import own_command
from kraftbox.launcher.place import ClusterPlace

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

PARTITIONS = 4
SESSION_S = 3.0
FENCED = "Fencing a broker without a heartbeat"
LONG_S = 60.0
SHORT_PACE = Pace(warm_up_s=1.0)
LONG_PACE = Pace(warm_up_s=20.0, recovery_s=60.0)
NEEDS_ROOT = "links between nodes need Linux, root and iproute2"


class Case(NamedTuple):
    """One fault of the matrix, its length, and the longest gap without acknowledgements of a
    partition.

    The gap is many times that of an idle machine, for which see docs/chaos.md and the benchmarks.
    `may_fence`: the fault is one for which a broker has to be fenced. `outlasts_sends`: no broker
    can be reached for longer than a client retries. `variant` distinguishes cases of a kind.
    """

    kind: str
    length_s: float
    gap_s_max: float
    topic_settings: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, str] = {}
    brokers: int = 3
    may_fence: bool = True
    outlasts_sends: bool = False
    variant: str = ""


SLACK_S = 30.0
FAILOVER_S = SESSION_S + SLACK_S
LOSSY_FILES = {"kraftbox.fault.files": "lossy"}
ALWAYS = [
    Case("kill-leader", 5.0, FAILOVER_S),
    Case("pause-leader", 12.0, FAILOVER_S),
    Case("cut-leader-from-nodes", 8.0, FAILOVER_S),
    Case("restart", 1.0, FAILOVER_S, may_fence=False),
]
SOMETIMES = [
    Case("kill-follower", 6.0, FAILOVER_S),
    Case("kill-all", 3.0, 30.0 + SLACK_S),
    Case("pause-controller", 10.0, FAILOVER_S),
    Case("kill-controller", 6.0, FAILOVER_S + 5.0),
    Case("lone-leader", 6.0, FAILOVER_S + 5.0),
    Case("cut-leader", 10.0, FAILOVER_S),
    Case("cut-controller", 10.0, FAILOVER_S),
    Case("deaf-leader", 10.0, FAILOVER_S),
    Case("mute-leader", 10.0, FAILOVER_S),
    Case("cut-from-controllers", 10.0, FAILOVER_S),
    Case("cut-follower", 10.0, FAILOVER_S),
    Case("cut-clients", 20.0, 35.0 + SLACK_S),
    Case("slow-network", 15.0, SLACK_S, may_fence=False),
    Case("lossy-network", 15.0, SLACK_S),
    Case("slow-follower", 10.0, SLACK_S, may_fence=False),
    Case("slow-leader", 10.0, SLACK_S, (("flush.messages", "1"),), may_fence=False),
    Case("stall-leader", 8.0, FAILOVER_S),
    Case(
        *("stall-leader", 6.0, SLACK_S),
        settings={"kraftbox.fault.stall.ms": "1500"},
        may_fence=False,
        variant="-briefly",
    ),
    Case("no-descriptors", 8.0, SLACK_S, may_fence=False),
    Case("reassign", 8.0, FAILOVER_S + 5.0, brokers=4),
    Case("replace-broker", 8.0, FAILOVER_S),
    Case("power-cut", 6.0, FAILOVER_S, settings=LOSSY_FILES),
]
# Requirements of the matrix for long faults, and faults that make all brokers unreachable for a
# minute.
LONGER: Mapping[str, Mapping[str, Any]] = {
    "kill-all": {"gap_s_max": LONG_S + 2 * SLACK_S, "outlasts_sends": True},
    "cut-clients": {"gap_s_max": LONG_S + 2 * SLACK_S, "outlasts_sends": True},
    "slow-leader": {"settings": {"kraftbox.fault.files.flush.ms": "1000"}},
}


def case_id(case: Case) -> str:
    return f"{KINDS[case.kind].number}-{case.kind}{case.variant}"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClusterPlace]:
    made = ClusterPlace(tmp_path / "cluster")
    made.root.mkdir()
    yield made
    control.down(made)


def start(place: ClusterPlace, case: Case) -> LocalTarget:
    target = local.start(place, brokers=case.brokers, settings=case.settings)
    if not can(target, case):
        pytest.skip(NEEDS_ROOT)
    return target


def can(target: LocalTarget, case: Case) -> bool:
    missing = KINDS[case.kind].needs - target.abilities
    assert not missing or missing == {Ability.LINKS}
    return not missing


def undergo(target: LocalTarget, case: Case, pace: Pace = SHORT_PACE) -> RunResult:
    load = Load(
        topic="t",
        partitions=PARTITIONS,
        topic_settings=case.topic_settings,
        producers=2,
        consumers=1,
        records_per_s=200,
    )
    seed = zlib.crc32(case.kind.encode())
    run = WitnessedRun(target, load, seed, pace=pace)
    outcome = asyncio.run(run.go(iter([Step(case.kind, case.length_s, seed)]), 3600, 1))
    save_history(target.place.root / "history.kbxh", outcome.history)
    print(told_of(outcome))
    assert run.witness.fatal == []
    return outcome


def told_of(outcome: RunResult) -> str:
    rows = [" ".join(row) for row in timeline_rows(outcome.timeline)]
    return "\n".join([*rows, *verdict_lines(outcome)])


def check(place: ClusterPlace, outcome: RunResult, case: Case) -> None:
    told = told_of(outcome)
    fenced = [node_id for node_id, log in place.node_logs().items() if FENCED in log.read_text()]
    assert case.may_fence or not fenced, f"fenced for no reason, say {fenced}"
    assert not is_broken(outcome.findings), told
    assert outcome.trouble == [], told
    for entry in outcome.timeline:
        assert entry.hit.nodes or case.kind == "cut-clients", "the fault hit nobody"
        assert entry.whole_s is not None, "the cluster did not become whole again"
        assert entry.gap_s < case.gap_s_max, told
    counts = summary(outcome.history)
    assert counts["ok"] > 1000
    assert case.outlasts_sends or counts["failed"] == counts["unknown"] == 0, told


@pytest.mark.core
@pytest.mark.parametrize("case", ALWAYS, ids=case_id)
def test_a_fault_breaks_no_promise(place: ClusterPlace, case: Case) -> None:
    target = local.start(place, brokers=case.brokers, settings=case.settings)
    if not can(target, case):
        # Without links of its own a node is cut off from its clients as well.
        case = case._replace(kind="cut-leader")
    check(place, undergo(target, case), case)


@pytest.mark.soak
@pytest.mark.parametrize("case", SOMETIMES, ids=case_id)
def test_another_fault_breaks_no_promise(place: ClusterPlace, case: Case) -> None:
    check(place, undergo(start(place, case), case), case)


@pytest.mark.soak
@pytest.mark.parametrize("case", [*ALWAYS, *SOMETIMES], ids=case_id)
def test_faults_of_a_minute_break_no_promise(place: ClusterPlace, case: Case) -> None:
    """Warm-up, a fault of a minute, a minute of recovery, final read.

    A client without a broker for longer than its sends may take gets errors for some, and no result
    for others.
    """
    longer = case._replace(length_s=LONG_S, **LONGER.get(case.kind, {}))
    check(place, undergo(start(place, longer), longer, LONG_PACE), longer)


def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    """A leader acknowledges before its followers have the records: exit code 1, and a history of
    them.

    Every judge must be able to find something.
    """
    history = tmp_path / "bug.kbxh"
    done = subprocess.run(
        own_command(
            *("chaos", "--seed", "1", "--minutes", "0.1", "--faults", "lone-leader"),
            *("--set", "kraftbox.fault.acks=leader", "--history", str(history)),
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN H3 lost-write" in done.stdout or "BROKEN H9 unseen" in done.stdout
    assert load_history(history).faults[0].kind == "lone-leader"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--faults", "earthquake"), "invalid kind 'earthquake'"),
        (("--dir", "a", "--compose", "b"), "not both"),
        (("--compose", "missing.yml"), "kraftbox:"),
        (("--set", "oops"), "expected KEY=VALUE"),
    ],
)
def test_misuse_is_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kraftbox", "chaos", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "400"},
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
