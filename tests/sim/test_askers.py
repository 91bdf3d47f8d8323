"""Clients that query brokers' metadata and producer ids, and the detection of wrong answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from broker.apis import describe_topic_partitions
from controller.brokers import producer_ids
from simulation.shapes.shape import ClientShape
from simulation.swarm import RunOutcome, run
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

CLIENTS = (ClientShape("describer", "d", 20.0), ClientShape("id asker", "i", 10.0))


def outcome() -> RunOutcome:
    drawn = schedule()
    return run(replace(drawn, shape=replace(drawn.shape, clients=(*drawn.shape.clients, *CLIENTS))))


def test_right_answers_are_right() -> None:
    assert outcome().broken is None


PARTITION: Callable[..., Any] = describe_topic_partitions._partition


def _another_leader(index: int, partition: Any, reachable: Any) -> Any:
    told = PARTITION(index, partition, reachable)
    told.leader_id = next(one for one in told.replica_nodes if one != told.leader_id)
    return told


def _epoch_to_come(index: int, partition: Any, reachable: Any) -> Any:
    told = PARTITION(index, partition, reachable)
    told.leader_epoch += 1
    return told


def _stranger(index: int, partition: Any, reachable: Any) -> Any:
    told = PARTITION(index, partition, reachable)
    told.isr_nodes = [*told.isr_nodes, 17]
    return told


@pytest.mark.parametrize(
    ("code", "owner", "name", "bug"),
    [
        ("M18", describe_topic_partitions, "_partition", _another_leader),
        ("M18", describe_topic_partitions, "_partition", _epoch_to_come),
        ("P9", describe_topic_partitions, "_partition", _stranger),
        ("T3", producer_ids, "BLOCK_SIZE", 0),
    ],
)
def test_a_planted_bug_is_found(code: str, owner: Any, name: str, bug: Any) -> None:
    with mock.patch.object(owner, name, bug):
        broken = outcome().broken
    assert broken is not None and broken.code == code, broken
