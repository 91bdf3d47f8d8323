"""The swarm: seeds that hold, equal traces everywhere, and a planted bug that is found."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from broker.replication.partition import high_watermark
from broker.replication.partition.effects import NOTHING, Effects
from broker.replication.partition.high_watermark import (
    high_watermark_moved,
)
from broker.replication.partition.partition import Partition
from simulation import command, swarm
from simulation.command import Options
from simulation.event import Event
from simulation.faults import BY_NAME
from simulation.faults import KINDS as FAULTS
from simulation.faults.process import KINDS as PROCESS
from simulation.schedule import Schedule, draw_schedule
from simulation.shapes.shape import ClientShape, LinkShape
from simulation.swarm import run
from simulation.world.trace import FullTrace
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

QUICK = 7
"""A seed whose run is short."""
CHOSEN = Path(__file__).with_name("ci_seeds.txt")
"""Written by scripts/choose_seeds.py."""
IN_CI = [
    int(seed)
    for line in CHOSEN.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
    for seed in line.split()
]


def calm(seed: int) -> Schedule:
    """Return the shape of the seed, without faults."""
    return replace(draw_schedule(seed), events=(), quiet_from_ms=1000)


def held(seed: int, *, tiered: bool | None = None) -> None:
    outcome = run(draw_schedule(seed, tiered=tiered))
    assert outcome.broken is None, "\n".join(
        command.broken_lines(outcome, f"--seed {seed}", outcome.lines)
    )
    assert outcome.counts["acked"] > 3


@pytest.mark.parametrize("seed", [5, 6, 10])
def test_promises_are_kept(seed: int) -> None:
    held(seed)


@pytest.mark.rest
@pytest.mark.parametrize("seed", IN_CI)
def test_promises_are_kept_in_three_hundred_worlds(seed: int) -> None:
    held(seed)


def test_the_seeds_of_ci_have_everything() -> None:
    """Every size, every fault, and elections by P7, P8, P21 and P22 in many."""
    drawn = [draw_schedule(seed) for seed in IN_CI]
    assert len(set(IN_CI)) == len(IN_CI) == 300
    assert sum(one.shape.elr for one in drawn) >= 50
    assert {(len(one.shape.controllers), len(one.shape.brokers)) for one in drawn} >= {
        (controllers, brokers) for controllers in range(1, 6) for brokers in range(1, 6)
    }
    assert {event.kind for one in drawn for event in one.events} == set(FAULTS) - BY_NAME


@pytest.mark.parametrize(("seed", "fault"), [(QUICK, "kill"), (23, "power cut")])
def test_promises_are_kept_with_eligible_leader_replicas(seed: int, fault: str) -> None:
    """P7: up to min ISR - 1 brokers lose their unflushed records at once."""
    schedule = draw_schedule(seed, [fault])
    outcome = run(replace(schedule, shape=replace(schedule.shape, elr=True)))
    assert outcome.broken is None, outcome.broken
    assert outcome.counts["acked"] > 3
    assert outcome.took_effect.get(fault, 0) > 0


def test_the_hash_covers_messages_writes_and_events() -> None:
    def digest(*, sent: bytes = b"a", written: bytes = b"b", at: int = 0, event: str = "c") -> str:
        trace = FullTrace(lambda: 1.5)
        trace.delivered("node-1", "node-2", sent)
        trace.written("node-1#1", "/data/log", at, written)
        trace.add(event)
        return trace.digest()

    others = [digest(sent=b"x"), digest(written=b"x"), digest(at=1), digest(event="x")]
    assert len({digest(), *others}) == 5


def test_every_message_and_every_write_reaches_the_hash() -> None:
    """A hook that is not connected would leave its count at 0."""
    counts = run(calm(QUICK)).counts
    assert counts["messages"] > 100 and counts["writes"] > 50


def test_an_event_makes_another_trace() -> None:
    drawn = calm(QUICK)
    event = Event("e", 200, "kill", "node 1", {"for_ms": 300})
    assert run(drawn).trace != run(replace(drawn, events=(event,))).trace


def _shows_all_it_has(partition: Partition) -> Effects:
    log = partition.log
    if log.log_end_offset <= log.high_watermark:
        return NOTHING
    log.update_high_watermark(log.log_end_offset)
    return high_watermark_moved(partition, log.log_end_offset)


@contextlib.contextmanager
def shows_all_it_has() -> Iterator[Any]:
    """Let a leader not wait for its followers."""
    with mock.patch.object(high_watermark, "maybe_advance_high_watermark", _shows_all_it_has):
        yield


def test_sim_command_reports_a_planted_bug_with_its_replay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shows_all_it_has():
        code = command.main(Options(seed=QUICK))
    told = capsys.readouterr().out
    assert code == 1
    assert "BROKEN P12" in told
    assert f"replay: kraftbox sim --seed {QUICK}" in told
    assert told.splitlines()[-1].startswith("trace ")


def test_finding_of_a_judge_that_was_not_chosen_is_dropped() -> None:
    schedule = calm(QUICK)
    # The final answers to clients of groups are compared with the partitions' judge.
    plain = tuple(one for one in schedule.shape.clients if "group" not in one.args)
    schedule = replace(schedule, shape=replace(schedule.shape, clients=plain))
    assert run(schedule, {"quorum"}, [shows_all_it_has]).broken is None
    found = run(schedule, planted=[shows_all_it_has])
    assert found.broken is not None and found.broken.code == "P12"


async def _for_ever(*_arguments: Any) -> bool:
    await asyncio.get_running_loop().create_future()
    return True


def test_event_that_never_ends_breaks_f_and_does_not_hang_the_run() -> None:
    event = Event("e0", 200, "kill", "node 1", {"for_ms": 300})
    endless = mock.patch.dict(FAULTS, {"kill": replace(PROCESS["kill"], run=_for_ever)})
    with endless, mock.patch.object(swarm, "WHOLE_S", 3.0):
        broken = run(replace(calm(QUICK), events=(event,))).broken
    assert broken is not None and broken.code == "F"
    assert "e0, kill on node 1" in broken.words and "still goes on" in broken.words


def test_wrong_usage(tmp_path: Path) -> None:
    assert command.main(Options(faults="luck")) == command.MISUSE
    assert command.main(Options(schedule=str(tmp_path / "none.json"))) == command.MISUSE
    assert command.main(Options(schedule="none.json", seed=1)) == command.MISUSE


def test_kinds_of_faults_are_accepted_as_chaos_spells_them_and_listed_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command._kinds("power-cut, kill") == ("power cut", "kill")
    assert command.main(Options(show_kinds=True, as_json=True)) == command.HELD
    assert "power cut" in [one["fault"] for one in json.loads(capsys.readouterr().out)]


def test_a_schedule_is_played_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = calm(QUICK)
    path = tmp_path / "one.json"
    path.write_text(json.dumps(drawn.to_json()))
    assert command.main(Options(schedule=str(path))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"seed {drawn.seed} held: 0 of 0 faults took effect"
    assert lines[-1] == f"trace {command.PYTHON}-{run(drawn).trace}"


@pytest.mark.rest
def test_clients_make_room_for_a_follower_that_is_far_behind() -> None:
    """P26: over its slow link one batch arrives in each round, and more are written at the same
    time."""
    settings = {"replica.fetch.max.bytes": "1", "replica.lag.time.max.ms": "500"}
    drawn = schedule(quiet_from_ms=3000, **settings)
    assert not drawn.shape.is_narrow
    slow = LinkShape(delay_ms_min=60.0, delay_ms_max=70.0)
    nodes = [replace(one, link=slow) if one.node_id == 4 else one for one in drawn.shape.nodes]
    clients = (*drawn.shape.clients, ClientShape("acks 1", "fast", 10.0))
    # It leads one topic, whose clients wait for it anyhow, and follows the other.
    first, second = drawn.shape.topics
    topics = (first, replace(second, replicas=((4, 3),)))
    narrow = replace(drawn.shape, nodes=tuple(nodes), clients=clients, topics=topics)
    assert narrow.is_narrow and not replace(narrow, settings={}).is_narrow
    for delay_ms, is_narrow in ((9.0, False), (12.0, True)):  # seed 7819
        brisk = [replace(one, link=LinkShape(4.0, delay_ms)) for one in nodes]
        assert replace(narrow, nodes=tuple(brisk)).is_narrow is is_narrow
    with mock.patch.object(swarm, "WHOLE_S", 15.0):
        assert run(replace(drawn, shape=narrow)).broken is None
    # The run waits longer for it, as long as it gets nearer to the end (seed 8142).
    with mock.patch.object(swarm, "WHOLE_S", 8.0):
        assert run(replace(drawn, shape=narrow)).broken is None
        with mock.patch.object(swarm, "NEARER", 0.0):
            broken = run(replace(drawn, shape=narrow)).broken
    assert broken is not None and broken.code == "P26"


@pytest.mark.parametrize(("broken", "code"), [(None, command.INTERRUPTED), ({}, command.BROKEN)])
def test_ctrl_c_reports_the_seeds_until_then(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: dict[str, str] | None,
    code: int,
) -> None:
    def task(asked: tuple[Any, ...]) -> tuple[dict[str, Any], list[str]]:
        if asked[0] == 7:
            raise KeyboardInterrupt
        document = {"seed": asked[0], "broken": broken if asked[0] == 6 else None}
        return {**document, "virtual_s": 10.0, "drawn": {}, "took_effect": {}}, []

    monkeypatch.setattr(command, "_task", task)
    assert command.main(Options(seed=4, runs=100)) == code
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"{3 if broken is None else 2} of 3 seeds held"
