"""The schedule of faults, from a seed. Pure.

A run alternates faults and recoveries, so that each fault meets a whole cluster: what breaks then
is its doing. Kinds come in shuffled rounds: a short run sees many kinds, a long one each of them
often. Whom a fault hits is decided when it begins, because that depends on who leads then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LENGTH_S = (3.0, 12.0)


class Step(NamedTuple):
    """One fault: its kind, how long it lasts, and the randomness that chooses its victims."""

    kind: str
    length_s: float
    draw: int


def steps(
    rng: random.Random, kinds: Sequence[str], length_s: tuple[float, float] = LENGTH_S
) -> Iterator[Step]:
    """Faults without end. Raises ValueError without kinds."""
    if not kinds:
        raise ValueError("no kind of fault to choose from")
    while True:
        for kind in rng.sample(list(kinds), len(kinds)):
            yield Step(kind, round(rng.uniform(*length_s), 1), rng.getrandbits(32))
