"""Operators: changes to a running cluster through its own protocol; one file for each kind of
change."""

from __future__ import annotations

from simulation.faults.kind import FaultKind, OperatorKind
from simulation.faults.operators import (
    configs,
    elections,
    features,
    local_logs,
    replicas,
    restarts,
    tiering,
    topics,
)

KINDS: dict[str, FaultKind | OperatorKind] = {
    **topics.KINDS,
    **configs.KINDS,
    **replicas.KINDS,
    **restarts.KINDS,
    **elections.KINDS,
    **features.KINDS,
    **tiering.KINDS,
    **local_logs.KINDS,
}
