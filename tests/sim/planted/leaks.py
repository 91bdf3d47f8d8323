"""Planted leaks: a node keeps objects that it does not need any more. Only the judge of leftovers
finds them."""

from __future__ import annotations

from testkit.planting import Bug, bug

LEAKS: tuple[Bug, ...] = (
    bug(
        "waits of a closed connection",
        "leaks",
        "P26",
        "requests that wait for a connection are kept after it is closed",
        (
            "broker.replication.waiting.purgatory:Purgatory.drop_owner",
            "self._owners.pop(owner, None)",
            "self._owners.get(owner)",
        ),
    ),
    bug(
        "truncated segment stays open",
        "leaks",
        "P26",
        "the files of a segment that a truncation deletes stay open",
        ("storage.log.segment:Segment.delete", "self.discard_handles()", "pass"),
    ),
    bug(
        "fetch sessions of earlier incarnations",
        "leaks",
        "P26",
        "fetch sessions of a follower's earlier process are kept when it returns",
        (
            "broker.fetch.follower:Follower.begin",
            "self._broker.sessions.forget_earlier_lives(self._replica_id, self._broker_epoch)",
            "pass",
        ),
        (
            "broker.fetch.follower:Follower.begin",
            "0 <= self._broker_epoch < registered.epoch",
            "False",
        ),
        (
            "broker.replication.sessions.fetch_session:FetchSessionCache.followers_registered",
            "self.forget(session_id)",
            "pass",
        ),
    ),
    bug(
        "closed sessions notified",
        "leaks",
        "P26",
        "a partition notifies fetch sessions that are closed",
        (
            "broker.replication.sessions.session_watch:SessionWatch.close",
            "partition.unwatch(self)",
            "pass",
        ),
    ),
)
