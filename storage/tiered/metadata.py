"""The tier as a broker knows it: the caches of its partitions, and whether they are ready.

A broker reads a partition of `__remote_log_metadata` for all of its own partitions that are placed
there. For one that is taken on, it is read again from its start; caches that were filled before
pass over what they had. Those that are taken on while it is being read wait for the next pass, all
of them for the same one: hundreds that come one after the other would begin it anew each time.
Until the end that was known when the partition was taken on is reached,
nobody is given its cache: nothing is copied, expired or read by half of the truth.

Who drives this reads the topic, and asks for its end after `take`, not before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from protocol.errors import ProtocolError
from protocol.ids import TopicId
from protocol.schema import Buffer
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.records import decode_record, metadata_partition
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentUpdate,
    TierRecord,
)

_NOT_OURS = Outcome(changed=False)


class _Stream:
    """One partition of the topic as it is read now: all below `position` has been replayed, in
    this pass from the start or an earlier one, for those that do not wait for the next. `late`: how
    many do; each chunk of a replay asks, and there may be thousands that do not."""

    __slots__ = ("late", "position", "taken", "watched")

    def __init__(self) -> None:
        self.late = 0
        self.position = 0
        self.taken: dict[tuple[TopicId, int], _Taken] = {}
        self.watched = False

    def begin_anew(self) -> None:
        """Read from the start once more; what was reached before stays reached."""
        for taken in self.taken.values():
            if taken.waits:
                taken.waits = False
            else:
                taken.reached = max(taken.reached, self.position)
        self.late = 0
        self.position = 0

    def look_over(self) -> None:
        """Begin the next pass if somebody waits for it, and whoever takes part in this one has all
        that it was to bring."""
        if self.late and all(one.waits or one.ready for one in self.taken.values()):
            self.begin_anew()


class _Taken:
    """A partition that this broker leads or follows. `target`: the end of the topic's partition
    that must be reached first; None until it is known. `leader_target`: that before which nobody
    acts as its leader. `waits`: for the next pass, of which it is the first."""

    __slots__ = ("cache", "leader_target", "reached", "stream", "target", "waits")

    def __init__(self, cache: SegmentCache, stream: _Stream) -> None:
        self.cache = cache
        self.stream = stream
        self.reached = 0
        self.waits = stream.position > 0
        self.target: int | None = None
        self.leader_target: int | None = None

    @property
    def ready(self) -> bool:
        return self._has(self.target)

    @property
    def ready_to_lead(self) -> bool:
        return self.ready and self._has(self.leader_target)

    def _has(self, target: int | None) -> bool:
        if self.waits:
            return False
        return target is not None and target <= max(self.reached, self.stream.position)


class Replayed(NamedTuple):
    """A record that was read and what it did; no record for bytes that are none, no outcome for
    what is read again in the next pass, which its partition waits for."""

    record: TierRecord | None
    outcome: Outcome | None


class RemoteMetadata:
    """The caches of a broker. `partitions` is how many the topic has; it never changes, as the
    placement of records hangs on it."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._streams: dict[int, _Stream] = {}

    # Taking on and giving up -----------------------------------------------------------------

    def take(self, partition: RemotePartition) -> int:
        """Take a partition on; returns the topic's partition, to be read from its start and asked
        for its end. One that was taken on already stays as it is."""
        number = metadata_partition(partition, self.partitions)
        stream = self._streams.setdefault(number, _Stream())
        if partition.identity not in stream.taken:
            taken = stream.taken[partition.identity] = _Taken(SegmentCache(partition), stream)
            stream.late += taken.waits
            stream.look_over()
        return number

    def lead(self, partition: RemotePartition) -> int:
        """This broker leads a partition that was taken on: what the leader before wrote last may
        not be read yet. Returns the topic's partition, to be asked for its end."""
        number = metadata_partition(partition, self.partitions)
        self._streams[number].taken[partition.identity].leader_target = None
        return number

    def give_up(self, partition: RemotePartition) -> None:
        """Forget a partition; taken on again, it begins anew."""
        number = metadata_partition(partition, self.partitions)
        stream = self._streams.get(number)
        if stream is not None:
            taken = stream.taken.pop(partition.identity, None)
            stream.late -= taken is not None and taken.waits
            stream.look_over()
            self._drop_unused(number)

    def watch(self, number: int) -> None:
        """Read a partition of the topic from its start, whether one is taken on or not: somebody
        looks at what `replay` returns."""
        stream = self._streams.setdefault(number, _Stream())
        if not stream.watched:
            stream.begin_anew()
            stream.watched = True

    def unwatch(self, number: int) -> None:
        """Nobody looks any more."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.watched = False
            self._drop_unused(number)

    def _drop_unused(self, number: int) -> None:
        stream = self._streams[number]
        if not stream.taken and not stream.watched:
            del self._streams[number]

    def wanted(self) -> dict[int, int]:
        """The topic's partitions to read, and the offset that each must be read from."""
        return {number: stream.position for number, stream in self._streams.items()}

    def end_known(self, number: int, end_offset: int) -> None:
        """The topic's partition ended at `end_offset` at a moment after the last `take` and the
        last `lead`."""
        stream = self._streams.get(number)
        if stream is None:
            return
        for taken in stream.taken.values():
            # One that is lower than that before: the topic has lost its end, which does not come.
            if taken.target is None or end_offset < taken.target:
                taken.target = end_offset
            if taken.leader_target is None or end_offset < taken.leader_target:
                taken.leader_target = end_offset
        stream.look_over()

    # Replaying -------------------------------------------------------------------------------

    def replay(
        self,
        number: int,
        asked_offset: int,
        records: Iterable[tuple[int, Buffer | None]],
        next_offset: int,
    ) -> list[Replayed]:
        """Take over what a read of the topic's partition brought.

        Args:
            asked_offset: where the read began. What began behind `wanted` was asked for before a
                partition was taken on, and is dropped: it would be read with a gap before it.
            records: offset and value of each record; what is none of the topic's changes nothing.
            next_offset: behind all that was read, records or not.
        """
        stream = self._streams.get(number)
        if stream is None or asked_offset > stream.position:
            return []
        found = [self._replay_one(stream, offset, value) for offset, value in records]
        stream.position = max(stream.position, next_offset)
        stream.look_over()
        return found

    def _replay_one(self, stream: _Stream, offset: int, value: Buffer | None) -> Replayed:
        try:
            record = decode_record(value if value is not None else b"")
        except ProtocolError as error:
            return Replayed(None, Outcome(changed=False, refusal=str(error)))
        if not isinstance(record, RemoteSegment | SegmentUpdate | PartitionDeletion):
            return Replayed(record, Outcome(changed=False, refusal="no snapshots here"))
        taken = stream.taken.get(record.partition.identity)
        if taken is None:
            return Replayed(record, _NOT_OURS)
        return Replayed(record, None if taken.waits else taken.cache.apply(offset, record))

    # Asking ----------------------------------------------------------------------------------

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        """What is known of a partition; None until that is enough to act on."""
        taken = self._taken(partition)
        return taken.cache if taken is not None and taken.ready else None

    def leaders_cache(self, partition: RemotePartition) -> SegmentCache | None:
        """The same for the partition's leader, who is to know all that the one before him wrote."""
        taken = self._taken(partition)
        return taken.cache if taken is not None and taken.ready_to_lead else None

    def _taken(self, partition: RemotePartition) -> _Taken | None:
        stream = self._streams.get(metadata_partition(partition, self.partitions))
        return stream.taken.get(partition.identity) if stream is not None else None

    def waiting(self) -> list[RemotePartition]:
        """The partitions that are not ready."""
        return [
            taken.cache.partition
            for stream in self._streams.values()
            for taken in stream.taken.values()
            if not taken.ready
        ]
