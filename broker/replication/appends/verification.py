"""Verification of transactions before their first append to a partition (KIP-890).

A leader must not append a batch of a transaction that the coordinator does not know, because no
marker would ever end it. So the first batch of a transaction waits for the coordinator's answer to
a request about the partition. There is one guard per producer and partition. The leader creates it
with the request and appends nothing of a closed transaction without it.

Later batches of the producer wait behind the first and send no request of their own. After the
answer all are appended in the order of their sequence numbers. A batch ahead of the lowest sequence
number that has waited must not pass it: a log without state of the producer accepts any first
sequence number, and would lose the lower ones (KAFKA-14920). The guard keeps that number after its
batch has gone with its connection.

A wait ends with the answer, and earlier with its connection or time limit (`withdrawn`), with a
newer epoch of the producer, or with the leadership (`ended`). An answer after that has no effect.

The caller keeps the batches in `lines.HeldLines`, which limits their bytes and time. It calls this
module once transactions have a coordinator; until then a Produce with a transactional id is
refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, TypeVar

from protocol.errors import ErrorCode

IDLE_MAX: Final = 10_000
"""Guards for which no batch and no answer waits; the oldest is dropped first. Its producer sends
another request."""
SEQUENCE_MASK: Final = 0x7FFFFFFF
_HALF_OF_SEQUENCES: Final = 1 << 30

P = TypeVar("P", bound=Hashable)
B = TypeVar("B", bound=Hashable)


class Step(Enum):
    """The next step of a batch that has arrived."""

    APPEND = auto()
    """Append it: its transaction is open in the log."""
    REQUEST = auto()
    """Send a request to the coordinator; the batch waits for the answer."""
    WAIT = auto()
    """Wait for the answer to the request that an earlier batch has sent."""
    FENCED = auto()
    """Refuse it with INVALID_PRODUCER_EPOCH: a newer epoch of the producer waits already."""


class Guard:
    """The permission to append the first batch of one transaction to one partition. Compared by
    identity."""

    __slots__ = ("epoch", "lowest_sequence", "producer_id")

    def __init__(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Create a guard for the batch that begins at `sequence`."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.lowest_sequence = sequence

    def admits(self, sequence: int) -> bool:
        """Return whether a batch that begins at `sequence` may be the transaction's first here.
        If not, the leader refuses it with OUT_OF_ORDER_SEQUENCE_NUMBER."""
        return not _is_before(self.lowest_sequence, sequence)


class Outcome(NamedTuple, Generic[B]):
    """The end of a batch's wait. Append it with the guard, or refuse it with the error."""

    batch: B
    guard: Guard | None
    error: ErrorCode = ErrorCode.NONE


class Arrival(NamedTuple, Generic[B]):
    """The next step of a batch, the guard that it waits for, and batches that it displaces."""

    step: Step
    guard: Guard | None = None
    displaced: Sequence[Outcome[B]] = ()


class _Waiting(Generic[B]):
    """A guard and the batches that wait for it, with their first sequence numbers."""

    __slots__ = ("batches", "guard", "in_flight")

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.batches: dict[B, int] = {}
        self.in_flight = True

    def refused(self, error: ErrorCode) -> list[Outcome[B]]:
        return [Outcome(batch, None, error) for batch in self.batches]


