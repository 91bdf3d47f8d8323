"""The schedule of faults, from a seed. Pure.

A run alternates faults and recoveries, so that each fault meets a whole cluster: what breaks then
is its doing. Kinds come in shuffled rounds: a short run sees many kinds, a long one each of them
often. Whom a fault hits is decided when it begins, because that depends on who leads then.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

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
    """The steps of `{"faults": [{"kind": "kill-leader", "seconds": 5, "draw": 7}]}`.

    kinds: those that there are. `draw` (0) chooses the victims where several can be. Raises
    BadSchedule.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadSchedule(f"no JSON: {error}") from None
    faults = document.get("faults") if isinstance(document, dict) else None
    if not isinstance(faults, list) or not faults:
        raise BadSchedule('no {"faults": [...]} with at least one')
    return [_step(number, fault, kinds) for number, fault in enumerate(faults, start=1)]


def _step(number: int, fault: Any, kinds: Collection[str]) -> Step:
    if not isinstance(fault, dict) or not fault.keys() <= {"kind", "seconds", "draw"}:
        raise BadSchedule(f"fault {number} is not an object of kind, seconds and draw")
    kind: Any = fault.get("kind")
    seconds: Any = fault.get("seconds")
    draw: Any = fault.get("draw", 0)
    if kind not in kinds:
        raise BadSchedule(f"fault {number}: {kind!r} is none of {', '.join(kinds)}")
    if type(seconds) not in (int, float) or not 0 <= seconds < 3600:
        raise BadSchedule(f"fault {number}: seconds {seconds!r} is no number below 3600")
    if type(draw) is not int:
        raise BadSchedule(f"fault {number}: draw {draw!r} is no whole number")
    return Step(kind, float(seconds), draw)
