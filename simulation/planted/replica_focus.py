"""Small clusters in which replicas begin behind the tier (KIP-1023), and whose leaders must hold
enough of the log (KIP-1303)."""

from __future__ import annotations

from dataclasses import replace

from simulation.planted.focus import TOPICS, Focus
from simulation.planted.tier_focus import KEEPS, SETTINGS, TierFocus
from simulation.replica_shape import INTERVAL, LAST_TIERED, LOCAL_BYTES

NEW_REPLICAS = TierFocus(topics=(KEEPS,), settings={**SETTINGS, LAST_TIERED: "true"})
"""One topic, whose followers begin behind all that the tier has."""
LOCAL_LOGS = Focus(
    topics=(replace(TOPICS[0], configs={"min.insync.replicas": "1"}),),
    idempotent=0,
    settings={INTERVAL: "100", LOCAL_BYTES: "1"},
)
"""One topic: whoever has anything has enough to lead."""
