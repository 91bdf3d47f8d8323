"""Tiered storage according to the committed records of `__remote_log_metadata`. Pure.

The judge reads the topic by itself. A record that may not follow the known state changes nothing
(KIP-405: COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED, in this order, the second
may be missing): all readers of the topic refuse the same ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import ProtocolError
from protocol.ids import uuid_to_text
from protocol.internal import decode_remote_log_record
from protocol.internal.remote_log_segment_metadata_record import RemoteLogSegmentMetadataRecord
from protocol.internal.remote_log_segment_metadata_update_record import (
    RemoteLogSegmentMetadataUpdateRecord,
)
from protocol.internal.remote_partition_delete_metadata_record import (
    RemotePartitionDeleteMetadataRecord,
)
from simulation.world.invariants import Key, Violation

COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
FOLLOWS = {
    COPY_FINISHED: (COPY_STARTED,),
    DELETE_STARTED: (COPY_STARTED, COPY_FINISHED),
    DELETE_FINISHED: (DELETE_STARTED,),
}
ALWAYS = ("log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint", "manifest")
"""Objects of a copy, by the end of their key; "txnindex" only if that index is not empty."""
Epochs = Sequence[tuple[int, int]]
"""(epoch, its first offset), ascending."""


@dataclass(eq=False)
class Copy:
    """One attempt to copy a segment. `last` is included, as in the record. `at` is the metadata
    offset of its first record."""

    segment_id: bytes
    key: Key
    first: int
    last: int
    epochs: tuple[tuple[int, int], ...]
    size_bytes: int
    has_txn_index: bool
    broker_id: int
    at: int
    state: int = COPY_STARTED

    def __str__(self) -> str:
        return f"copy {uuid_to_text(self.segment_id)} of {self.first}..{self.last}"

    @property
    def begins(self) -> int:
        """The first offset whose epoch is in its record: offsets below were deleted before."""
        return max(self.first, self.epochs[0][1])

    @property
    def names(self) -> set[str]:
        """The keys of its objects."""
        folder = f"{uuid_to_text(self.key[0])}/{self.key[1]}/{uuid_to_text(self.segment_id)}"
        return {f"{folder}.{kind}" for kind in (*ALWAYS, *["txnindex"] * self.has_txn_index)}


class Change(NamedTuple):
    """A record that had an effect, and the broker that wrote it."""

    copy: Copy
    before: int
    broker_id: int


class Named(NamedTuple):
    """The parts of an object's key."""

    key: Key
    segment_id: bytes
    kind: str


def epoch_at(epochs: Epochs, offset: int) -> int:
    """Return the epoch that wrote an offset; -1 if unknown."""
    at = bisect_right(epochs, offset, key=lambda one: one[1])
    return epochs[at - 1][0] if at else -1


def boundary_after(epochs: Epochs, offset: int, end: int) -> int:
    """Return the offset where the next epoch begins, at most `end`."""
    return min([start for _, start in epochs if start > offset], default=end)


@dataclass
class TierTruth:
    """All copies by the records so far. `removed` are partitions with the state of their removal (0
    to 2)."""

    copies: dict[bytes, Copy] = field(default_factory=dict)
    of: dict[Key, dict[bytes, Copy]] = field(default_factory=dict)
    """Copies that are not deleted, by partition."""
    removed: dict[Key, int] = field(default_factory=dict)

    def replay(self, at: int, value: bytes) -> Change | None:
        """Replay the record at this offset of its partition. Returns: None if it had no effect.

        Raises: Violation (S3) if it is not a valid record.
        """
        try:
            message, _ = decode_remote_log_record(value)
        except ProtocolError as error:
            raise Violation(f"S3: {value!r} is not a record of the tier: {error}") from error
        if isinstance(message, RemotePartitionDeleteMetadataRecord):
            of = message.topic_id_partition
            key, state = (of.id, of.partition), message.remote_partition_delete_state
            if state == self.removed.get(key, -1) + 1:
                self.removed[key] = state
            return None
        if isinstance(message, RemoteLogSegmentMetadataRecord):
            return self._begin(at, message)
        assert isinstance(message, RemoteLogSegmentMetadataUpdateRecord)
        copy = self.copies.get(message.remote_log_segment_id.id)
        state = message.remote_log_segment_state
        if copy is None or copy.state not in FOLLOWS.get(state, ()):
            return None
        before, copy.state = copy.state, state
        if state == DELETE_FINISHED:
            del self.of[copy.key][copy.segment_id]
        return Change(copy, before, message.broker_id)

    def _begin(self, at: int, message: RemoteLogSegmentMetadataRecord) -> Change | None:
        of = message.remote_log_segment_id.topic_id_partition
        key, segment_id = (of.id, of.partition), message.remote_log_segment_id.id
        if segment_id in self.copies or key in self.removed:
            return None
        epochs = sorted((one.leader_epoch, one.offset) for one in message.segment_leader_epochs)
        copy = Copy(
            segment_id,
            key,
            message.start_offset,
            message.end_offset,
            tuple(epochs),
            message.segment_size_in_bytes,
            not message.txn_index_empty,
            message.broker_id,
            at,
        )
        self.copies[segment_id] = self.of.setdefault(key, {})[segment_id] = copy
        return Change(copy, -1, message.broker_id)

    def finished(self, key: Key) -> Iterator[Copy]:
        """Yield the copies of a partition that can be read."""
        return (one for one in self.of.get(key, {}).values() if one.state == COPY_FINISHED)

    def uncovered(
        self, key: Key, epochs: Epochs, first: int, end: int, without: Copy | None = None
    ) -> int | None:
        """Return the first offset of [first, end) that no finished copy has with these epochs, else
        None."""
        some = [one for one in self.finished(key) if one is not without]
        return hole(some, epochs, first, end)


def hole(copies: Iterable[Copy], epochs: Epochs, first: int, end: int) -> int | None:
    """Return the first offset of [first, end) that none of these copies has with `epochs`, else
    None."""
    # Of thousands of copies few have an offset: those that begin later are not checked yet.
    later = sorted(copies, key=lambda one: one.begins, reverse=True)
    here: list[Copy] = []
    at = first
    while at < end:
        epoch = epoch_at(epochs, at)
        while later and later[-1].begins <= at:
            here.append(later.pop())
        here = [one for one in here if one.last >= at]
        reach = at
        for one in here:
            if epoch >= 0 and epoch_at(one.epochs, at) == epoch:
                until = min(one.last + 1, boundary_after(one.epochs, at, end))
                reach = max(reach, min(until, boundary_after(epochs, at, end)))
        if reach == at:
            return at
        at = reach
    return None
