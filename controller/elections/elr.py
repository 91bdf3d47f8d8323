"""ELR and LastKnownELR after a partition change, computed from the resulting ISR (KIP-966).

Eligible leader replicas hold every record below the high watermark although they are not in the
ISR. They left it while it was below min ISR, when the high watermark cannot advance. As soon as the
ISR is at min ISR, the high watermark may advance without them, so the ELR becomes empty.

The ELR depends on the ISR at the end of the change, and an election may determine that ISR. An
election from the ELR at min ISR 1 brings the ISR to min ISR by itself; from then on the other ELR
members may lack records (P9). So the sets are computed after the election is decided, never before.
For the election itself, `standing_elr` returns the ELR next to the target ISR.

LastKnownELR is a hint for elections that may lose records, never a guarantee. It has two modes:

- `LAST_LEADER` (as in Kafka): the last leader of a leaderless partition, or the last member of an
  ISR that became empty after that. It is cleared when a leader is elected.
- `WHOLE_SET` (with the unclean recovery manager): every replica that was in ISR or ELR since the
  ISR fell below min ISR, and is in neither now. An unclean election moves the ELR into it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from metalog.image.values import NO_LEADER, PartitionImage


class LastKnownMode(Enum):
    """Contents of LastKnownELR."""

    LAST_LEADER = "last leader"
    WHOLE_SET = "whole set"


class EligibleSets(NamedTuple):
    """ELR and LastKnownELR of a partition, in the order in which the replicas left the ISR."""

    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


class StateAfterChange(NamedTuple):
    """The state of a partition after a change, including its election."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    unclean: bool


NOBODY_ELSE = EligibleSets()


def effective_min_isr(min_isr: int, replica_count: int) -> int:
    """Return min ISR, capped at the number of replicas (KIP-966)."""
    return min(min_isr, replica_count)


def standing_elr(
    before: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    min_isr: int,
    unclean_shutdown: frozenset[int],
) -> tuple[int, ...]:
    """Return the ELR next to `isr`, the target ISR of a change: complete replicas outside of it."""
    if len(isr) >= effective_min_isr(min_isr, len(replicas)):
        return ()
    return tuple(
        r for r in _former(before) if r in replicas and r not in isr and r not in unclean_shutdown
    )


def eligible_sets(
    before: PartitionImage,
    after: StateAfterChange,
    *,
    min_isr: int,
    unclean_shutdown: frozenset[int],
    mode: LastKnownMode,
) -> EligibleSets:
    """Return the sets of a partition whose change results in `after`."""
    if len(after.isr) >= effective_min_isr(min_isr, len(after.replicas)):
        return NOBODY_ELSE
    # An unclean election abandons the old ISR's records: no earlier member counts as clean.
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
    """Return ISR and ELR before the change."""
    return (*before.isr, *(r for r in before.elr if r not in before.isr))


def _last_known(
    before: PartitionImage, after: StateAfterChange, elr: tuple[int, ...], mode: LastKnownMode
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
        # Anything else in the set is left from WHOLE_SET mode: the recovery manager was on.
        return (before.leader,)
    known = tuple(r for r in known if r in after.replicas and r not in after.isr)
    return known or tuple(r for r in _last_member(before, after) if r in after.replicas)


def _last_member(before: PartitionImage, after: StateAfterChange) -> tuple[int, ...]:
    """Return the last member of the ISR of a leaderless partition, if the ISR becomes empty.

    Brokers that end together leave one by one, and get no leadership in the meantime. So a
    partition may be leaderless while its ISR is still at min ISR and LastKnownELR is empty.
    """
    return () if after.isr or before.leader != NO_LEADER else before.isr[:1]
