"""Transitions: cached effects of a change on a shape.

A transition contains everything that follows only from the shape before, the change, the effective
min ISR and whether ELR is enabled: the shape after, the kind of election, the broken rules. The
replay of a record is then a lookup and a few counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from audit.checks.base import Check, Facts, ShapeCheck
from audit.decoding.records import LEADER_STAYS, PartitionChange
from audit.state.cluster import ClusterState
from audit.state.elections import ElectionKind, election_kind
from audit.state.shapes import Shape, ShapeKey, after_change

Broken: TypeAlias = tuple[tuple[Check, str], ...]


class Transition:
    """The effect of one change on one shape. A `quiet` one has nothing to report."""

    __slots__ = (
        "after",
        "broken",
        "elected",
        "elr_growth",
        "grown",
        "isr_growth",
        "names_leader",
        "quiet",
        "reassigns",
        "shrunk",
    )

    def __init__(self, after: Shape) -> None:
        self.after = after
        self.elected: ElectionKind | None = None
        self.broken: Broken = ()
        self.names_leader = False
        self.quiet = True
        self.reassigns = False
        self.grown = 0
        self.shrunk = 0
        self.isr_growth = 0
        self.elr_growth = 0


class Transitions:
    """Creates transitions and checks the shapes after them."""

    def __init__(self, cluster: ClusterState, checks: Sequence[ShapeCheck]) -> None:
        self._cluster = cluster
        self._checks = checks

    def judge(self, before: ShapeKey | None, after: Shape) -> Broken:
        """Return the rules that the new shape breaks."""
        facts = Facts(after.effective_min_isr, self._cluster.elr_enabled)
        found = ((check, check.on_shape(before, after.key, facts)) for check in self._checks)
        return tuple((check, message) for check, message in found if message is not None)

    def make(self, before: Shape, change: PartitionChange) -> Transition:
        """Create a transition and cache it on the shape before it."""
        old = before.key
        new = after_change(old, change)
        after = self._cluster.shapes.get(new, before.min_isr)
        made = Transition(after)
        made.names_leader = change.leader != LEADER_STAYS
        made.elected = election_kind(old, new, change)
        made.broken = self.judge(old, after)
        made.grown = len(set(new.isr) - set(old.isr))
        made.shrunk = len(set(old.isr) - set(new.isr))
        made.isr_growth = len(new.isr) - len(old.isr)
        made.elr_growth = len(new.elr) - len(old.elr)
        made.reassigns = (old.adding, old.removing) != (new.adding, new.removing)
        made.quiet = not (
            made.broken or made.reassigns or old.leader != new.leader or after.under != before.under
        )
        before.transitions[change] = made
        return made
