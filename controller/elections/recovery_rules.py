"""Rules of unclean recovery: the next step and the winner for a leaderless partition (KIP-966).

No live replica is certain to hold every committed record. So the replicas report the ends of their
logs, and the one with the longest log leads. The strategy determines which answers are needed:

- AGGRESSIVE: those of all live replicas; after the timeout those received, at least one.
- BALANCED: only if ISR and ELR have no member. It needs the answer of every replica that may be
  complete, without a time limit, and until the timeout those of other live replicas. While one of
  the former is down nothing can be decided, but the live ones are queried already. Their logs do
  not change, so their answers hold until they restart, and only the last one to return has to
  answer.
- NONE: an operator decides.

The replicas that may be complete are LastKnownELR, if ISR, ELR and it together have at least
effective min ISR members: any committed record is on each set of that size. If they have fewer, the
set has lost members, and every replica may be complete.

A member of ISR or ELR that can lead is better than any comparison and ends the recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.log_facts import LogFact


class WaitsFor(Enum):
    """The kind of wait of a leaderless partition. The values are labels of metrics."""

    CLEAN_CANDIDATE = "clean-candidate"
    """A member of ISR or ELR that can lead."""
    LAST_KNOWN = "last-known"
    """All replicas that may be complete, to be live."""
    ANYBODY = "any-replica"
    ANSWERS = "answers"
    OPERATOR = "operator"

    # `Enum.__hash__` is a Python call, too slow for ten thousand partitions.
    __hash__ = object.__hash__


@dataclass(frozen=True)
class Standing:
    """State of a leaderless partition, in assignment order.

    alive: replicas whose brokers and directories allow them to lead. min_isr: the effective one.
    Ten thousand partitions share a few of these, so derived values are cached.
    """

    replicas: tuple[int, ...]
    alive: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    min_isr: int

    @cached_property
    def clean(self) -> tuple[int, ...]:
        """Replicas that hold every committed record."""
        return tuple(r for r in self.replicas if r in self.isr or r in self.elr)

    @cached_property
    def may_have_everything(self) -> tuple[int, ...]:
        """Replicas of which one holds every committed record, if no replica is certain to."""
        known = {*self.isr, *self.elr, *self.last_known}
        if len(known) < self.min_isr:
            return self.replicas
        return tuple(r for r in self.replicas if r in self.last_known)

    @cached_property
    def gone(self) -> tuple[int, ...]:
        """Replicas in `may_have_everything` that are not alive."""
        return tuple(r for r in self.may_have_everything if r not in self.alive)


class Verdict(NamedTuple):
    """The next step of a partition.

    winner: the replica to elect now. waits and brokers: without a winner, the kind of wait and its
    brokers. early: brokers whose answers will be needed, though the partition waits for others
    first.
    """

    winner: int | None
    waits: WaitsFor | None = None
    brokers: tuple[int, ...] = ()
    early: tuple[int, ...] = ()

    @property
    def needed(self) -> tuple[int, ...]:
        """Brokers whose missing answers are all that the decision needs."""
        return self.brokers if self.waits is WaitsFor.ANSWERS else ()

    @property
    def queried(self) -> tuple[int, ...]:
        """Brokers that are queried now."""
        return self.brokers if self.waits is WaitsFor.ANSWERS else self.early


def judge(
    strategy: RecoveryStrategy,
    standing: Standing,
    answers: Mapping[int, LogFact],
    *,
    overdue: bool,
) -> Verdict:
    """Return the next step for a partition that recovers by `strategy`.

    Args:
        answers: those that count, from the broker's current incarnation and with the partition's
            leader
            epoch.
        overdue: whether the recovery has waited for longer than the timeout.
    """
    clean = standing.clean
    for replica in clean:
        if replica in standing.alive:
            return Verdict(replica)
    if strategy is RecoveryStrategy.AGGRESSIVE:
        return _aggressive(standing, answers, overdue)
    if clean:
        return Verdict(None, WaitsFor.CLEAN_CANDIDATE, clean)
    if strategy is RecoveryStrategy.NONE:
        return Verdict(None, WaitsFor.OPERATOR)
    return _balanced(standing, answers, overdue)


def without_recovery(
    strategy: RecoveryStrategy, standing: Standing, *, last_known_electable: bool
) -> Verdict:
    """Return what a partition waits for while the recovery manager is off; no broker is queried.

    If LastKnownELR has several members, left from when it was on, none is the last known leader.
    """
    if strategy is RecoveryStrategy.AGGRESSIVE:
        return Verdict(None, WaitsFor.ANYBODY, standing.replicas)
    if standing.clean:
        return Verdict(None, WaitsFor.CLEAN_CANDIDATE, standing.clean)
    last_known = tuple(r for r in standing.replicas if r in standing.last_known)
    allowed = last_known_electable and strategy is not RecoveryStrategy.NONE
    if not allowed or len(last_known) != 1:
        return Verdict(None, WaitsFor.OPERATOR)
    return Verdict(None, WaitsFor.LAST_KNOWN, last_known)


def _aggressive(standing: Standing, answers: Mapping[int, LogFact], overdue: bool) -> Verdict:
    if not standing.alive:
        return Verdict(None, WaitsFor.ANYBODY, standing.replicas)
    missing = [r for r in standing.alive if r not in answers]
    if missing and not (overdue and len(missing) < len(standing.alive)):
        return Verdict(None, WaitsFor.ANSWERS, tuple(missing))
    return Verdict(_longest(standing, answers))


def _balanced(standing: Standing, answers: Mapping[int, LogFact], overdue: bool) -> Verdict:
    if standing.gone:
        early = tuple(r for r in standing.alive if r not in answers)
        return Verdict(None, WaitsFor.LAST_KNOWN, standing.gone, early)
    needed = standing.may_have_everything
    missing = [r for r in standing.alive if r not in answers and (r in needed or not overdue)]
    if missing:
        return Verdict(None, WaitsFor.ANSWERS, tuple(missing))
    return Verdict(_longest(standing, answers))


def _longest(standing: Standing, answers: Mapping[int, LogFact]) -> int:
    """Return the live replica with the longest log among those that have answered.

    Logs are compared by the epoch of the last batch, then by log end; of equal ones the first in
    the assignment wins.
    """
    answered = [r for r in standing.alive if r in answers]
    # the first two fields of a fact
    return max(answered, key=lambda r: answers[r][:2])
