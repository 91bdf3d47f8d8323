"""Repairs of nodes that a test broke."""

from __future__ import annotations

import pytest

from kraftbox.testing.healing import Node, broken, repairs

NODES = [
    Node(1, "running"),
    Node(2, "killed", exit_code=-9),
    Node(3, "paused", is_cut_off=True),
    Node(101, "running", is_cut_off=True),
    Node(102, "failed", exit_code=1),
    Node(103, "starting"),
]


@pytest.mark.parametrize(
    ("node_id", "damage", "actions"),
    [
        (2, "killed", ("start",)),
        (3, "paused and cut off", ("resume", "reconnect")),
        (101, "cut off", ("reconnect",)),
        (102, "ended by itself with exit code 1", ("start",)),
    ],
)
def test_repair_undoes_the_damage_of_a_node(
    node_id: int, damage: str, actions: tuple[str, ...]
) -> None:
    (repair,) = repairs(NODES, {node_id})
    assert (repair.node_id, repair.damage, repair.actions) == (node_id, damage, actions)
    assert str(repair) == f"node {node_id}, {damage}"


def test_nodes_that_run_or_start_are_not_broken() -> None:
    assert sorted(broken(NODES)) == [2, 3, 101, 102]
    assert repairs(NODES, ()) == []
    assert [repair.node_id for repair in repairs(NODES)] == [2, 3, 101, 102]
