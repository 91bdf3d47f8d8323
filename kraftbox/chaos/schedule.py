"""Fault schedules, drawn from a seed, replayed or written. Pure.

A run alternates faults and recoveries, so that each fault hits a whole cluster and causes what
breaks then. Kinds come in shuffled rounds: a short run has many kinds, a long one has each of them
often. The victims are selected when a fault begins, because they depend on the current leaders.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from kraftbox.chaos.history import UNKNOWN_DRAW, History

LENGTH_S = (3.0, 12.0)


class Step(NamedTuple):
    """One fault: its kind, its duration, and the random number that selects its victims."""

    kind: str
    length_s: float
    draw: int


def steps(
    rng: random.Random, kinds: Sequence[str], length_s: tuple[float, float] = LENGTH_S
) -> Iterator[Step]:
    """Yield faults without end. Raises ValueError if `kinds` is empty."""
    if not kinds:
        raise ValueError("no kind of fault to choose from")
    while True:
        for kind in rng.sample(list(kinds), len(kinds)):
            yield Step(kind, round(rng.uniform(*length_s), 1), rng.getrandbits(32))


def replayed(history: History, rng_of: Callable[[int], random.Random]) -> list[Step]:
    """Return the steps of a recorded run. Raises BadSchedule.

    They have the same kinds, durations and draws; the victims also depend on the leaders at that
    time. An older history has no draws: then its seed draws the steps again, with `rng_of(seed)`.
    """
    if not history.faults:
        raise BadSchedule("the schedule has no faults")
    if all(fault.draw != UNKNOWN_DRAW for fault in history.faults):
        return [Step(one.kind, one.length_ms / 1000, one.draw) for one in history.faults]
    seed, kinds = history.about.get("seed"), history.about.get("kinds")
    if not isinstance(seed, int) or not kinds:
        raise BadSchedule("the history has neither the draws of its faults nor a seed and kinds")
    drawn = steps(rng_of(seed), kinds)
    found = [next(drawn) for _ in history.faults]
    if [step.kind for step in found] != [fault.kind for fault in history.faults]:
        raise BadSchedule("the seed of the history draws other faults in this release")
    return found


class BadSchedule(Exception):
    """A schedule is invalid; the message has the reason."""


def written_steps(text: str, kinds: Collection[str]) -> list[Step]:
    """Parse `{"faults": [{"kind": "kill-leader", "seconds": 5, "draw": 7}]}`, JSON or YAML.

    `kinds` are the known kinds. `draw` (default 0) selects the victims if several are possible.
    Raises BadSchedule.
    """
    # Imported here, because only runs with a written schedule need pydantic.
    from kraftbox.documents.base import BadDocument, parse
    from kraftbox.documents.others import ChaosSchedule

    try:
        found = parse(ChaosSchedule, text)
    except BadDocument as error:
        raise BadSchedule(str(error)) from None
    for number, fault in enumerate(found.faults):
        if fault.kind not in kinds:
            raise BadSchedule(
                f"faults.{number}.kind: invalid kind {fault.kind!r}; allowed: {', '.join(kinds)}"
            )
    return [Step(fault.kind, fault.seconds, fault.draw) for fault in found.faults]
