"""Transactions whose end markers are being written.

A transaction enters when its Prepare record is committed, or when a new coordinator has loaded such
a record. It leaves with its completion. Each entry belongs to one transition and one coordinator
epoch: if the epoch rises, all markers are requested again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from broker.coordinators.txn.decision import MarkersDue
from broker.coordinators.txn.states import TxnState
from broker.coordinators.txn.transaction import TopicPartition, Transaction


class _Entry:
    __slots__ = ("left", "serial")

    def __init__(self, serial: int, left: Iterable[TopicPartition]) -> None:
        self.serial = serial
        self.left = set(left)


class Markers:
    """The entries of one shard, and a queue of those whose request is not made yet."""

    def __init__(self, coordinator_epoch: int) -> None:
        self.coordinator_epoch = coordinator_epoch
        self._entries: dict[str, _Entry] = {}
        self._queue: deque[str] = deque()
        self._last_serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, transactional_id: str, txn: Transaction) -> MarkersDue:
        """Add a transaction in a Prepare state, or begin it from scratch. Returns: the request for
        its markers, which has no partitions if the transaction is complete without any."""
        self._last_serial += 1
        self._entries[transactional_id] = _Entry(self._last_serial, txn.partitions)
        return MarkersDue(
            transactional_id,
            self._last_serial,
            txn.producer_id,
            txn.epoch,
            txn.state is TxnState.PREPARE_COMMIT,
            self.coordinator_epoch,
            txn.client_version,
            txn.partitions,
        )

    def queue(self, transactional_id: str) -> None:
        """Let `pop` return this transaction: its markers must be requested."""
        self._queue.append(transactional_id)

    def pop(self) -> str | None:
        """Return the next transaction whose markers must be requested; None without any."""
        return self._queue.popleft() if self._queue else None

    @property
    def has_queued(self) -> bool:
        return bool(self._queue)

    def raise_epoch(self, coordinator_epoch: int) -> None:
        """Queue all transactions again: their markers must carry the new epoch."""
        self.coordinator_epoch = coordinator_epoch
        self._queue = deque(self._entries)

    def written(self, due: MarkersDue, partitions: Iterable[TopicPartition]) -> bool:
        """Note that these partitions have the marker, or were deleted. Returns: True if `due` is
        the present request of the transaction and no partition is left."""
        entry = self._entries.get(due.transactional_id)
        if entry is None or entry.serial != due.serial:
            return False
        entry.left.difference_update(partitions)
        return not entry.left

    def is_current(self, transactional_id: str, serial: int) -> bool:
        entry = self._entries.get(transactional_id)
        return entry is not None and entry.serial == serial

    def end(self, transactional_id: str) -> None:
        """Remove a transaction that is complete, if it is there."""
        self._entries.pop(transactional_id, None)
