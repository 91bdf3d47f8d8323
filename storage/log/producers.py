"""State of idempotent and transactional producers of one log (KIP-98).

Per producer id: its epoch, the last five batches (so that a retry is recognised and answered with
its original offset), and the first offset of its open transaction. Per log: the transactions that
are open or end above the high watermark, and hence the first unstable offset.

An append has two steps, so that a failed write changes nothing: `check` validates the headers
against the present state, and `apply` replays each batch once the bytes are in the log. Followers,
recovery and truncation use `apply`, too: the state is a function of the log.

A repeated batch that is older than the five remembered ones gets DUPLICATE_SEQUENCE_NUMBER, which
the client's producer treats as success. Kafka returns OUT_OF_ORDER_SEQUENCE_NUMBER, which the
client treats as a loss. Kraftbox returns OUT_OF_ORDER_SEQUENCE_NUMBER for two kinds of repeated
sequences only:

* those below the first sequence that the log has of the producer, which may begin anywhere if the
  log has no state for it: they may have been lost, and success would hide that;
* a batch that shares sequence numbers with a remembered one but is not identical to it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from protocol.batch.control import ControlType, read_control_type, read_end_txn_marker
from protocol.batch.header import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from protocol.batch.records import read_batch
from protocol.checksum import crc32c
from protocol.errors import ApiError, ErrorCode, ProtocolError
from runtime.marks import mark
from storage.log.errors import CorruptLog
from storage.log.indexes import AbortedTxn
from storage.log.unstable import UnstableTransactions
from storage.log.verification import NO_VERIFICATION, TransactionGuard, TransactionGuards

REMEMBERED_BATCHES: Final = 5
EXPIRY_STEP: Final = 1_000
NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
SNAPSHOT_VERSION: Final = 1

_SEQUENCE_MASK = 0x7FFFFFFF
_HALF_OF_SEQUENCES = 1 << 30

_head = struct.Struct(">hIi")
_entry = struct.Struct(">qhiqiqiq")
_CRC_COVERS_FROM = 6


class Origin(Enum):
    """Source of an append; it decides which checks apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"


class CorruptSnapshot(ValueError):
    """An unusable producer snapshot file; an older one is used, and the log is replayed from
    there."""


