"""Planted leaks: nothing is wrong but that a node keeps what is over. Only the judge of leftovers
sees them."""

from __future__ import annotations

from testkit.planting import Bug, bug

LEAKS: tuple[Bug, ...] = (
    bug(
        "waits of a gone connection",
        "leaks",
        "P26",
        "who waited for a connection is kept when the connection is gone",
        (
            "broker.replication.waiting.purgatory:Purgatory.drop_owner",
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
    bug(
        "sessions of earlier lives",
        "leaks",
        "P26",
        "what a follower's process had open before is kept when it comes back",
        (
            "broker.apis.follower_fetch:FollowerFetch.start",
            "self._broker.sessions.forget_earlier_lives(self._replica_id, self._broker_epoch)",
            "pass",
        ),
    ),
    bug(
        "watched when over",
        "leaks",
        "P26",
        "a partition tells sessions that are over of its news",
        (
            "broker.replication.sessions.session_watch:SessionWatch.close",
            "partition.unwatch(self)",
            "pass",
        ),
    ),
)
