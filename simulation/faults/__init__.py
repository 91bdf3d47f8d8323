"""Faults of a run: one file for each family, one registry of all kinds."""

from __future__ import annotations

from simulation.faults import disk, network, operators, process
from simulation.faults.kind import FaultKind, OperatorKind

KINDS: dict[str, FaultKind | OperatorKind] = {
    **process.KINDS,
    **network.KINDS,
    **disk.KINDS,
    **operators.KINDS,
}
"""By the name that schedules, options and tables use."""
