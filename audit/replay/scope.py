"""The scope of a replay: its position in the log, its share of the partitions, its uncertainty."""

from __future__ import annotations


class Orphan(Exception):
    """A record refers to an object that no earlier record created."""


class Scope:
    """The scope of one replay of one interval, or of one shard of its partitions.

    Shard 0 also reports everything that is not about partitions. While `loading`, a snapshot is
    read, and nothing is checked or reported.
    """

    def __init__(self, shard: int = 0, shards: int = 1) -> None:
        self.shard, self.shards = shard, shards
        self.loading = False
        self.offset = -1
        self.timestamp_ms = -1
        self.certain_brokers: set[int] | None = None
        """Brokers that registered since a gap in the log; None if there was no gap."""

    @property
    def in_doubt(self) -> bool:
        """True if records are missing before this point of the log."""
        return self.certain_brokers is not None

    @property
    def reports_cluster(self) -> bool:
        """True if this replay now reports what is not about partitions."""
        return self.shard == 0 and not self.loading

    def is_mine(self, index: int, topic_id: bytes) -> bool:
        return (index + topic_id[-1] + 7 * topic_id[-2]) % self.shards == self.shard
