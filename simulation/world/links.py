"""Links between hosts, one way each: delays, cuts, and the troubles that faults lay on them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

LATE_MS_MAX = 3_000.0
"""The most by which a trouble delays a chunk."""
LATE_TAIL = 1.2
"""The Pareto exponent of lateness: half of all chunks are late by less than twice the minimum, one
in a hundred by more than forty times of it."""
HEAD_BYTES = 8
"""The length of a frame and the following bytes. Chunks are split there more often."""


@dataclass(eq=False)
class Trouble:
    """The effects of one fault on the links that it lies on, with their counts.

    Args:
        rng: the fault's own random stream.
        late_ms: the minimum lateness of a chunk, with a heavy tail above it.
        bytes_per_s: the throughput of all its links together, 0: unlimited.
        reset_chance: the probability that a chunk arrives in part and its connection is reset then.
        pieces_max: the most pieces in which a chunk arrives, each with a delay of its own.
        window_bytes: the sender is paused while more than that is in flight, None: the connection's
            own
            limit.
    """

    rng: random.Random
    late_ms: float = 0.0
    bytes_per_s: float = 0.0
    reset_chance: float = 0.0
    pieces_max: int = 1
    window_bytes: int | None = None
    hits: Counter[str] = field(default_factory=Counter)
    """Number of effects by kind: late, slow, reset, pieces, blocked, vanished."""
    busy_until_s: float = 0.0

    def wait_s(self, now_s: float, size_bytes: int) -> float:
        """Return the additional travel time of a chunk in seconds."""
        wait_s = 0.0
        if self.late_ms:
            self.hits["late"] += 1
            late_ms = self.late_ms * self.rng.paretovariate(LATE_TAIL)
            wait_s += min(late_ms, LATE_MS_MAX) / 1000
        if self.bytes_per_s:
            self.hits["slow"] += self.busy_until_s > now_s
            self.busy_until_s = max(self.busy_until_s, now_s) + size_bytes / self.bytes_per_s
            wait_s += self.busy_until_s - now_s
        return wait_s

    def part_before_reset(self, chunk: bytes) -> bytes | None:
        """Return the part of a chunk that arrives before the reset, None without a reset."""
        if len(chunk) < 2 or not self.reset_chance or self.rng.random() >= self.reset_chance:
            return None
        self.hits["reset"] += 1
        return chunk[: self.rng.randrange(1, len(chunk))]

    def pieces(self, chunk: bytes) -> list[bytes]:
        """Return the pieces in which the chunk arrives."""
        if self.pieces_max < 2 or len(chunk) < 2:
            return [chunk]
        self.hits["pieces"] += 1
        cuts = {
            self.rng.randrange(1, min(len(chunk), HEAD_BYTES if low else len(chunk)) + 1)
            for low in self.rng.choices((True, False), k=self.rng.randrange(1, self.pieces_max))
        }
        ends = [*sorted(cuts - {len(chunk)}), len(chunk)]
        return [chunk[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@dataclass
class Link:
    """The effect of the network on bytes between two hosts, one way."""

    delay_ms_min: float = 0.05
    delay_ms_max: float = 0.5
    cuts: int = 0
    """Number of faults that cut the link now."""
    late_chance: float = 0.0
    late_ms: float = 0.0
    """The probability that a chunk takes up to `late_ms` longer, with all behind it in its
    connection."""
    tail: float = 0.0
    """The Pareto exponent of delays above `delay_ms_min`, never above `delay_ms_max`; 0: delays are
    uniform between the two."""
    rng: random.Random | None = None
    """The link's own random stream; None: the network's, which all such links share."""
    held: int = 0
    """How often a cut kept a chunk from passing."""
    troubles: list[Trouble] = field(default_factory=list)
    """The troubles on the link now, besides cuts."""

    @property
    def cut(self) -> bool:
        """True if the link is cut. Setting it replaces the number of cuts by 0 or 1."""
        return self.cuts > 0

    @cut.setter
    def cut(self, cut: bool) -> None:
        self.cuts = int(cut)

    def delay_s(self, rng: random.Random) -> float:
        """Return the travel time of a chunk without troubles; `rng` is used unless the link has its
        own."""
        rng = self.rng or rng
        least_ms, most_ms = self.delay_ms_min, self.delay_ms_max
        if self.tail:
            delay_ms = min(least_ms * rng.paretovariate(self.tail), most_ms)
        else:
            delay_ms = least_ms + (most_ms - least_ms) * rng.random()
        if self.late_chance and rng.random() < self.late_chance:
            delay_ms += rng.uniform(0, self.late_ms)
        return delay_ms / 1000

    def wait_s(self, now_s: float, size_bytes: int) -> float:
        """Return the additional travel time by its troubles."""
        return sum(one.wait_s(now_s, size_bytes) for one in self.troubles)

    def pieces(self, chunk: bytes) -> list[bytes]:
        """Return the pieces in which the chunk arrives."""
        pieces = [chunk]
        for trouble in self.troubles:
            pieces = [part for one in pieces for part in trouble.pieces(one)]
        return pieces

    def part_before_reset(self, chunk: bytes) -> bytes | None:
        """Return the part of a chunk that arrives before its connection is reset, None without a
        reset."""
        for trouble in self.troubles:
            part = trouble.part_before_reset(chunk)
            if part is not None:
                return part
        return None

    def window_bytes(self, high: int) -> int:
        """Return the number of bytes in flight above which the sender waits; `high` without a
        trouble."""
        return min([high, *(t.window_bytes for t in self.troubles if t.window_bytes is not None)])

    def blocked(self) -> None:
        """Count that the sender waits, for each trouble with a window."""
        for trouble in self.troubles:
            trouble.hits["blocked"] += trouble.window_bytes is not None
