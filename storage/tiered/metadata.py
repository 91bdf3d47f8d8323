"""The tier as a broker knows it: the caches of its partitions, and whether they are ready.

A broker reads a partition of `__remote_log_metadata` for all of its own partitions that are placed
there. For one that is taken on, it is read again from its start; caches that were filled before
pass over what they had. Those that are taken on while it is being read wait for the next pass, all
of them for the same one: hundreds that come one after the other would begin it anew each time.
Until the end that was known when the partition was taken on is reached,
nobody is given its cache: nothing is copied, expired or read by half of the truth.

A partition of the topic may lose its end, by an unclean election or a power cut. Then its caches
contain records that no broker has any more. The leader epochs of what was read are kept, and show
it: `lost_end` drops these caches, and the topic's partition is read from its start.

Who drives this reads the topic, and asks for its end after `take`, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from protocol.errors import ProtocolError
from protocol.ids import TopicId
from protocol.schema import Buffer
from storage.log.epochs import NO_EPOCH, EpochCache, EpochEntry
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
    many do; each chunk of a replay asks, and there may be thousands that do not. `life` is another
    one after each loss of the end. `epochs` are the leader epochs of what was read below `seen_to`,
    the highest position of all passes."""

    __slots__ = ("epochs", "late", "life", "position", "seen_to", "taken", "watched")

    def __init__(self, life: int) -> None:
        self.life = life
        self.epochs = EpochCache()
        self.seen_to = 0
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
        self._lives = 0

    # Taking on and giving up -----------------------------------------------------------------

    def take(self, partition: RemotePartition) -> int:
        """Take a partition on; returns the topic's partition, to be read from its start and asked
        for its end. One that was taken on already stays as it is."""
        number = metadata_partition(partition, self.partitions)
        stream = self._stream(number)
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
        stream = self._stream(number)
        if not stream.watched:
            stream.begin_anew()
            stream.watched = True

    def unwatch(self, number: int) -> None:
        """Nobody looks any more."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.watched = False
            self._drop_unused(number)

    def _stream(self, number: int) -> _Stream:
        stream = self._streams.get(number)
        if stream is None:
            self._lives += 1
            stream = self._streams[number] = _Stream(self._lives)
        return stream

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

    # A lost end ------------------------------------------------------------------------------

    def life(self, number: int) -> int:
        """Return which life of the topic's partition is being read; 0 if it is not wanted.

        What was requested in another life must not be replayed: it may be of a lost end."""
        stream = self._streams.get(number)
        return 0 if stream is None else stream.life

    def seen_to(self, number: int) -> int:
        """Return the offset below which all was read, in this pass or an earlier one."""
        stream = self._streams.get(number)
        return 0 if stream is None else stream.seen_to

    def epoch_before(self, number: int, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if that was not read."""
        stream = self._streams.get(number)
        if stream is None or not 0 < offset <= stream.seen_to:
            return NO_EPOCH
        return stream.epochs.epoch_at(offset - 1)

    def note_epochs(
        self, number: int, asked_offset: int, epochs: Sequence[EpochEntry], life: int
    ) -> bool:
        """Take over the leader epochs of batches that a read brought, before their records.

        Returns:
            False if they contradict what was read before: the topic's partition has lost its end
            and has grown again. Nothing was taken over then.
        """
        stream = self._streams.get(number)
        if stream is None or stream.life != life or asked_offset > stream.position:
            return True
        for epoch, offset in epochs:
            seen = offset < stream.seen_to
            known = stream.epochs.epoch_at(offset) if seen else stream.epochs.latest_epoch
            if known != NO_EPOCH and (epoch < known or (seen and epoch != known)):
                return False
        for epoch, offset in epochs:
            if offset >= stream.seen_to:
                stream.epochs.assign(epoch, offset)
        return True

    def begins_at(self, number: int, start_offset: int) -> None:
        """Pass over what retention has deleted from the topic's partition."""
        stream = self._streams.get(number)
        if stream is not None and start_offset > stream.seen_to:
            stream.epochs.clear()  # which epoch wrote the record before it was not read

    def lost_end(self, number: int) -> list[RemotePartition]:
        """Drop what was read of a topic's partition that has lost its end.

        Returns:
            The partitions whose caches begin from scratch. Ask for the end of the topic's partition
            again.
        """
        old = self._streams.pop(number, None)
        if old is None:
            return []
        stream = self._stream(number)
        stream.watched = old.watched
        for identity, taken in old.taken.items():
            stream.taken[identity] = _Taken(SegmentCache(taken.cache.partition), stream)
        return [taken.cache.partition for taken in stream.taken.values()]

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
        stream.seen_to = max(stream.seen_to, stream.position)
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
