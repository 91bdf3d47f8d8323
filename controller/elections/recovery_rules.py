"""Rules of unclean recovery: what a partition without leader waits for, and who is to lead it.

Nobody who is alive is sure to hold every committed record. So the replicas say how far their logs
reach, and the one with the most leads (KIP-966). Which answers are needed is the strategy's:

- AGGRESSIVE: of every replica that is alive; after the timeout those that came, at least one.
- BALANCED: only where ISR and ELR have no member; of every replica that may have everything,
  however long that takes, and of each other one that is alive until the timeout. While some of the
  former are gone nothing can be decided, but those that are alive are asked already: their logs
  stand still, so what they say holds until they begin another life, and when the last comes it
  alone has to answer.
- NONE: an operator decides.

Those that may have everything are LastKnownELR, if ISR, ELR and it have effective min ISR members
together: whatever was committed is on each set of so many. If they have fewer, some were forgotten,
and every replica counts as one.

A member of ISR or ELR that can lead is better than any comparison and ends it.
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
    """What a partition without leader waits for. The values are labels of metrics."""

    CLEAN_CANDIDATE = "clean-candidate"
    """One of ISR and ELR that can lead."""
    LAST_KNOWN = "last-known"
    """All that may have everything, to be alive."""
    ANYBODY = "any-replica"
    ANSWERS = "answers"
    OPERATOR = "operator"

    __hash__ = object.__hash__  # that of `Enum` is a call, and ten thousand partitions ask for it


@dataclass(frozen=True)
class Standing:
    """A partition without leader. `alive` are the replicas that could lead as far as their brokers
    and directories go; `min_isr` is the effective one. All in assignment order. Ten thousand
    partitions share a few of these, so what follows from one is found once."""

    replicas: tuple[int, ...]
    alive: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    min_isr: int

    @cached_property
    def clean(self) -> tuple[int, ...]:
        """Those that hold every committed record."""
        return tuple(r for r in self.replicas if r in self.isr or r in self.elr)

    @cached_property
    def may_have_everything(self) -> tuple[int, ...]:
        """Where no replica is sure to: those of which one has."""
        known = {*self.isr, *self.elr, *self.last_known}
        if len(known) < self.min_isr:
            return self.replicas
        return tuple(r for r in self.replicas if r in self.last_known)

    @cached_property
    def gone(self) -> tuple[int, ...]:
        """Those of them that are not alive."""
        return tuple(r for r in self.may_have_everything if r not in self.alive)


class Verdict(NamedTuple):
    """`winner` is to lead now; while there is none, `waits` says what for and `brokers` whom.
    `early`: whose answers will be needed, though it waits for others first."""

    winner: int | None
    waits: WaitsFor | None = None
    brokers: tuple[int, ...] = ()
    early: tuple[int, ...] = ()

    @property
    def needed(self) -> tuple[int, ...]:
        """Whose answers are needed, and all that is missing."""
        return self.brokers if self.waits is WaitsFor.ANSWERS else ()

    @property
    def asked(self) -> tuple[int, ...]:
        """Whose answers are asked for now."""
        return self.brokers if self.waits is WaitsFor.ANSWERS else self.early


def judge(
    strategy: RecoveryStrategy,
    standing: Standing,
    answers: Mapping[int, LogFact],
    *,
    overdue: bool,
) -> Verdict:
    """What is next for a partition whose recovery follows `strategy`.

    `answers` are those that count: of the broker's life now, at the partition's leader epoch.
    `overdue`: it has asked for longer than the timeout.
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
    """What it waits for where the manager is off: nobody is asked. Of several in LastKnownELR, left
    from when it was on, none counts as the last known leader."""
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
    """The most data of those alive that have answered: by the last batch's epoch, then by the log
    end; of equal ones the first in the assignment."""
    answered = [r for r in standing.alive if r in answers]
    # The first two fields of a fact.
    return max(answered, key=lambda r: answers[r][:2])