class Remembered(NamedTuple):
    """One batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    def overlaps(self, header: BatchHeader) -> bool:
        """Return whether a batch of the same epoch shares a sequence number with this one."""
        ahead = (header.base_sequence - self.first_sequence) & _SEQUENCE_MASK
        behind = (self.first_sequence - header.base_sequence) & _SEQUENCE_MASK
        return ahead <= self.offset_delta or behind <= header.last_offset_delta


_NO_BATCH: Final = Remembered(NO_SEQUENCE, NO_OFFSET, 0, 0)


class EndMarker(NamedTuple):
    """The content of an end-of-transaction control record."""

    commit: bool
    coordinator_epoch: int


def end_marker(buf: Buffer, pos: int, header: BatchHeader) -> EndMarker | None:
    """Return the content of an end-of-transaction batch; None for other control batches.

    Raises CorruptLog for a control batch that cannot be read.
    """
    try:
        for record in read_batch(buf, pos, header):
            if read_control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT):
                return EndMarker(*read_end_txn_marker(record))
    except (ApiError, ProtocolError) as error:
        raise CorruptLog(f"control batch at offset {header.base_offset}: {error}") from error
    return None


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    aborted: bool


class ProducerState:
    """One producer, with the fields that DescribeProducers reports."""

    __slots__ = (
        "batches", "began_at", "coordinator_epoch", "epoch", "last_timestamp_ms", "producer_id",
        "txn_epoch", "txn_first_offset",
    )  # fmt: skip

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: deque[Remembered] = deque(maxlen=REMEMBERED_BATCHES)
        self.last_timestamp_ms = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.txn_first_offset: int | None = None
        self.txn_epoch = NO_PRODUCER_EPOCH
        """Producer epoch of the newest batch of the open transaction."""
        self.began_at = 0
        """First sequence number of this epoch that the log is known to have contained."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def duplicate_of(self, header: BatchHeader) -> Remembered | None:
        """Return the remembered batch that this one repeats; None for a new batch."""
        if header.producer_epoch != self.epoch:
            return None
        last = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def has_open(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to the open transaction. One of an older producer epoch
        is not its transaction, even if that has no marker yet."""
        return self.txn_first_offset is not None and self.txn_epoch == header.producer_epoch

    def raise_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
            self.began_at = 0

    def __eq__(self, other: object) -> bool:
        # `began_at` is not compared: it is lost when its records are removed, and snapshots lack
        # it. They lack `txn_epoch`, too.
        return isinstance(other, ProducerState) and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__slots__
            if name not in ("began_at", "txn_epoch")
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"ProducerState({self.producer_id}, epoch={self.epoch}, batches={list(self.batches)}, "
            f"txn_first_offset={self.txn_first_offset})"
        )


class ProducerStates:
    """All producers of one log.

    Args:
        expiration_ms: a producer id without a write for this time, and without an open transaction,
        is forgotten (`producer.id.expiration.ms`).
    """

    __slots__ = ("_producers", "before_change", "expiration_ms", "guards", "unstable")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self._producers: dict[int, ProducerState] = {}
        self.unstable = UnstableTransactions()
        self.guards = TransactionGuards()
        self.before_change: Callable[[ProducerState], None] | None = None
        """Called with a known producer before it changes, while a snapshot is being encoded."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    # Before the write ------------------------------------------------------------------------

    def check(
        self,
        headers: Sequence[BatchHeader],
        origin: Origin,
        guard: TransactionGuard | None = NO_VERIFICATION,
        leader_epoch: int = -1,
    ) -> Remembered | None:
        """Validate batches that are about to be appended. Returns the batch that a retry repeats.

        Sequence numbers are checked for a client's batches only. The order is Kafka's: repetition,
        epoch, guard, sequence (KAFKA-19690).

        Args:
            guard: the guard that the leader created for this append; None without verification.
            leader_epoch: the epoch of the append.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
            DUPLICATE_SEQUENCE_NUMBER. INVALID_TXN_STATE for a non-transactional batch while the
            producer has an open transaction, and for a batch that would begin one without a guard.
        """
        if origin is not Origin.CLIENT and origin is not Origin.COORDINATOR:
            return None
        if len(headers) == 1 and self.continues(headers[0]):
            return None
        staged: dict[int, tuple[int, int]] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if producer_id not in staged:
                duplicate = self._check_first(header, origin, guard, leader_epoch)
                if duplicate is not None:
                    return duplicate
            elif origin is Origin.CLIENT:
                epoch, sequence = staged[producer_id]
                _check_sequence(producer_id, epoch, sequence, header)
            staged[producer_id] = (header.producer_epoch, header.last_sequence)
        return None

    def continues(self, header: BatchHeader) -> bool:
        """Return whether the batch has no producer id, or directly continues its producer's last
        batch, outside a transaction or in one that is open. True for nearly every batch."""
        producer_id = header.producer_id
        if producer_id < 0:
            return True
        state = self._producers.get(producer_id)
        return (
            state is not None
            and header.producer_epoch == state.epoch
            and bool(state.batches)
            and header.base_sequence == (state.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
            and not header.attributes & CONTROL_BIT
            and (
                state.has_open(header)
                if header.attributes & TRANSACTIONAL_BIT
                else state.txn_first_offset is None
            )
        )

    def lacks_predecessors(self, header: BatchHeader) -> bool:
        """Return whether there is a gap between this producer's last batch here and this one."""
        state = self._producers.get(header.producer_id)
        if state is None or header.producer_epoch != state.epoch or not state.batches:
            return False
        expected = (state.last_sequence + 1) & _SEQUENCE_MASK
        ahead = (header.base_sequence - expected) & _SEQUENCE_MASK
        return 0 < ahead < _HALF_OF_SEQUENCES

    def _check_first(
        self,
        header: BatchHeader,
        origin: Origin,
        guard: TransactionGuard | None,
        leader_epoch: int,
    ) -> Remembered | None:
        """Validate the first batch of its producer in an append, as `check`."""
        state = self._producers.get(header.producer_id)
        if state is not None:
            if origin is Origin.CLIENT and not header.is_control:
                duplicate = state.duplicate_of(header)
                if duplicate is not None:
                    return duplicate
            self._check_epoch(state, header)
        if header.is_control:
            return None
        if header.is_transactional and (state is None or not state.has_open(header)):
            self._check_guard(header, guard, leader_epoch)
        if state is not None:
            self._check_one(state, header, origin)
        return None

    def _check_epoch(self, state: ProducerState, header: BatchHeader) -> None:
        if header.producer_epoch < state.epoch:
            mark("producer.fenced")
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {state.producer_id} has epoch {state.epoch}, "
                f"the batch {header.producer_epoch}",
            )

    def _check_guard(
        self, header: BatchHeader, guard: TransactionGuard | None, leader_epoch: int
    ) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        if not self.guards.verifies(producer_id, epoch, leader_epoch, guard):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has no open transaction in epoch {epoch}",
            )

    def _check_one(self, state: ProducerState, header: BatchHeader, origin: Origin) -> None:
        if origin is Origin.CLIENT and state.epoch != NO_PRODUCER_EPOCH:
            _check_sequence(
                state.producer_id,
                state.epoch,
                state.last_sequence,
                header,
                state.began_at,
                state.batches,
            )
        if state.txn_first_offset is not None and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {state.producer_id} has an open transaction",
            )

    # After the write -------------------------------------------------------------------------

    def apply(
        self, header: BatchHeader, base_offset: int, marker: EndMarker | None = None
    ) -> CompletedTxn | None:
        """Replay one batch that is in the log at `base_offset`.

        `marker` is the content of an end-of-transaction control batch. Returns the transaction that
        it ended, if one was open.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerState(producer_id)
        elif self.before_change is not None:
            self.before_change(state)
        if header.is_control:
            if marker is None:
                return None
            return self._end_transaction(state, header, base_offset, marker)
        if header.producer_epoch != state.epoch:
            state.raise_epoch(header.producer_epoch)
            self.guards.remove(producer_id)
        timestamp_ms = header.max_timestamp
        delta = header.last_offset_delta
        if not state.batches:
            state.began_at = max(0, header.base_sequence)
        state.batches.append(
            Remembered(header.last_sequence, base_offset + delta, delta, timestamp_ms)
        )
        state.last_timestamp_ms = timestamp_ms
        if header.attributes & TRANSACTIONAL_BIT and not state.has_open(header):
            self._begin_transaction(state, header.producer_epoch, base_offset)
        return None

    def _begin_transaction(self, state: ProducerState, epoch: int, offset: int) -> None:
        """Open a transaction, or continue that of an older epoch until the marker of both."""
        state.txn_epoch = epoch
        self.guards.remove(state.producer_id)
        if state.txn_first_offset is None:
            state.txn_first_offset = offset
            self.unstable.begin(offset)

    def _end_transaction(
        self, state: ProducerState, header: BatchHeader, offset: int, marker: EndMarker
    ) -> CompletedTxn | None:
        state.raise_epoch(header.producer_epoch)
        self.guards.remove(state.producer_id)
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp_ms = header.max_timestamp
        first_offset, state.txn_first_offset = state.txn_first_offset, None
        if first_offset is None:
            return None
        self.unstable.end(first_offset, offset)
        return CompletedTxn(state.producer_id, first_offset, offset, not marker.commit)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset once this transaction is replicated, for the transaction
        index."""
        first = self.unstable.first_open_offset
        return completed.last_offset + 1 if first is None else first

    # Transactions and the high watermark -----------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open or whose end marker is not replicated yet."""
        return self.unstable.first_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Mark the transactions as stable whose marker lies below the high watermark."""
        if self.unstable.ended:
            self.unstable.settle(high_watermark)

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget ended transactions whose marker lies below the log start."""
        self.on_high_watermark(log_start_offset)

    def put_before(self, older: ProducerStates) -> None:
        """Merge the state from before the first batch that was applied here.

        Producers without batches here are taken over whole; for the others, the older batches are
        put before theirs.
        """
        open_offsets = []
        for state in older:
            mine = self._producers.get(state.producer_id)
            if mine is not None and self.before_change is not None:
                self.before_change(mine)
            if mine is None:
                self._producers[state.producer_id] = state
                if state.txn_first_offset is not None:
                    open_offsets.append(state.txn_first_offset)
            elif mine.epoch == state.epoch and len(mine.batches) < REMEMBERED_BATCHES:
                mine.batches.extendleft(reversed(state.batches))
                mine.began_at = state.began_at
        self.unstable.add(open_offsets)

    # Expiry, snapshots -----------------------------------------------------------------------

    def expiry_steps(self, now_ms: int) -> Iterator[int]:
        """Expire idle producers; yield how many after each `EXPIRY_STEP` that were examined."""
        forgotten = 0
        for at, producer_id in enumerate(list(self._producers), 1):
            state = self._producers.get(producer_id)
            if state is not None and self._expired(state, now_ms):
                del self._producers[producer_id]
                self.guards.remove(producer_id)
                forgotten += 1
            if at % EXPIRY_STEP == 0:
                yield forgotten
                forgotten = 0
        yield forgotten

    def _expired(self, state: ProducerState, now_ms: int) -> bool:
        idle_ms = now_ms - state.last_timestamp_ms
        return state.txn_first_offset is None and idle_ms >= self.expiration_ms

    def clear(self) -> None:
        self._producers.clear()
        self.unstable.clear()
        self.guards.clear()

    def reopen(self, aborted: Iterable[AbortedTxn]) -> None:
        """Open aborted transactions again: the log is about to end before their markers."""
        for txn in aborted:
            state = self._producers.get(txn.producer_id)
            if state is None:
                state = self._producers[txn.producer_id] = ProducerState(txn.producer_id)
            state.txn_first_offset, state.txn_epoch = txn.first_offset, state.epoch
            self.unstable.add((txn.first_offset,))

    def leave_out_from(self, offset: int) -> None:
        """Forget producers whose last batch is at or above `offset`, where the log is about to end.

        Such a batch will be replicated again, or never was in this log. A producer whose
        transaction was open before `offset` stays: only its state has the start of that
        transaction.
        """
        for state in list(self._producers.values()):
            first = state.txn_first_offset
            if state.last_offset >= offset and (first is None or first >= offset):
                del self._producers[state.producer_id]
                if first is not None:
                    self.unstable.forget(first)

    def encode_snapshot(self) -> bytes:
        """Encode the present state as Kafka's `.snapshot` file."""
        content = SnapshotContent(len(self._producers))
        content.add(map(encode_entry, self._producers.values()))
        return bytes(content.finish())

    def load_snapshot(self, data: bytes, now_ms: int) -> None:
        """Replace the state with a snapshot's, without expired producers.

        Raises CorruptSnapshot and leaves the state as it was.
        """
        states = [state for state in decode_snapshot(data) if not self._expired(state, now_ms)]
        self.clear()
        for state in states:
            self._producers[state.producer_id] = state
        self.unstable.add(
            state.txn_first_offset for state in states if state.txn_first_offset is not None
        )


