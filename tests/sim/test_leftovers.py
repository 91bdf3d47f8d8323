"""P26: objects that nodes hold at the end; each kind of leftover is planted and found."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from broker.assembly import BrokerServer
from broker.coordinators.group.shard import GroupShard
from broker.replication.partition.remote_replica import RemoteReplica
from broker.replication.sessions.fetch_session import FetchSession
from broker.replication.sessions.follower_watch import FollowerWatch
from broker.replication.waiting.purgatory import Wait
from simulation.judges import leftovers
from simulation.judges.leftovers import LeftoverJudge
from simulation.swarm import run
from simulation.world.cluster import Machine
from simulation.world.life import CURRENT_LIFE
from simulation.world.network import CURRENT_HOST
from storage.files.lossy import LossyFile
from storage.log.producers import ProducerState
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

NOBODY = 1 << 30
AN_HOUR_S = 3600.0
BROKER = 1
"""The machine of the first broker."""


def of_life(machine: Machine, act: Callable[[], Any]) -> None:
    """Act as if the node had done it."""
    context = contextvars.copy_context()
    context.run(CURRENT_LIFE.set, machine.life)
    context.run(CURRENT_HOST.set, machine.host)
    context.run(act)


def timers(machine: Machine) -> None:
    loop = machine.cluster.loop
    for _ in range(leftovers.TIMERS_MORE + 20):
        of_life(machine, lambda: loop.call_later(AN_HOUR_S, print))


def tasks(machine: Machine) -> None:
    loop = machine.cluster.loop
    for _ in range(leftovers.TASKS_MORE + 10):
        of_life(machine, lambda: loop.create_task(asyncio.Event().wait()))


def a_deleted_file(machine: Machine) -> None:
    assert machine.files is not None
    machine.files.open("/data/left", create=True)
    machine.files.unlink("/data/left")


def a_file_thrice(machine: Machine) -> None:
    assert machine.files is not None
    for _ in range(3):
        machine.files.open("/data/thrice", create=True)


def a_wait_of_nobody(machine: Machine) -> None:
    broker = _broker(machine)
    assert broker.context is not None
    broker.context.waits.purgatory.add(Wait(), machine.clock.monotonic_ms() + 1e6, NOBODY)


def an_overdue_wait(machine: Machine) -> None:
    broker = _broker(machine)
    assert broker.context is not None
    broker.context.waits.purgatory.add(Wait(), machine.clock.monotonic_ms() - 5_000)


def _broker(machine: Machine) -> BrokerServer:
    assert machine.life is not None and machine.life.node is not None
    broker = machine.life.node.broker
    assert broker is not None and broker.context is not None
    return broker


def a_strange_group(machine: Machine) -> None:
    coordinator = _broker(machine).coordinator
    assert coordinator is not None
    shard = GroupShard(coordinator.config, lambda: "", mock.Mock())
    shard.core.groups["nobody's"] = mock.Mock()
    coordinator.runtime.slots[0] = mock.Mock(shard=shard)


def a_strange_follower(machine: Machine) -> None:
    next(iter(_broker(machine).replicas)).remote[NOBODY] = RemoteReplica()


def an_unknown_producer(machine: Machine) -> None:
    producers = next(iter(_broker(machine).replicas)).log.producers
    producers._producers[NOBODY] = ProducerState(NOBODY)


def sessions_of_two_lives(machine: Machine) -> None:
    context = _broker(machine).context
    assert context is not None
    for epoch in (-1, 1, 2):  # a broker that has not registered yet sends -1 (seed 9700)
        session = FetchSession[Any](epoch, privileged=True, uses_topic_ids=True, now_ms=0.0)
        assert isinstance(session.watch, FollowerWatch)
        session.watch.replica_id, session.watch.broker_epoch = NOBODY, epoch
        context.sessions._sessions[epoch] = session


PLANTED = {
    a_strange_group: 'remembers the groups ["nobody\'s"]',
    an_unknown_producer: f"remembers of t0-0 the producers [{NOBODY}]",
    a_strange_follower: f"remembers of t0-0 the followers [{NOBODY}]",
    sessions_of_two_lives: f"remembers sessions of broker {NOBODY} with the epochs [1, 2]",
    an_overdue_wait: "longer than it asked for",
    a_wait_of_nobody: "keeps waits of 1 closed connections",
    a_file_thrice: "['/data/thrice'] open more than 2 times",
    a_deleted_file: "['/data/left'] open, which are deleted",
    timers: "timers, at the start",
    tasks: "tasks, at the start",
}
"""The judge names the later ones first."""


def test_each_kind_of_leftover_is_seen() -> None:
    seen: list[str | None] = []
    missing = LeftoverJudge.missing

    def plant(judge: LeftoverJudge) -> str | None:
        whole = missing(judge)
        if whole is None and not seen:
            for act in PLANTED:
                act(judge._world.cluster.machines[BROKER])
                seen.append(missing(judge))
            with mock.patch.object(leftovers, "CONNECTIONS_MAX", 0):
                seen.append(missing(judge))
        return whole

    with mock.patch.object(LeftoverJudge, "missing", plant):
        run(schedule(), judges={"leftovers"})
    assert len(seen) == len(PLANTED) + 1
    for said, words in zip(seen, [*PLANTED.values(), " connections to node-"], strict=True):
        assert said is not None and said.startswith("P26: node-") and words in said


def test_a_close_that_closes_nothing_is_found() -> None:
    with mock.patch.object(LossyFile, "close", lambda _: None):
        broken = run(schedule(quiet_from_ms=100), judges={"leftovers"}).broken
    assert broken is not None
    assert broken.code == "P26" and "open, which are deleted" in broken.words
