"""Leader hints: the leaders that a broker may name in an error response (P24, KIP-951).

A broker knows only its metadata image. So a named leader is judged by the images that the broker
had while the request was in flight. In one of them it must have led the partition in the named
epoch. It must also have been registered, unfenced, and reachable at the address in the response.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from metalog.image.values import MetadataImage
from metalog.loader import MetadataLoader
from simulation.world.invariants import Key, require

if TYPE_CHECKING:
    from simulation.world.cluster import NodeLife

KEPT_S = 10.0
"""Longer than any client waits for a response."""


class Named(NamedTuple):
    """A leader as a response names it."""

    leader_id: int
    epoch: int
    host: str
    port: int


class Views:
    """The recent images of each broker, with the time at which each became current."""

    def __init__(self) -> None:
        self._of: dict[int, deque[tuple[float, MetadataImage]]] = {}
        self._followed: set[NodeLife] = set()

    def follow(self, life: NodeLife, loader: MetadataLoader) -> None:
        """Record every image of this life from now on: a node that resumes may apply several at
        once, and respond between them."""
        if life in self._followed:
            return
        self._followed.add(life)
        seen = self._of.setdefault(life.machine.node_id, deque())
        loop = life.machine.cluster.loop

        def note(_: object, image: MetadataImage) -> None:
            now_s = loop.time()
            seen.append((now_s, image))
            while len(seen) > 1 and seen[1][0] < now_s - KEPT_S:
                seen.popleft()

        loader.add_publisher(note)

    def since(self, node_id: int, begin_s: float) -> list[MetadataImage]:
        """Return the images that a broker had at any time since `begin_s`, oldest first."""
        found: list[MetadataImage] = []
        for since_s, image in reversed(self._of.get(node_id, ())):
            found.append(image)
            if since_s <= begin_s:
                break
        return found[::-1]


def judge_hint(where: str, key: Key, named: Named, images: list[MetadataImage]) -> None:
    """Raise Violation unless one of the images allows the named leader."""
    wrong = [_objection(key, named, image) for image in images]
    objections = "; ".join(dict.fromkeys(one for one in wrong if one))
    require(
        None in wrong, f"P24: {where} names {named}: {objections or 'it has no metadata image'}"
    )


def _objection(key: Key, named: Named, image: MetadataImage) -> str | None:
    partition = image.topics.partition(*key)
    if partition is None:
        return "the partition does not exist"
    if (partition.leader, partition.leader_epoch) != (named.leader_id, named.epoch):
        return f"the leader is {partition.leader} in epoch {partition.leader_epoch}"
    broker = image.cluster.brokers.get(named.leader_id)
    if broker is None:
        return "the broker is not registered"
    if broker.fenced:
        return "it is fenced"
    addresses = {(one.host, one.port) for one in broker.endpoints}
    if (named.host, named.port) not in addresses:
        return f"it is at {sorted(addresses)}"
    return None