def encode_entry(state: ProducerState) -> bytes:
    """Encode one producer of a `.snapshot` file."""
    last = state.batches[-1] if state.batches else _NO_BATCH
    first = state.txn_first_offset
    return _entry.pack(
        state.producer_id,
        state.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        state.last_timestamp_ms,
        state.coordinator_epoch,
        NO_OFFSET if first is None else first,
    )


class SnapshotContent:
    """The content of a `.snapshot` file, built in parts."""

    __slots__ = ("_content", "_count", "_crc")

    def __init__(self, count: int) -> None:
        """Begin a file with `count` producers."""
        self._count = count
        self._content = bytearray(_head.pack(SNAPSHOT_VERSION, 0, count))
        self._crc = crc32c(self._content[_CRC_COVERS_FROM:])

    def add(self, entries: Iterable[bytes]) -> None:
        """Append the encoded entries of the next producers."""
        part = b"".join(entries)
        self._content += part
        self._crc = crc32c(part, self._crc)

    def finish(self) -> bytearray:
        """Write the checksum of all parts into the file's head. Returns: the content."""
        _head.pack_into(self._content, 0, SNAPSHOT_VERSION, self._crc, self._count)
        return self._content


def decode_snapshot(data: bytes) -> list[ProducerState]:
    """Decode the producers in a `.snapshot` file. Raises CorruptSnapshot."""
    if len(data) < _head.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no producer snapshot")
    version, crc, count = _head.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version}, {SNAPSHOT_VERSION} is known")
    if crc32c(data[_CRC_COVERS_FROM:]) != crc:
        raise CorruptSnapshot("the CRC is wrong")
    if count < 0 or len(data) != _head.size + count * _entry.size:
        raise CorruptSnapshot(f"{count} producers in {len(data)} bytes")
    return [_read_entry(data, _head.size + at * _entry.size) for at in range(count)]


