"""Links between nodes: delay, loss and cuts. Pure.

Every ordered pair of ends has a link. Ends are node IDs; 0 is the host with the clients. A link
without a rule is whole: its packets arrive at once.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

QUEUE_MS_MAX = 1_000.0
"""The longest queue of a link with a rate. Packets that would wait longer are dropped, as in a
router.
"""


UNDERWAY_BYTES_MAX = 256 << 20
"""The total size of all delayed packets; packets beyond it are dropped."""
END_MAX = 255
TIME_MS_MAX = 3_600_000.0
RATE_MAX = 1 << 40


class Link(NamedTuple):
    """One direction. `loss`, `duplicate`, `reorder` are probabilities; 0 bytes/s means no limit.

    A reordered packet is not delayed, so it overtakes packets that wait for `delay_ms`. There is no
    corruption: a corrupt packet is a lost one, because the receiver drops it by its checksum.
    """

    loss: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    rate_bytes_per_s: int = 0
    duplicate: float = 0.0
    reorder: float = 0.0


class LinkRule(NamedTuple):
    """A link with its source and target."""

    source: int
    target: int
    link: Link


WHOLE = Link()


class RuleInvalid(ValueError):
    """A rule has an invalid value; the message names it."""


def rules_of(packed: object) -> list[LinkRule]:
    """Parse the rules of a message: [source, target, [fields of Link]] each. Raises RuleInvalid."""
    if not isinstance(packed, list):
        raise RuleInvalid(f"rules: expected an array, got {type(packed).__name__}")
    return [_rule_of(one) for one in packed]


def _rule_of(packed: Any) -> LinkRule:
    match packed:
        case [source, target, list(fields)] if len(fields) == len(Link._fields):
            pass
        case _:
            raise RuleInvalid(
                f"rule {packed!r:.80}: expected [source, target, [{', '.join(Link._fields)}]]"
            )
    for name, end in (("source", source), ("target", target)):
        if type(end) is not int or not 0 <= end <= END_MAX:
            raise RuleInvalid(f"{name} {end!r:.80}: expected an integer from 0 to {END_MAX}")
    highest = Link(1.0, TIME_MS_MAX, TIME_MS_MAX, RATE_MAX, 1.0, 1.0)
    for name, value, most in zip(Link._fields, fields, highest, strict=True):
        # bool is a subclass of int; NaN fails every comparison.
        is_number = type(value) is int or (type(value) is float and math.isfinite(value))
        if not is_number or not 0 <= value <= most:
            raise RuleInvalid(f"{name} {value!r:.80}: expected a number from 0 to {most:g}")
    return LinkRule(source, target, Link(*fields))


class Links:
    """The rules of all links; decides for each packet when it arrives."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._links: dict[tuple[int, int], Link] = {}
        self._free_ms: dict[tuple[int, int], float] = {}

    def set(self, rules: Iterable[LinkRule]) -> None:
        """Replace all rules: links that `rules` does not name become whole."""
        self._links = {(rule.source, rule.target): rule.link for rule in rules}
        self._free_ms.clear()

    def change(self, rules: Iterable[LinkRule]) -> None:
        """Change the links that `rules` names; all others keep their rules."""
        for rule in rules:
            ends = (rule.source, rule.target)
            self._free_ms.pop(ends, None)
            if rule.link == WHOLE:
                self._links.pop(ends, None)
            else:
                self._links[ends] = rule.link

    @property
    def rules(self) -> list[LinkRule]:
        """Every link that is not whole, sorted by its ends."""
        return [LinkRule(*ends, link) for ends, link in sorted(self._links.items())]

    def is_whole(self, source: int, target: int) -> bool:
        return (source, target) not in self._links

    def arrivals(self, source: int, target: int, size_bytes: int, now_ms: float) -> list[float]:
        """Return the packet's arrival times in ms: none if it is lost, two if it is duplicated."""
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
    """Packets that arrive later, ordered by arrival time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._bytes = 0

    def add(self, at_ms: float, target: int, packet: bytes) -> None:
        """Hold a packet back, or drop it if the held packets exceed UNDERWAY_BYTES_MAX."""
        if self._bytes + len(packet) > UNDERWAY_BYTES_MAX:
            return
        self._bytes += len(packet)
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, target, packet))

    def due(self, now_ms: float) -> list[tuple[int, bytes]]:
        """Remove and return (target, packet) of the packets that arrive by `now_ms`."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, target, packet = heapq.heappop(self._heap)
            self._bytes -= len(packet)
            found.append((target, packet))
        return found

    @property
    def next_ms(self) -> float | None:
        """The arrival time of the next packet, None if no packet waits."""
        return self._heap[0][0] if self._heap else None
