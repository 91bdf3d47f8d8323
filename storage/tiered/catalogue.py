"""All segments in `__remote_log_metadata`, for readers of the whole topic. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import ProtocolError
from protocol.ids import TopicId
from protocol.schema import Buffer
from storage.tiered.cache import SegmentCache
from storage.tiered.records import decode_record
from storage.tiered.values import PartitionDeletion, RemoteSegment, SegmentId, SegmentUpdate


class Catalogue:
    """The segments of all partitions.

    Records must come in offset order within each partition of the topic; partitions may be
    interleaved.
    """

    def __init__(self) -> None:
        self._caches: dict[tuple[TopicId, int], SegmentCache] = {}
        self.refused: list[str] = []
        """Invalid records, and records that may not follow earlier ones; brokers ignore them,
        too."""

    def apply(self, where: str, offset: int, value: Buffer | None) -> None:
        """Apply a record. `where` names the topic's partition, for `refused`."""
        try:
            record = decode_record(value if value is not None else b"")
        except ProtocolError as error:
            self.refused.append(f"{where} at {offset}: {error}")
            return
        if not isinstance(record, RemoteSegment | SegmentUpdate | PartitionDeletion):
            self.refused.append(f"{where} at {offset}: no snapshots here")
            return
        identity = record.partition.identity
        cache = self._caches.get(identity)
        if cache is None:
            cache = self._caches[identity] = SegmentCache(record.partition)
        refusal = cache.apply(offset, record).refusal
        if refusal:
            self.refused.append(f"{where} at {offset}: {refusal}")

    def segments(self, topic: str | None = None) -> Iterator[RemoteSegment]:
        """Iterate over the segments in any state but DELETE_FINISHED, of one topic name or of all.

        Sorted by name, topic id, partition and offset.
        """
        found = (
            segment
            for cache in self._caches.values()
            if topic is None or cache.partition.topic == topic
            for segment in cache.segments()
        )
        return iter(sorted(found, key=_place))


def _place(segment: RemoteSegment) -> tuple[str, TopicId, int, int, SegmentId]:
    partition = segment.partition
    at = segment.start_offset
    return partition.topic, partition.topic_id, partition.partition, at, segment.segment_id
