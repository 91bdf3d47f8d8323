"""The tier as a broker knows it: the caches of its partitions, and whether they are ready.

A broker reads a partition of `__remote_log_metadata` for all of its own partitions that are placed
there. For one that is taken on, it is read again from its start; caches that were filled before
pass over what they had. Until the end that was known when the partition was taken on is reached,
nobody is given its cache: nothing is copied, expired or read by half of the truth.

Who drives this reads the topic, and asks for its end after `take`, not before.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.errors import ProtocolError
from protocol.ids import TopicId
from protocol.schema import Buffer
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.records import decode_record, metadata_partition
from storage.tiered.values import RemotePartition, SegmentSnapshot, TierRecord

_NOT_OURS = Outcome(changed=False)


class _Taken:
    """A partition that this broker leads or follows. `target`: the end of the topic's partition
    that must be reached first; None until it is known."""

    __slots__ = ("cache", "metadata_partition", "target")

    def __init__(self, cache: SegmentCache, number: int) -> None:
        self.cache = cache
        self.metadata_partition = number
        self.target: int | None = None

    @property
    def ready(self) -> bool:
        return self.target is not None and self.cache.next_offset >= self.target


class Replayed(NamedTuple):
    """A record that was read and what it did; no record for bytes that are none."""

    record: TierRecord | None
    outcome: Outcome


class RemoteMetadata:
    """The caches of a broker. `partitions` is how many the topic has; it never changes, as the
    placement of records hangs on it."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._taken: dict[tuple[TopicId, int], _Taken] = {}

    # Taking on and giving up -----------------------------------------------------------------

    def take(self, partition: RemotePartition) -> int:
        """Take a partition on; returns the topic's partition, to be read from its start and asked
        for its end. One that was taken on already stays as it is."""
        number = metadata_partition(partition, self.partitions)
        if partition.identity not in self._taken:
            self._taken[partition.identity] = _Taken(SegmentCache(partition), number)
        return number

    def give_up(self, partition: RemotePartition) -> None:
        """Forget a partition; taken on again, it begins anew."""
        self._taken.pop(partition.identity, None)

    def wanted(self) -> dict[int, int]:
        """The topic's partitions to read, and the offset that each must be read from."""
        found: dict[int, int] = {}
        for taken in self._taken.values():
            offset = taken.cache.next_offset
            number = taken.metadata_partition
            found[number] = min(offset, found.get(number, offset))
        return found

    def end_known(self, number: int, end_offset: int) -> None:
        """The topic's partition ended at `end_offset` at a moment after the last `take`."""
        for taken in self._taken.values():
            if taken.metadata_partition == number and taken.target is None:
                taken.target = end_offset

    # Replaying -------------------------------------------------------------------------------

    def replay(self, number: int, offset: int, value: Buffer | None) -> Replayed:
        """Take over the value of the record at `offset`. What is no record of the topic's changes
        nothing but how far it was read."""
        try:
            record = decode_record(value if value is not None else b"")
        except ProtocolError as error:
            self.read_to(number, offset + 1)
            return Replayed(None, Outcome(changed=False, refusal=str(error)))
        outcome = _NOT_OURS
        if not isinstance(record, SegmentSnapshot):
            taken = self._taken.get(record.partition.identity)
            if taken is not None and taken.metadata_partition == number:
                outcome = taken.cache.apply(offset, record)
        self.read_to(number, offset + 1)
        return Replayed(record, outcome)

    def read_to(self, number: int, next_offset: int) -> None:
        """All records below `next_offset` have been handed to `replay`."""
        for taken in self._taken.values():
            if taken.metadata_partition == number and taken.cache.next_offset < next_offset:
                taken.cache.next_offset = next_offset

    # Asking ----------------------------------------------------------------------------------

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        """What is known of a partition; None until that is enough to act on."""
        taken = self._taken.get(partition.identity)
        return taken.cache if taken is not None and taken.ready else None

    def waiting(self) -> list[RemotePartition]:
        """The partitions that are not ready."""
        return [one.cache.partition for one in self._taken.values() if not one.ready]
