"""Whom a broker may name as leader when it turns a client away (P24, KIP-951).

A broker knows what its metadata image says, and no more: a named leader is judged by the images
that the answering broker had while the request was under way. In one of them it must have led the
partition in the named epoch, and must have been registered, not fenced, and reachable where the
answer says.
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
"""Longer than any client waits for an answer."""


class Named(NamedTuple):
    """A leader as an answer names it."""

    leader_id: int
    epoch: int
    host: str
    port: int


class Views:
    """The images that each broker had lately, and since when."""

    def __init__(self) -> None:
        self._of: dict[int, deque[tuple[float, MetadataImage]]] = {}
        self._followed: set[NodeLife] = set()

    def follow(self, life: NodeLife, loader: MetadataLoader) -> None:
        """Note every image of this life from now on: one that wakes up may take over several at
        once, and answer in the middle of them."""
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
        """What a broker has had in force at any time from then on, oldest first."""
        found: list[MetadataImage] = []
        for since_s, image in reversed(self._of.get(node_id, ())):
            found.append(image)
            if since_s <= begin_s:
                break
        return found[::-1]


def judge_hint(where: str, key: Key, named: Named, images: list[MetadataImage]) -> None:
    """Raises Violation unless one of the images allows it."""
    wrong = [_objection(key, named, image) for image in images]
    told = "; ".join(dict.fromkeys(one for one in wrong if one))
    require(None in wrong, f"P24: {where} names {named}: {told or 'it knows nothing'}")


def _objection(key: Key, named: Named, image: MetadataImage) -> str | None:
    partition = image.topics.partition(*key)
    if partition is None:
        return "there is no such partition"
    if (partition.leader, partition.leader_epoch) != (named.leader_id, named.epoch):
        return f"the leader is {partition.leader} in epoch {partition.leader_epoch}"
    broker = image.cluster.brokers.get(named.leader_id)
    if broker is None:
        return "no such broker is registered"
    if broker.fenced:
        return "it is fenced"
    addresses = {(one.host, one.port) for one in broker.endpoints}
    if (named.host, named.port) not in addresses:
        return f"it is at {sorted(addresses)}"
    return None
