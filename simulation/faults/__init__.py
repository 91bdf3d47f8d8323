"""Faults of a run: one file for each family, one registry of all kinds."""

from __future__ import annotations

from simulation.faults import disk, disk_errors, elections, network, operators, process
from simulation.faults.kind import FaultKind, OperatorKind

KINDS: dict[str, FaultKind | OperatorKind] = {
    **process.KINDS,
    **network.KINDS,
    **disk.KINDS,
    **disk_errors.KINDS,
    **operators.KINDS,
    **elections.KINDS,
}
"""By the name that schedules, options and tables use."""
ELECTIONS = frozenset(name for name, kind in KINDS.items() if kind.family == "elections")
"""Kinds that are drawn apart from the others, for clusters with eligible leader replicas alone."""
LATER = frozenset({"clock drift"})
"""Kinds that came later, from a stream of their own: seeds keep the events that they had."""
