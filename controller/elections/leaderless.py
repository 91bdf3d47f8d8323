"""Since when partitions have no leader, as this controller has seen it.

Every controller follows, so that one that becomes active knows already. What it loads from a
snapshot counts from the snapshot's newest record: it may have been so for longer.
"""

from __future__ import annotations

from metalog.image.delta import MetadataDelta
from metalog.image.values import NO_LEADER, MetadataImage


class Leaderless:
    """Partitions without leader. Times are those of the metadata records, in ms since 1970."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[tuple[bytes, int], int] = {}

    def __len__(self) -> int:
        return len(self._since)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The committed image has changed."""
        for change in delta.partitions():
            key = (change.topic.id, change.partition_index)
            if change.after is None or change.after.leader != NO_LEADER:
                self._since.pop(key, None)
            else:
                self._since.setdefault(key, image.provenance.timestamp_ms)

    def since_ms(self, topic_id: bytes, partition_id: int) -> int | None:
        """When it lost its leader; None while it has one."""
        return self._since.get((topic_id, partition_id))
