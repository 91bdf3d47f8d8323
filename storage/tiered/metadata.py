"""A broker's view of the tier: the segment caches of its partitions, and whether they are ready.

A broker reads a partition of `__remote_log_metadata` for all of its own partitions that are placed
there. When it takes on another partition, it reads the topic's partition again from the start;
caches that are filled skip what they have. Partitions that are taken on during a pass wait together
for the next pass: otherwise hundreds taken on one after another would restart it each time. No
caller gets a partition's cache before the end that was known when the partition was taken on is
reached. So nothing is copied, expired or read on the basis of incomplete metadata.

A partition of the topic may lose its end, by an unclean election or a power cut. Then its caches
contain records that no broker has any more. The leader epochs of the batches read so far are kept
and reveal the loss: `lost_end` drops these caches, and the topic's partition is read from its
start.

The caller reads the topic, and requests its end offset after `take`, not before.
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
    """One partition of the topic in the present pass.

    All records below `position` were replayed, in this pass or an earlier one, except for
    partitions that wait for the next pass. `late` is the number of those: each chunk of a replay
    checks it, and there may be thousands that do not wait. `life` changes with each loss of the
    end. `epochs` are the leader epochs of the batches below `seen_to`, the highest position of all
    passes.
    """

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
        """Begin another pass. A partition keeps the offset that it has reached."""
        for taken in self.taken.values():
            if taken.waits:
                taken.waits = False
            else:
                taken.reached = max(taken.reached, self.position)
        self.late = 0
        self.position = 0

    def look_over(self) -> None:
        """Begin the next pass if a partition waits for it and all partitions in this pass are
        ready."""
        if self.late and all(one.waits or one.ready for one in self.taken.values()):
            self.begin_anew()


class _Taken:
    """A partition that this broker leads or follows.

    `target`: end of the topic's partition that must be reached first; None until it is known.
    `leader_target`: the same for acting as the partition's leader. `waits`: true if the next pass
    is the partition's first.
    """

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
    """A record that was read, and its effect.

    No `record`: the bytes are invalid. No `outcome`: the partition waits for the next pass, which
    reads the record again.
    """

    record: TierRecord | None
    outcome: Outcome | None


class RemoteMetadata:
    """The caches of a broker.

    `partitions` is the topic's partition count. It never changes, since the placement of records
    depends on it.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._streams: dict[int, _Stream] = {}
        self._lives = 0

    # Taking on and dropping partitions -------------------------------------------------------

    def take(self, partition: RemotePartition) -> int:
        """Take a partition on. Returns the topic's partition, to be read from its start.

        The caller must then request the end offset of that partition. A partition that was taken on
        before stays as it is.
        """
        number = metadata_partition(partition, self.partitions)
        stream = self._stream(number)
        if partition.identity not in stream.taken:
            taken = stream.taken[partition.identity] = _Taken(SegmentCache(partition), stream)
            stream.late += taken.waits
            stream.look_over()
        return number

    def lead(self, partition: RemotePartition) -> int:
        """Note that this broker leads a partition that was taken on.

        The previous leader's last records may not be read yet. Returns the topic's partition, whose
        end offset the caller must request.
        """
        number = metadata_partition(partition, self.partitions)
        self._streams[number].taken[partition.identity].leader_target = None
        return number

    def give_up(self, partition: RemotePartition) -> None:
        """Forget a partition. If it is taken on again, it starts from scratch."""
        number = metadata_partition(partition, self.partitions)
        stream = self._streams.get(number)
        if stream is not None:
            taken = stream.taken.pop(partition.identity, None)
            stream.late -= taken is not None and taken.waits
            stream.look_over()
            self._drop_unused(number)

    def watch(self, number: int) -> None:
        """Read a partition of the topic from its start even if no partition needs it: the caller
        uses the results of `replay`."""
        stream = self._stream(number)
        if not stream.watched:
            stream.begin_anew()
            stream.watched = True

    def unwatch(self, number: int) -> None:
        """Stop reading a partition of the topic for `watch`."""
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
        """Return the topic's partitions to read, and the offset from which to read each."""
        return {number: stream.position for number, stream in self._streams.items()}

    def end_known(self, number: int, end_offset: int) -> None:
        """Set the end offset of the topic's partition, requested after the last `take` and
        `lead`."""
        stream = self._streams.get(number)
        if stream is None:
            return
        for taken in stream.taken.values():
            # An end lower than before: the topic has lost its end, and the old target will not
            # come.
            if taken.target is None or end_offset < taken.target:
                taken.target = end_offset
            if taken.leader_target is None or end_offset < taken.leader_target:
                taken.leader_target = end_offset
        stream.look_over()

    # A lost end ------------------------------------------------------------------------------

    def life(self, number: int) -> int:
        """Return the number of the present life of the topic's partition; 0 if it is not wanted.

        Records that were requested in another life must not be replayed: they may be from a lost
        end.
        """
        stream = self._streams.get(number)
        return 0 if stream is None else stream.life

    def seen_to(self, number: int) -> int:
        """Return the offset below which all records were read, in this pass or an earlier one."""
        stream = self._streams.get(number)
        return 0 if stream is None else stream.seen_to

    def epoch_before(self, number: int, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if it was not read."""
        stream = self._streams.get(number)
        if stream is None or not 0 < offset <= stream.seen_to:
            return NO_EPOCH
        return stream.epochs.epoch_at(offset - 1)

    def note_epochs(
        self, number: int, asked_offset: int, epochs: Sequence[EpochEntry], life: int
    ) -> bool:
        """Note the leader epochs of the batches in a read, before their records are replayed.

        Returns:
            False if they contradict what was read before: the topic's partition has lost its end
            and has grown again. Nothing was noted then.
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
        """Skip the records that retention has deleted from the topic's partition."""
        stream = self._streams.get(number)
        if stream is not None and start_offset > stream.seen_to:
            stream.epochs.clear()  # the record before it, and its epoch, were not read

    def lost_end(self, number: int) -> list[RemotePartition]:
        """Drop all that was read of a topic's partition that has lost its end.

        Returns:
            The partitions whose caches begin from scratch. The caller must request the end offset
            of the topic's partition again.
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
        """Apply the records of a read of the topic's partition.

        Args:
            asked_offset: start of the read. A read that began after `wanted` was requested before a
            partition was taken on; it is dropped, since it would leave a gap.
            records: offset and value of each record; a record that does not belong to the topic
            changes nothing.
            next_offset: the offset after the read, whether or not it contained records.
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

    # Queries ---------------------------------------------------------------------------------

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache of a partition; None until it is complete enough to act on."""
        taken = self._taken(partition)
        return taken.cache if taken is not None and taken.ready else None

    def leaders_cache(self, partition: RemotePartition) -> SegmentCache | None:
        """Return the cache for the partition's leader; None until it has all of the previous
        leader's records."""
        taken = self._taken(partition)
        return taken.cache if taken is not None and taken.ready_to_lead else None

    def _taken(self, partition: RemotePartition) -> _Taken | None:
        stream = self._streams.get(metadata_partition(partition, self.partitions))
        return stream.taken.get(partition.identity) if stream is not None else None

    def waiting(self) -> list[RemotePartition]:
        """Return the partitions that are not ready."""
        return [
            taken.cache.partition
            for stream in self._streams.values()
            for taken in stream.taken.values()
            if not taken.ready
        ]
