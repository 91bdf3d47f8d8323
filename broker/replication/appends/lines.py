"""Order, memory and deadlines of produced batches that wait for their append.

A line has the batches of one producer in one partition, in the order of arrival; all batches
without a producer id share one line. No line delays another. A batch has one reason to wait at a
time. The reason may change, the place in the line does not. Later batches of the line wait behind
it, with one exception: a batch that waits for its predecessors lets others pass, for they may be
these predecessors.

One budget in bytes and batches limits all lines. A copy stays after its connection has closed, so
the limits of connections do not suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from broker.replication.partition.partition import Partition
from protocol.batch.header import NO_PRODUCER_ID, BatchHeader, Buffer
from protocol.batch.validate import ValidBatch

if TYPE_CHECKING:
    import asyncio

    from storage.log.append import AppendInfo

HELD_BYTES_MAX: Final = 256 * 1024 * 1024
HELD_MAX: Final = 10_000
"""Limits of all waiting copies, in bytes and batches. One batch may always wait."""
NEVER_MS: Final = float("inf")

LineKey: TypeAlias = tuple[Partition, int]
"""Partition and producer id."""


class Reason(Enum):
    """The event that a batch waits for."""

    IMAGE = auto()
    """The metadata image in which this broker leads the partition (KIP-951)."""
    PREDECESSORS = auto()
    """The producer's batches with lower sequence numbers."""
    VERIFICATION = auto()
    """The coordinator's answer that the partition belongs to the transaction (KIP-890)."""
    WALK = auto()
    """The validation of its records in a worker, or of those of a batch before it."""


class HeldAppend(NamedTuple):
    """A batch that was appended after a wait, and the leader epoch of the append.

    Code that awaits it resumes one event-loop iteration later. Another broker may lead by then and
    have truncated the batch: it is acknowledged only in the leader epoch of its append (seed 5131).
    """

    info: AppendInfo
    leader_epoch: int


class HeldBatch:
    """The only copy of a waiting batch, with the parameters of its append."""

    __slots__ = (
        "api_version", "done", "header", "key", "partition", "reason", "records", "required_acks",
        "transactional", "until_ms", "valid",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        records: bytes,
        header: BatchHeader | None,
        *,
        api_version: int,
        required_acks: int,
        transactional: bool,
        reason: Reason,
        until_ms: float,
        done: asyncio.Future[HeldAppend],
    ) -> None:
        """Set the values. `header` is None if the batch is too short for one; it need not be
        validated. `until_ms` is the monotonic time at which the wait ends."""
        self.partition = partition
        self.records: Buffer = records
        self.header = header
        self.key: LineKey = partition, NO_PRODUCER_ID if header is None else header.producer_id
        self.api_version = api_version
        self.required_acks = required_acks
        self.transactional = transactional
        self.reason = reason
        self.until_ms = until_ms
        self.done = done
        self.valid: ValidBatch | None = None
        """The validated batch after its record walk; it replaces `records`."""


class HeldLines:
    """All waiting batches of a broker."""

    def __init__(self) -> None:
        self.by_key: dict[LineKey, dict[HeldBatch, None]] = {}
        """The lines, each an ordered set. This dictionary itself is never replaced."""
        self.held_bytes = 0
        self._all: dict[HeldBatch, None] = {}  # in the order of arrival
        self._deadlines: list[tuple[float, int, HeldBatch]] = []  # a heap; old entries stay in it
        self._serial = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[HeldBatch]:
        """Yield all batches in the order of arrival, from a copy."""
        return iter(list(self._all))

    def __contains__(self, held: HeldBatch) -> bool:
        return held in self._all

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a batch of this size may wait."""
        return not self._all or (
            len(self._all) < HELD_MAX and self.held_bytes + size_bytes <= HELD_BYTES_MAX
        )

    def add(self, held: HeldBatch) -> None:
        """Put a batch at the end of its line."""
        self._all[held] = None
        self.by_key.setdefault(held.key, {})[held] = None
        self.held_bytes += len(held.records)
        self._note_deadline(held)

    def remove(self, held: HeldBatch) -> None:
        """Remove a batch that is appended or refused."""
        del self._all[held]
        line = self.by_key[held.key]
        del line[held]
        if not line:
            del self.by_key[held.key]
        self.held_bytes -= len(held.records)

    def wait_on(self, held: HeldBatch, reason: Reason, until_ms: float) -> None:
        """Let a batch keep its place with another reason and deadline."""
        held.reason = reason
        if until_ms != held.until_ms:
            held.until_ms = until_ms
            self._note_deadline(held)

    def walked(self, held: HeldBatch, valid: ValidBatch) -> None:
        """Replace the copy of a batch by its validated form."""
        self.held_bytes += len(valid.data) - len(held.records)
        held.valid, held.header, held.records = valid, valid.header, valid.data

    # Lines -------------------------------------------------------------------------------------

    def blocker(self, key: LineKey) -> HeldBatch | None:
        """Return the first batch of a line that later ones may not pass."""
        for held in self.by_key.get(key, ()):
            if held.reason is not Reason.PREDECESSORS:
                return held
        return None

    def first(self, key: LineKey, reason: Reason) -> HeldBatch | None:
        """Return the first batch of a line with this reason."""
        return next((held for held in self.by_key.get(key, ()) if held.reason is reason), None)

    def ahead(self, key: LineKey) -> list[HeldBatch]:
        """Return the batches of a line that wait for predecessors, in the order of arrival."""
        return [held for held in self.by_key.get(key, ()) if held.reason is Reason.PREDECESSORS]

    # Deadlines ---------------------------------------------------------------------------------

    def _note_deadline(self, held: HeldBatch) -> None:
        if held.until_ms != NEVER_MS:
            self._serial += 1
            heappush(self._deadlines, (held.until_ms, self._serial, held))

    def next_deadline_ms(self) -> float | None:
        """Return the earliest deadline, or None if no batch has one."""
        deadlines = self._deadlines
        while deadlines:
            until_ms, _, held = deadlines[0]
            if held.until_ms == until_ms and held in self._all:
                return until_ms
            heappop(deadlines)
        return None

    def overdue(self, now_ms: float) -> list[HeldBatch]:
        """Return the batches whose deadline has passed, the earliest first. The caller must remove
        them or give them another deadline."""
        found: list[HeldBatch] = []
        while (until_ms := self.next_deadline_ms()) is not None and until_ms <= now_ms:
            found.append(heappop(self._deadlines)[2])
        return found
