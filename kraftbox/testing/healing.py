"""Repairs of nodes that a test has killed, stopped, paused or cut off. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

DOWN: Final = ("killed", "stopped", "failed")


class Node(NamedTuple):
    """A node's state, as the supervisor reports it."""

    node_id: int
    state: str
    is_cut_off: bool = False
    exit_code: int | None = None


class Repair(NamedTuple):
    """The repair of a node: names of methods of KafkaNode, in order."""

    node_id: int
    damage: str
    actions: tuple[str, ...]

    def __str__(self) -> str:
        return f"node {self.node_id}, {self.damage}"


def broken(nodes: Iterable[Node]) -> dict[int, str]:
    """Return the damage of each node that is not whole, by ID."""
    return {repair.node_id: repair.damage for repair in repairs(nodes)}


def repairs(nodes: Iterable[Node], only: Collection[int] | None = None) -> list[Repair]:
    """Return the repairs of broken nodes: of all, or of those with an ID in `only`."""
    found = []
    for node in nodes:
        if only is not None and node.node_id not in only:
            continue
        damage, actions = _damage(node)
        if actions:
            found.append(Repair(node.node_id, " and ".join(damage), tuple(actions)))
    return found


def _damage(node: Node) -> tuple[list[str], list[str]]:
    """Return the words for the damage, and the actions against it."""
    if node.state in DOWN:
        # A node that starts again is not cut off.
        failed = f"ended by itself with exit code {node.exit_code}"
        return [failed if node.state == "failed" else node.state], ["start"]
    damage, actions = [], []
    if node.state == "paused":
        damage.append("paused")
        actions.append("resume")
    if node.is_cut_off:
        damage.append("cut off")
        actions.append("reconnect")
    return damage, actions
