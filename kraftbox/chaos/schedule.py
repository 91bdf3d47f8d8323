"""The schedule of faults, from a seed. Pure.

A run alternates faults and recoveries, so that each fault meets a whole cluster: what breaks then
is its doing. Kinds come in shuffled rounds: a short run sees many kinds, a long one each of them
often. Whom a fault hits is decided when it begins, because that depends on who leads then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from kraftbox.chaos.history import UNKNOWN_DRAW, History

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


def replayed(history: History, rng_of: Callable[[int], random.Random]) -> list[Step]:
    """The steps of a run, from what is left of it. Raises BadSchedule.

    The same kinds in the same order, as long, with the same draws: whom they hit depends on who
    leads then, too. Of an older history, which has no draws, they are those of its seed, which
    `rng_of` begins with.
    """
    if not history.faults:
        raise BadSchedule("there is no fault in it")
    if all(fault.draw != UNKNOWN_DRAW for fault in history.faults):
        return [Step(one.kind, one.length_ms / 1000, one.draw) for one in history.faults]
    seed, kinds = history.about.get("seed"), history.about.get("kinds")
    if not isinstance(seed, int) or not kinds:
        raise BadSchedule("it says neither what drew its faults nor its seed")
    drawn = steps(rng_of(seed), kinds)
    found = [next(drawn) for _ in history.faults]
    if [step.kind for step in found] != [fault.kind for fault in history.faults]:
        raise BadSchedule("its seed draws other faults: it was written by another release")
    return found


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
