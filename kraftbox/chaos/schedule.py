"""The schedule of faults, from a seed. Pure.

A run alternates faults and recoveries, so that each fault meets a whole cluster: what breaks then
is its doing. Kinds come in shuffled rounds: a short run sees many kinds, a long one each of them
often. Whom a fault hits is decided when it begins, because that depends on who leads then.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
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


class BadSchedule(Exception):
    """What is wrong with a schedule that somebody wrote."""


def written_steps(text: str, kinds: Collection[str]) -> list[Step]:
    """The steps of `{"faults": [{"kind": "kill-leader", "seconds": 5, "draw": 7}]}`, JSON or YAML.

    kinds: those that there are. `draw` (0) chooses the victims where several can be. Raises
    BadSchedule.
    """
    # No other run needs pydantic.
    from kraftbox.documents.base import BadDocument, parse
    from kraftbox.documents.others import ChaosSchedule

    try:
        found = parse(ChaosSchedule, text)
    except BadDocument as error:
        raise BadSchedule(str(error)) from None
    for number, fault in enumerate(found.faults):
        if fault.kind not in kinds:
            raise BadSchedule(f"faults.{number}.kind: {fault.kind!r} is none of {', '.join(kinds)}")
    return [Step(fault.kind, fault.seconds, fault.draw) for fault in found.faults]
