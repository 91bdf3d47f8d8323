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
"""Kinds that are for clusters with eligible leader replicas alone; drawn apart from the others."""
LATER = {
    "later": frozenset({"clock drift"}),
    "rules": frozenset({"strategy of all", "patience"}),
    "stalls": frozenset({"stalled"}),
    "seconds": frozenset({"second process"}),
    "flips": frozenset({"bit flips"}),
    "levels": frozenset({"metadata level"}),
}
"""Kinds that came later, by the stream from which they are drawn: seeds keep the events that they
had."""
