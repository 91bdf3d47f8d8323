"""Links between nodes: delay, loss and cuts. Pure.

Every directed pair of ends has a link; ends are node ids, and 0 is the host with the clients. A
link that nobody spoke of is whole: its packets arrive at once.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from typing import NamedTuple

QUEUE_MS_MAX = 1_000.0
"""A link with a rate holds so much; what would wait longer is dropped, as by a full router."""


class Link(NamedTuple):
    """One direction. `loss`, `duplicate`, `reorder` are probabilities; 0 bytes/s is no limit.

    A reordered packet overtakes those that wait for `delay_ms`. A corrupt packet is a lost one:
    its checksum shows it, and no receiver looks at it twice.
    """

    loss: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    rate_bytes_per_s: int = 0
    duplicate: float = 0.0
    reorder: float = 0.0


class LinkRule(NamedTuple):
    """A link and the ends it leads from and to."""

    source: int
    target: int
    link: Link


WHOLE = Link()


class Links:
    """Judges packets one by one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._links: dict[tuple[int, int], Link] = {}
        self._free_ms: dict[tuple[int, int], float] = {}

    def set(self, rules: Iterable[LinkRule]) -> None:
        """These links from now on, and all others whole."""
        self._links = {(rule.source, rule.target): rule.link for rule in rules}
        self._free_ms.clear()

    def change(self, rules: Iterable[LinkRule]) -> None:
        """These links from now on; all others stay as they are."""
        for rule in rules:
            ends = (rule.source, rule.target)
            self._free_ms.pop(ends, None)
            if rule.link == WHOLE:
                self._links.pop(ends, None)
            else:
                self._links[ends] = rule.link

    @property
    def rules(self) -> list[LinkRule]:
        """Every link that is not whole, by its ends."""
        return [LinkRule(*ends, link) for ends, link in sorted(self._links.items())]

    def is_whole(self, source: int, target: int) -> bool:
        return (source, target) not in self._links

    def arrivals(self, source: int, target: int, size_bytes: int, now_ms: float) -> list[float]:
        """When the packet arrives, in ms; nothing for a lost one, several for a copied one."""
        ends = (source, target)
        link = self._links.get(ends, WHOLE)
        rng = self._rng
        if link.loss and rng.random() < link.loss:
            return []
        at_ms = now_ms
        if link.rate_bytes_per_s:
            free_ms = max(now_ms, self._free_ms.get(ends, 0.0))
            if free_ms - now_ms > QUEUE_MS_MAX:
                return []
            at_ms = free_ms + size_bytes * 1000.0 / link.rate_bytes_per_s
            self._free_ms[ends] = at_ms
        if not (link.reorder and rng.random() < link.reorder):
            at_ms += link.delay_ms
            if link.jitter_ms:
                at_ms = max(now_ms, at_ms + rng.uniform(-link.jitter_ms, link.jitter_ms))
        copies = 2 if link.duplicate and rng.random() < link.duplicate else 1
        return [at_ms] * copies


class Underway:
    """Packets that arrive later, in the order in which they do."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def add(self, at_ms: float, target: int, packet: bytes) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, target, packet))

    def due(self, now_ms: float) -> list[tuple[int, bytes]]:
        """Target and packet of those whose time has come."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, target, packet = heapq.heappop(self._heap)
            found.append((target, packet))
        return found

    @property
    def next_ms(self) -> float | None:
        """When the next one arrives."""
        return self._heap[0][0] if self._heap else None
