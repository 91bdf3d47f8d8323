"""Clients of a run: one file for each family, one registry of all kinds."""

from __future__ import annotations

from simulation.clients import (
    askers,
    expiry,
    groups,
    hasty,
    keyed,
    pipelines,
    producers,
    readers,
    session_readers,
    tier_listers,
)
from simulation.clients.kind import ClientKind

KINDS: dict[str, ClientKind] = {
    **producers.KINDS,
    **readers.KINDS,
    **groups.KINDS,
    **pipelines.KINDS,
    **session_readers.KINDS,
    **keyed.KINDS,
    **askers.KINDS,
    **expiry.KINDS,
    **tier_listers.KINDS,
    **hasty.KINDS,
}
"""Client kinds by the name that schedules and tables use."""