def _read_entry(data: bytes, pos: int) -> ProducerState:
    (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp_ms,
        coordinator_epoch,
        txn_first_offset,
    ) = _entry.unpack_from(data, pos)
    state = ProducerState(producer_id)
    state.epoch = epoch
    state.last_timestamp_ms = timestamp_ms
    state.coordinator_epoch = coordinator_epoch
    if last_offset >= 0:
        state.batches.append(Remembered(last_sequence, last_offset, offset_delta, timestamp_ms))
    if txn_first_offset >= 0:
        state.txn_first_offset = txn_first_offset
        state.txn_epoch = epoch
    return state


def _check_sequence(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    header: BatchHeader,
    began_at: int = 0,
    remembered: Iterable[Remembered] = (),
) -> None:
    first = header.base_sequence
    if header.producer_epoch != epoch:
        if first == 0:
            return
        raise _out_of_order(producer_id, f"begins epoch {header.producer_epoch} at {first}, not 0")
    expected = (last_sequence + 1) & _SEQUENCE_MASK
    if first == expected:
        return
    behind = (expected - first) & _SEQUENCE_MASK
    known = (expected - began_at) & _SEQUENCE_MASK if began_at else _HALF_OF_SEQUENCES - 1
    written = last_sequence != NO_SEQUENCE and header.record_count <= behind <= known
    # The caller has excluded an exact repetition: a batch that overlaps a known one is another.
    if written and not any(batch.overlaps(header) for batch in remembered):
        raise ApiError(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"Producer {producer_id} repeats sequence {first}; {expected} is next",
        )
    raise _out_of_order(producer_id, f"sends sequence {first}, {expected} is next")


def _out_of_order(producer_id: int, what: str) -> ApiError:
    return ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"Producer {producer_id} {what}")
