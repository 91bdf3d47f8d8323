"""Faults of a run: one file for each family, one registry of all kinds."""

from __future__ import annotations

from simulation.faults import disk, network, process
from simulation.faults.kind import FaultKind

KINDS: dict[str, FaultKind] = {**process.KINDS, **network.KINDS, **disk.KINDS}
"""By the name that schedules, options and tables use."""
