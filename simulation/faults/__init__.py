"""Faults of a run: one file for each family, one registry of all kinds."""

from __future__ import annotations

from simulation.faults import (
    beginnings,
    disk,
    disk_errors,
    elections,
    interrupted,
    network,
    operators,
    process,
    rot,
    store,
    tier_calls,
    tier_requests,
    tier_topic,
    transactions,
)
from simulation.faults.kind import FaultKind, OperatorKind

KINDS: dict[str, FaultKind | OperatorKind] = {
    **process.KINDS,
    **interrupted.KINDS,
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
    **tier_requests.KINDS,
    **transactions.KINDS,
    **transactions.KINDS,
}
"""Fault kinds by the name that schedules, options and tables use."""
BY_NAME = frozenset(interrupted.KINDS)
"""Kinds that are drawn only by name, so that seeds keep their events."""
ELECTIONS = frozenset(name for name, kind in KINDS.items() if kind.family == "elections")
"""Kinds only for clusters with eligible leader replicas; drawn apart from the others."""
TIER = frozenset(name for name, kind in KINDS.items() if kind.family in ("store", "tiering"))
"""Kinds only for clusters with tiered storage; drawn apart from the others."""
BESIDE_TIER = frozenset({"wiped disk", "swapped disk", "power cut"})
"""Kinds that every cluster with tiered storage has in addition: followers begin behind the tier,
and unflushed records are lost."""
REPLICAS = frozenset(name for name, kind in KINDS.items() if kind.family == "replicas")
"""Kinds about replicas that begin behind the tier and leaders whose local log is long enough; drawn
apart from the others."""
BESIDE_REPLICAS = frozenset({"wiped disk", "reassign", "kill", "preferred election"})
"""Kinds that every cluster with those has in addition: replicas begin with an empty log, and
leaders change in the meantime."""
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
    "tier requests": frozenset({"tier request struck"}),
    "transactions": frozenset({"transactions"}),
}
"""Kinds that were added later, by the stream from which they are drawn, so that seeds keep their
earlier events."""
