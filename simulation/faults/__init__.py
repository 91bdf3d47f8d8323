"""Faults of a run: one file for each family, one registry of all kinds."""

from __future__ import annotations

from simulation.faults import (
    beginnings,
    disk,
    disk_errors,
    elections,
    network,
    operators,
    process,
    rot,
    store,
    tier_calls,
    tier_topic,
)
from simulation.faults.kind import FaultKind, OperatorKind

KINDS: dict[str, FaultKind | OperatorKind] = {
    **process.KINDS,
    **network.KINDS,
    **disk.KINDS,
    **disk_errors.KINDS,
    **rot.KINDS,
    **operators.KINDS,
    **elections.KINDS,
    **store.KINDS,
    **beginnings.KINDS,
    **tier_topic.KINDS,
    **tier_calls.KINDS,
}
"""By the name that schedules, options and tables use."""
ELECTIONS = frozenset(name for name, kind in KINDS.items() if kind.family == "elections")
"""Kinds that are for clusters with eligible leader replicas alone; drawn apart from the others."""
TIER = frozenset(name for name, kind in KINDS.items() if kind.family in ("store", "tiering"))
"""Kinds that are for clusters with tiered storage alone; drawn apart from the others."""
BESIDE_TIER = frozenset({"wiped disk", "swapped disk", "power cut"})
"""Kinds that a cluster with tiered storage has whatever else it has: followers begin behind the
tier, and what was not flushed is lost."""
REPLICAS = frozenset(name for name, kind in KINDS.items() if kind.family == "replicas")
"""Kinds about replicas that begin behind the tier and leaders that hold enough of the log; drawn
apart from the others."""
BESIDE_REPLICAS = frozenset({"wiped disk", "reassign", "kill", "preferred election"})
"""Kinds that a cluster with those has whatever else it has: replicas begin with nothing, and
leaders change meanwhile."""
LATER = {
    "later": frozenset({"clock drift"}),
    "rules": frozenset({"strategy of all", "patience"}),
    "stalls": frozenset({"stalled"}),
    "seconds": frozenset({"second process"}),
    "flips": frozenset({"bit flips"}),
    "levels": frozenset({"metadata level"}),
    "rot": frozenset({"index rot"}),
    "hours": frozenset({"coordinator's clock"}),
    "spoilt": frozenset({"batch rot", "metadata rot"}),
    "behind": frozenset({"controller behind"}),
    "voters": frozenset({"wiped voter"}),
    "ports": frozenset({"taken port"}),
    "forgotten": frozenset({"unregister lost"}),
    "tier topic": frozenset({"tier topic cut"}),
    "store calls": frozenset({"store call struck"}),
}
"""Kinds that came later, by the stream from which they are drawn: seeds keep the events that they
had."""
