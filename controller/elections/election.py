"""Choice of a partition's leader, as a pure function over candidates.

Order of preference (KIP-966, election order 1 to 4 without the recovery manager):

1. an eligible ISR member,
2. with ELR: an eligible ELR member,
3. if unclean election is allowed: any eligible replica; or the one replica that is named,
4. with ELR: the last known leader, once ISR and ELR are both empty.

1 and 2 are clean and lose no records; 3 and 4 may lose committed records. Within each step the
candidates are tried in election order, which may differ from the assignment.

An election is a value: a `Wish`, or `ThisBroker` with a kind. This module does not know how that
broker was chosen: by a recovery that compared logs, or by an operator. Only a designation passes
over clean candidates that could lead. No election replaces a leader that may stay.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from controller.elections.eligibility import ReplicaEligibility, is_eligible
from metalog.image.values import LOSSY_ELECTIONS, NO_LEADER, ElectedAs
from runtime.marks import mark


class Wish(Enum):
    """The kind of election that the caller requests."""

    ONLINE = "online"
    """Keep the leader while it may lead; otherwise elect the first clean candidate."""
    PREFERRED = "preferred"
    """Elect the first candidate of the order if it may lead cleanly; otherwise as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE; without a clean candidate, elect any other eligible replica."""


class ThisBroker(NamedTuple):
    """Elect this broker, if it may lead and no leader stays.

    `kind` is recorded if the broker is outside of ISR and ELR. UNCLEAN_RECOVERY yields to a clean
    candidate, DESIGNATED does not.
    """

    broker_id: int
    kind: ElectedAs


Election: TypeAlias = Wish | ThisBroker


class Elected(NamedTuple):
    """The result of an election.

    leader: NO_LEADER if no broker may lead. kind: how it became the leader; ISR if it stays.
    """

    leader: int
    kind: ElectedAs = ElectedAs.ISR

    @property
    def unclean(self) -> bool:
        """True if the leader may lack committed records."""
        return self.kind in LOSSY_ELECTIONS

    @property
    def from_elr(self) -> bool:
        return self.kind is ElectedAs.ELR


class Candidates(NamedTuple):
    """The candidates of an election.

    ordered: every target replica, in election order. last_known: the replica that may lead if ISR
    and ELR are empty, None without one.
    """

    ordered: tuple[int, ...]
    current_leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: int | None


RARE: Final = {
    ElectedAs.ELR: "controller.elr-election",
    ElectedAs.LAST_KNOWN_LEADER: "controller.last-known-leader",
    ElectedAs.UNCLEAN: "controller.unclean-election",
    ElectedAs.UNCLEAN_RECOVERY: "controller.unclean-election",
    ElectedAs.PREFERRED: "controller.preferred-election",
}
NOBODY = Elected(NO_LEADER, ElectedAs.NONE)


def elect(
    candidates: Candidates, election: Election, eligibility_of: ReplicaEligibility
) -> Elected:
    """Choose a leader by the order of preference in the module docstring."""
    elected = NOBODY
    if election is Wish.PREFERRED:
        elected = _elect_preferred(candidates, eligibility_of)
    elif isinstance(election, ThisBroker) and election.kind is ElectedAs.DESIGNATED:
        elected = _elect_this(candidates, election, eligibility_of)
    if elected is NOBODY:
        elected = _elect_clean(candidates, eligibility_of)
    if elected is NOBODY:
        elected = _elect_uncleanly(candidates, election, eligibility_of)
    if elected.kind in RARE:
        mark(RARE[elected.kind])
    return elected


def _elect_preferred(candidates: Candidates, eligibility_of: ReplicaEligibility) -> Elected:
    first = candidates.ordered[0]
    if not is_eligible(eligibility_of(first)):
        return NOBODY
    if first in candidates.isr:
        gives_way = candidates.current_leader in candidates.isr
        return Elected(first, ElectedAs.PREFERRED if gives_way else ElectedAs.ISR)
    if first in _electable_elr(candidates, eligibility_of):
        return Elected(first, ElectedAs.ELR)
    return NOBODY


def _elect_this(
    candidates: Candidates, wanted: ThisBroker, eligibility_of: ReplicaEligibility
) -> Elected:
    """Elect that broker if no leader stays, as a clean election if it is a clean candidate."""
    if _stays(candidates, eligibility_of) or not is_eligible(eligibility_of(wanted.broker_id)):
        return NOBODY
    if wanted.broker_id in candidates.isr:
        return Elected(wanted.broker_id)
    if wanted.broker_id in _electable_elr(candidates, eligibility_of):
        return Elected(wanted.broker_id, ElectedAs.ELR)
    if wanted.broker_id in candidates.ordered:
        return Elected(wanted.broker_id, wanted.kind)
    return NOBODY


def _elect_clean(candidates: Candidates, eligibility_of: ReplicaEligibility) -> Elected:
    if _stays(candidates, eligibility_of):
        return Elected(candidates.current_leader)
    in_isr = tuple(r for r in candidates.ordered if r in candidates.isr)
    elected = _first_eligible(in_isr, eligibility_of)
    if elected is NOBODY:
        in_elr = tuple(r for r in candidates.ordered if r in candidates.elr)
        elected = _first_eligible(in_elr, eligibility_of, ElectedAs.ELR)
    return elected


def _elect_uncleanly(
    candidates: Candidates, election: Election, eligibility_of: ReplicaEligibility
) -> Elected:
    if isinstance(election, ThisBroker):
        return _elect_this(candidates, election, eligibility_of)
    elected = NOBODY
    if election is Wish.UNCLEAN:
        elected = _first_eligible(candidates.ordered, eligibility_of, ElectedAs.UNCLEAN)
    if elected is NOBODY and not candidates.isr and not candidates.elr:
        last_known = tuple(r for r in candidates.ordered if r == candidates.last_known)
        elected = _first_eligible(last_known, eligibility_of, ElectedAs.LAST_KNOWN_LEADER)
    return elected


def _stays(candidates: Candidates, eligibility_of: ReplicaEligibility) -> bool:
    """Return whether the current leader may continue."""
    current = candidates.current_leader
    return current in candidates.isr and is_eligible(eligibility_of(current))


def _electable_elr(candidates: Candidates, eligibility_of: ReplicaEligibility) -> tuple[int, ...]:
    """Return the ELR members if they are candidates: only while no ISR member is eligible, since
    ISR members have at least as many records."""
    if any(is_eligible(eligibility_of(member)) for member in candidates.isr):
        return ()
    return candidates.elr


def _first_eligible(
    replicas: tuple[int, ...],
    eligibility_of: ReplicaEligibility,
    kind: ElectedAs = ElectedAs.ISR,
) -> Elected:
    for replica in replicas:
        if is_eligible(eligibility_of(replica)):
            return Elected(replica, kind)
    return NOBODY
