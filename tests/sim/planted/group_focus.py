"""Small clusters for bugs of consumer groups."""

from __future__ import annotations

from tests.sim.planted.focus import Focus

HASTY = Focus(hasty=2, quitters=1, idempotent=0, plain=0)
PAIR = Focus(members=2, idempotent=0, plain=0)
_NEW = {"partitions": 1, "factor": 1, "configs": {}, "for_ms": 1, "which": 0, "gap_ms": 0}
MADE_AGAIN = (
    (2_500, "kill", "leader of __consumer_offsets-0", {"for_ms": 1_500}),
    (2_510, "topic again", "topic 0", _NEW),
)
"""A topic is deleted and created again while the coordinator is down."""
HASTY_BUGS = ("second assignment accepted", "timer outlives its group")
BY_NAME = ("offsets found by topic name",)
