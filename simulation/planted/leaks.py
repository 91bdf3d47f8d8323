"""Planted leaks: nothing is wrong but that a node keeps what is over. Only the judge of leftovers
sees them."""

from __future__ import annotations

from simulation.planted.planting import Bug, bug

LEAKS: tuple[Bug, ...] = (
    bug(
        "waits of a gone connection",
        "leaks",
        "P26",
        "who waited for a connection is kept when the connection is gone",
        (
            "broker.replication.purgatory:Purgatory.drop_owner",
            "self._owners.pop(owner, None)",
            "self._owners.get(owner)",
        ),
    ),
    bug(
        "cut segment stays open",
        "leaks",
        "P26",
        "the files of a segment that a truncation deletes stay open",
        ("storage.log.segment:Segment.delete", "self.discard_handles()", "pass"),
    ),
)
