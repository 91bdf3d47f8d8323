"""The choice of a leader: a pure function over candidates.

Order of preference (KIP-966, election order 1 to 4 without the recovery manager):

1. an eligible ISR member,
2. with ELR: an eligible ELR member,
3. where unclean election is allowed: any eligible replica,
4. with ELR: the last known leader, once ISR and ELR are both empty.

1 and 2 lose nothing and are clean; 3 and 4 may lose committed records and are not. Within each step
the candidates are tried in the election order, which is not necessarily the assignment.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from controller.elections.eligibility import ReplicaEligibility, is_eligible
from metalog.image.values import NO_LEADER, ElectedAs


class ElectionKind(Enum):
    """What the caller wants from an election."""

    ONLINE = "online"
    """Keep the leader while it may lead; otherwise the first clean candidate."""
    PREFERRED = "preferred"
    """The first candidate of the order if it may lead cleanly; otherwise as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, and a replica outside of ISR and ELR where nobody else is left."""


class Elected(NamedTuple):
    """`leader` is NO_LEADER when nobody may lead. `from_elr` counts as clean, `last_known` is a way
    of being `unclean`.

    `preferred`: the first of the order was taken, though the leader could have stayed.
    """

    leader: int
    unclean: bool = False
    from_elr: bool = False
    last_known: bool = False
    preferred: bool = False

    @property
    def elected_as(self) -> ElectedAs:
        """The kind to note beside a leader that is new."""
        if self.leader == NO_LEADER:
            return ElectedAs.NONE
        if self.last_known:
            return ElectedAs.LAST_KNOWN_LEADER
        if self.unclean:
            return ElectedAs.UNCLEAN
        if self.from_elr:
            return ElectedAs.ELR
        return ElectedAs.PREFERRED if self.preferred else ElectedAs.ISR


class Candidates(NamedTuple):
    """Who stands for election. `ordered` is in election order and holds every target replica."""

    ordered: tuple[int, ...]
    current_leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


NOBODY = Elected(NO_LEADER)


def elect(
    candidates: Candidates, kind: ElectionKind, eligibility_of: ReplicaEligibility
) -> Elected:
    """Choose a leader."""
    if kind is ElectionKind.PREFERRED:
        preferred = candidates.ordered[:1]
        for clean in (candidates.isr, _electable_elr(candidates, eligibility_of)):
            if preferred and preferred[0] in clean and is_eligible(eligibility_of(preferred[0])):
                from_elr = clean is not candidates.isr
                gives_way = not from_elr and candidates.current_leader in candidates.isr
                return Elected(preferred[0], from_elr=from_elr, preferred=gives_way)
    elected = _elect_clean(candidates, eligibility_of)
    if elected is NOBODY and kind is ElectionKind.UNCLEAN:
        elected = _first_eligible(candidates.ordered, eligibility_of, unclean=True)
    if elected is NOBODY:
        elected = _elect_last_known(candidates, eligibility_of)
    return elected


def _elect_clean(candidates: Candidates, eligibility_of: ReplicaEligibility) -> Elected:
    current = candidates.current_leader
    if current in candidates.isr and is_eligible(eligibility_of(current)):
        return Elected(current)
    in_isr = tuple(r for r in candidates.ordered if r in candidates.isr)
    elected = _first_eligible(in_isr, eligibility_of)
    if elected is NOBODY:
        in_elr = tuple(r for r in candidates.ordered if r in candidates.elr)
        elected = _first_eligible(in_elr, eligibility_of, from_elr=True)
    return elected


def _electable_elr(candidates: Candidates, eligibility_of: ReplicaEligibility) -> tuple[int, ...]:
    """ELR members are candidates only while no ISR member is: the ISR has more than them."""
    if any(is_eligible(eligibility_of(member)) for member in candidates.isr):
        return ()
    return candidates.elr


def _elect_last_known(candidates: Candidates, eligibility_of: ReplicaEligibility) -> Elected:
    if candidates.isr or candidates.elr or len(candidates.last_known_elr) != 1:
        return NOBODY
    last_known = tuple(r for r in candidates.ordered if r in candidates.last_known_elr)
    elected = _first_eligible(last_known, eligibility_of, unclean=True)
    return NOBODY if elected is NOBODY else elected._replace(last_known=True)


def _first_eligible(
    replicas: tuple[int, ...],
    eligibility_of: ReplicaEligibility,
    *,
    unclean: bool = False,
    from_elr: bool = False,
) -> Elected:
    for replica in replicas:
        if is_eligible(eligibility_of(replica)):
            return Elected(replica, unclean=unclean, from_elr=from_elr)
    return NOBODY
