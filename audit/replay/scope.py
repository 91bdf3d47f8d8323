"""The scope of a replay: its place in the log, its share of the partitions, its doubts."""

from __future__ import annotations


class Orphan(Exception):
    """A record about something that the records before it did not make."""


class Scope:
    """One replay of one interval, or of one shard of its partitions.

    Shard 0 also reports what is not about partitions. While `loading`, a snapshot is read: nothing
    is judged and nothing is reported.
    """

    def __init__(self, shard: int = 0, shards: int = 1) -> None:
        self.shard, self.shards = shard, shards
        self.loading = False
        self.offset = -1
        self.timestamp_ms = -1
        self.certain_brokers: set[int] | None = None
        """Brokers that registered since a hole in the log; None while there was no hole."""

    @property
    def in_doubt(self) -> bool:
        """Whether something is missing before this point of the log."""
        return self.certain_brokers is not None

    @property
    def reports_cluster(self) -> bool:
        """Whether this replay now reports what is not about partitions."""
        return self.shard == 0 and not self.loading

    def is_mine(self, index: int, topic_id: bytes) -> bool:
        return (index + topic_id[-1] + 7 * topic_id[-2]) % self.shards == self.shard
