"""ELR and LastKnownELR, from the ISR that a change leaves (KIP-966).

The eligible leader replicas hold every record below the high watermark although they are not in the
ISR: they left it while it was below min ISR, and below min ISR the high watermark stands still. As
soon as the ISR is at min ISR it may move without them, so then there are none.

That is a statement about the ISR which the change ends with. An election may be what makes it: one
from the ELR at min ISR 1 brings the ISR to min ISR by itself, and who else was in the ELR is out of
date from then on (P9). So the sets are computed when the election is decided, never before it; for
the election itself `standing_elr` says who stands beside the target ISR.

LastKnownELR is a hint for elections that may lose records, never a promise. It has two modes:

- `LAST_LEADER` (as in Kafka): the leader that a partition lost when it became leaderless, or the
  last member of an ISR that emptied after that. It is forgotten when somebody leads.
- `WHOLE_SET` (with the unclean recovery manager): every replica that ever was in ISR or ELR since
  the ISR fell below min ISR, and is in neither now. An unclean election moves the ELR into it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from metalog.image.values import NO_LEADER, PartitionImage


class LastKnownMode(Enum):
    """What LastKnownELR holds."""

    LAST_LEADER = "last leader"
    WHOLE_SET = "whole set"


class EligibleSets(NamedTuple):
    """Both sets of a partition, in the order in which the replicas left."""

    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


class Outcome(NamedTuple):
    """What a change ends with: the partition as its election leaves it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    unclean: bool


NOBODY_ELSE = EligibleSets()


def effective_min_isr(min_isr: int, replica_count: int) -> int:
    """min ISR, but never more than there are replicas (KIP-966)."""
    return min(min_isr, replica_count)


def standing_elr(
    before: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    min_isr: int,
    unclean_shutdown: frozenset[int],
) -> tuple[int, ...]:
    """Who holds everything beside the members of `isr`, the target of a change."""
    if len(isr) >= effective_min_isr(min_isr, len(replicas)):
        return ()
    return tuple(
        r for r in _former(before) if r in replicas and r not in isr and r not in unclean_shutdown
    )


def eligible_sets(
    before: PartitionImage,
    after: Outcome,
    *,
    min_isr: int,
    unclean_shutdown: frozenset[int],
    mode: LastKnownMode,
) -> EligibleSets:
    """The sets of a partition whose change ends with `after`."""
    if len(after.isr) >= effective_min_isr(min_isr, len(after.replicas)):
        return NOBODY_ELSE
    # What the old ISR held is given up with an unclean election: nobody comes back as clean.
    elr = (
        ()
        if after.unclean
        else standing_elr(
            before,
            after.replicas,
            after.isr,
            min_isr=min_isr,
            unclean_shutdown=unclean_shutdown,
        )
    )
    return EligibleSets(elr, _last_known(before, after, elr, mode))


def _former(before: PartitionImage) -> tuple[int, ...]:
    """ISR and ELR before the change."""
    return (*before.isr, *(r for r in before.elr if r not in before.isr))


def _last_known(
    before: PartitionImage, after: Outcome, elr: tuple[int, ...], mode: LastKnownMode
) -> tuple[int, ...]:
    known = before.last_known_elr
    if mode is LastKnownMode.WHOLE_SET:
        return tuple(
            r
            for r in dict.fromkeys((*_former(before), *known))
            if r in after.replicas and r not in after.isr and r not in elr
        )
    if after.leader != NO_LEADER:
        return ()
    if before.leader in after.replicas:
        # Whatever is there is of a whole set: the manager was on.
        return (before.leader,)
    known = tuple(r for r in known if r in after.replicas and r not in after.isr)
    return known or tuple(r for r in _last_member(before, after) if r in after.replicas)


def _last_member(before: PartitionImage, after: Outcome) -> tuple[int, ...]:
    """Where nobody led any more: the last member of the ISR.

    Brokers that end together leave one by one, and get no leadership meanwhile. So a partition may
    be leaderless while its ISR still has min ISR, when there is no LastKnownELR yet.
    """
    return () if after.isr or before.leader != NO_LEADER else before.isr[:1]
