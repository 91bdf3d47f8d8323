"""The choice of a leader, compared with a slow second implementation of the documented order."""

from __future__ import annotations

import itertools

import pytest

from controller.elections.election import (
    NOBODY,
    Candidates,
    Elected,
    Election,
    ThisBroker,
    Wish,
    elect,
)
from controller.elections.eligibility import ELIGIBLE, Eligibility, Ineligible, Reason
from metalog.image.values import NO_LEADER, ElectedAs

REPLICAS = (3, 1, 2)


LK = ElectedAs.LAST_KNOWN_LEADER
KINDS = {1: ElectedAs.ISR, 2: ElectedAs.ELR, 3: ElectedAs.UNCLEAN, 4: LK}
ELECTIONS: tuple[Election, ...] = (
    *Wish,
    *(ThisBroker(r, ElectedAs.UNCLEAN_RECOVERY) for r in REPLICAS),
    *(ThisBroker(r, ElectedAs.DESIGNATED) for r in REPLICAS),
)


def slow_step(candidates: Candidates, election: Election, replica: int, isr_lives: bool) -> int:
    """Return the step, of the four in the module's docstring, that elects a live replica; 0 for
    none."""
    if replica in candidates.isr:
        return 1
    if replica in candidates.elr and not isr_lives:
        return 2
    if isinstance(election, ThisBroker):
        return 3 if election.broker_id == replica else 0
    if election is Wish.UNCLEAN:
        return 3
    leads_last = candidates.last_known == replica and not candidates.isr and not candidates.elr
    return 4 if leads_last else 0


def slow_elect(candidates: Candidates, election: Election, alive: set[int]) -> Elected:
    """Take the best step, then the first replica in the order, with the documented exceptions."""
    ordered, current = candidates.ordered, candidates.current_leader
    isr_lives = any(r in alive for r in candidates.isr)
    steps = {r: slow_step(candidates, election, r, isr_lives) for r in ordered if r in alive}
    steps = {r: step for r, step in steps.items() if step}
    if not steps:
        return NOBODY
    leader = min(steps, key=lambda r: (steps[r], ordered.index(r)))
    kind = KINDS[steps[leader]]
    if election is Wish.PREFERRED and steps.get(ordered[0]) == 1 and current in candidates.isr:
        kind = ElectedAs.PREFERRED
    elif steps.get(current) == 1:
        leader = current
    elif isinstance(election, ThisBroker):
        if election.kind is ElectedAs.DESIGNATED and election.broker_id in steps:
            leader = election.broker_id
        kind = election.kind if steps[leader] == 3 else KINDS[steps[leader]]
    return Elected(leader, kind)


def subsets(values: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [
        chosen for size in range(len(values) + 1) for chosen in itertools.combinations(values, size)
    ]


def test_all_small_cases() -> None:
    count = 0
    for isr, alive in itertools.product(subsets(REPLICAS), subsets(REPLICAS)):
        outside = tuple(r for r in REPLICAS if r not in isr)
        for elr, leader in itertools.product(subsets(outside), (NO_LEADER, *REPLICAS)):
            for last_known, election in itertools.product((None, 1), ELECTIONS):
                candidates = Candidates(REPLICAS, leader, isr, elr, last_known)

                def eligibility_of(broker_id: int, alive: tuple[int, ...] = alive) -> Eligibility:
                    return ELIGIBLE if broker_id in alive else Ineligible(Reason.FENCED)

                expected = slow_elect(candidates, election, set(alive))
                assert elect(candidates, election, eligibility_of) == expected, (
                    candidates,
                    election,
                )
                count += 1
    assert count == 27 * 8 * 4 * 2 * 9


@pytest.mark.parametrize("kind", [ElectedAs.UNCLEAN_RECOVERY, ElectedAs.DESIGNATED])
def test_this_broker_must_be_a_replica(kind: ElectedAs) -> None:
    candidates = Candidates(REPLICAS, NO_LEADER, (), (), None)
    assert elect(candidates, ThisBroker(4, kind), lambda _: ELIGIBLE) == NOBODY


def test_elected_kinds_other_than_isr_preferred_and_elr_are_unclean() -> None:
    assert {kind for kind in ElectedAs if not Elected(1, kind).unclean} == {
        ElectedAs.NONE,
        ElectedAs.ISR,
        ElectedAs.PREFERRED,
        ElectedAs.ELR,
    }