class Verifications(Generic[P, B]):
    """The guards of a broker, by partition and producer id."""

    def __init__(self) -> None:
        self._waiting: dict[P, dict[int, _Waiting[B]]] = {}
        self._idle: dict[tuple[P, int], None] = {}  # in the order in which they became idle

    def guard(self, partition: P, producer_id: int) -> Guard | None:
        """Return the producer's present guard in the partition."""
        found = self._waiting.get(partition, {}).get(producer_id)
        return None if found is None else found.guard

    def arrived(
        self,
        partition: P,
        batch: B,
        *,
        producer_id: int,
        epoch: int,
        sequence: int,
        is_open: bool,
    ) -> Arrival[B]:
        """Decide about a transactional batch that a leader has checked and not yet appended.

        `is_open`: the log has an open transaction of this producer and epoch. An open transaction
        of an older epoch does not count. The caller refuses the displaced batches, which have an
        older epoch.
        """
        present = self._waiting.get(partition, {}).get(producer_id)
        if present is not None and present.guard.epoch > epoch:
            return Arrival(Step.FENCED)
        displaced: list[Outcome[B]] = []
        if present is not None and present.guard.epoch < epoch:
            displaced = present.refused(ErrorCode.INVALID_PRODUCER_EPOCH)
            self.cleared(partition, producer_id)
            present = None
        if is_open and (present is None or not present.batches):
            return Arrival(Step.APPEND, None, displaced)
        step = Step.WAIT
        if present is None:
            present = _Waiting(Guard(producer_id, epoch, sequence))
            self._waiting.setdefault(partition, {})[producer_id] = present
            step = Step.REQUEST
        elif not present.in_flight:
            present.in_flight = True
            self._idle.pop((partition, producer_id), None)
            step = Step.REQUEST
        if _is_before(sequence, present.guard.lowest_sequence):
            present.guard.lowest_sequence = sequence
        present.batches[batch] = sequence
        return Arrival(step, present.guard, displaced)

    def answered(self, partition: P, guard: Guard, error: ErrorCode) -> list[Outcome[B]]:
        """Apply the coordinator's answer. `error` is NONE, or the error for the producer.

        Returns: the outcomes of all waiting batches, in the order in which to append them; none if
        the guard is not the present one any more. The caller reports a successful append with
        `cleared`, because it opens the transaction. Until then it appends only batches that the
        guard admits. A request without an answer counts as answered with an error.
        """
        present = self._waiting.get(partition, {}).get(guard.producer_id)
        if present is None or present.guard is not guard:
            return []
        present.in_flight = False
        batches, present.batches = present.batches, {}
        self._rest(partition, guard.producer_id)
        if error is not ErrorCode.NONE:
            return [Outcome(batch, None, error) for batch in batches]
        lowest = guard.lowest_sequence
        ordered = sorted(batches, key=lambda batch: (batches[batch] - lowest) & SEQUENCE_MASK)
        return [Outcome(batch, guard) for batch in ordered]

    def withdrawn(self, partition: P, producer_id: int, batch: B) -> None:
        """Forget a batch whose connection has closed or whose time limit has passed. The answer
        still counts for the others."""
        present = self._waiting.get(partition, {}).get(producer_id)
        if present is not None:
            present.batches.pop(batch, None)

    def cleared(self, partition: P, producer_id: int) -> None:
        """Remove a guard: its transaction is open now, or a marker, the expiry of the producer or a
        truncation has made it invalid."""
        guards = self._waiting.get(partition)
        if guards is not None and guards.pop(producer_id, None) is not None and not guards:
            del self._waiting[partition]
        self._idle.pop((partition, producer_id), None)

    def ended(self, partition: P) -> list[Outcome[B]]:
        """Remove all guards of a partition that this broker does not lead any more. Returns: its
        waiting batches, to be refused."""
        guards = self._waiting.pop(partition, {})
        for producer_id in guards:
            self._idle.pop((partition, producer_id), None)
        return [
            outcome
            for present in guards.values()
            for outcome in present.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ]

    def _rest(self, partition: P, producer_id: int) -> None:
        """Keep a guard for its lowest sequence number; drop the oldest of too many."""
        self._idle[partition, producer_id] = None
        if len(self._idle) > IDLE_MAX:
            self.cleared(*next(iter(self._idle)))


def _is_before(one: int, other: int) -> bool:
    """Return whether a sequence number precedes another; after the largest comes 0."""
    return 0 < (other - one) & SEQUENCE_MASK < _HALF_OF_SEQUENCES
