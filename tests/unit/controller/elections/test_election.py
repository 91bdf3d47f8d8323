"""The choice of a leader, against a slow second implementation of the written order."""

from __future__ import annotations

import itertools

from controller.elections.election import NOBODY, Candidates, Elected, ElectionKind, elect
from controller.elections.eligibility import ELIGIBLE, Eligibility, Ineligible, Reason
from metalog.image.values import NO_LEADER

REPLICAS = (3, 1, 2)


def slow_elect(candidates: Candidates, kind: ElectionKind, alive: set[int]) -> Elected:
    """Score every replica by the four steps of the module's text and take the best."""
    isr_lives = any(r in alive for r in candidates.isr)
    scores: dict[int, tuple[int, int]] = {}
    for position, replica in enumerate(candidates.ordered):
        if replica not in alive:
            continue
        if replica in candidates.isr:
            step = 1
        elif replica in candidates.elr and not isr_lives:
            step = 2
        elif kind is ElectionKind.UNCLEAN:
            step = 3
        elif candidates.last_known_elr == (replica,) and not candidates.isr and not candidates.elr:
            step = 4
        else:
            continue
        keeps = step == 1 and replica == candidates.current_leader
        if kind is ElectionKind.PREFERRED:
            keeps = keeps and not (
                candidates.ordered[0] in alive and candidates.ordered[0] in candidates.isr
            )
        scores[replica] = (step, -1 if keeps else position)
    if not scores:
        return NOBODY
    leader = min(scores, key=lambda r: scores[r])
    step = scores[leader][0]
    return Elected(
        leader,
        unclean=step > 2,
        from_elr=step == 2,
        last_known=step == 4,
        preferred=kind is ElectionKind.PREFERRED
        and step == 1
        and leader == candidates.ordered[0]
        and candidates.current_leader in candidates.isr,
    )


def subsets(values: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [
        chosen for size in range(len(values) + 1) for chosen in itertools.combinations(values, size)
    ]


def test_all_small_cases() -> None:
    count = 0
    for isr, alive in itertools.product(subsets(REPLICAS), subsets(REPLICAS)):
        outside = tuple(r for r in REPLICAS if r not in isr)
        for elr, leader in itertools.product(subsets(outside), (NO_LEADER, *REPLICAS)):
            for last_known, kind in itertools.product(((), (1,)), ElectionKind):
                candidates = Candidates(REPLICAS, leader, isr, elr, last_known)

                def eligibility_of(broker_id: int, alive: tuple[int, ...] = alive) -> Eligibility:
                    return ELIGIBLE if broker_id in alive else Ineligible(Reason.FENCED)

                expected = slow_elect(candidates, kind, set(alive))
                assert elect(candidates, kind, eligibility_of) == expected, (candidates, kind)
                count += 1
    assert count == 27 * 8 * 4 * 2 * 3
