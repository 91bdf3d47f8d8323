"""Delivery of committed batches to listeners, in order, each exactly once.

A listener gets the latest snapshot first if it has not seen the records that it covers, then every
batch below the high watermark. It is notified of a leader at once, with one exception. If this node
leads, the listener first gets everything committed before, including the record that opened the
epoch. So a controller that becomes active decides on complete state (M18).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from metalog.quorum.batches import Batch
from metalog.quorum.core.messages import LeaderChanged
from metalog.quorum.log import MetadataLog
from metalog.quorum.snapshots import SnapshotReader
from runtime.errors import InvariantViolated

CommittedBatch = Batch

NOWHERE: Final = -1
_READ_BYTES = 1 << 20


class QuorumListener(Protocol):
    """Receiver of committed metadata, called on the event loop. An exception stops the node."""

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None: ...

    def handle_commit(self, batch: CommittedBatch) -> None:
        """Process a committed batch. A control batch has no `records` and only advances the
        offset."""
        ...

    def handle_snapshot(self, snapshot: SnapshotReader) -> Iterator[None] | None:
        """Drop all state and begin with this snapshot.

        A listener may return an iterator to load it in steps. Other tasks run between the steps,
        and no other delivery happens until the iterator has ended.
        """
        ...


class _Subscription:
    __slots__ = ("leader", "listener", "loading", "next_offset")

    def __init__(self, listener: QuorumListener) -> None:
        self.listener = listener
        self.next_offset = 0
        self.leader: LeaderChanged | None = None
        self.loading: Iterator[None] | None = None


class Delivery:
    """Delivery to all listeners. It keeps this node's own appends decoded until they are
    delivered."""

    def __init__(self, log: MetadataLog, node_id: int) -> None:
        self._log = log
        self._node_id = node_id
        self._subscriptions: list[_Subscription] = []
        self._recent: dict[int, Batch] = {}
        self._read_ahead: Iterator[Batch] = iter(())
        self._read_ahead_at = NOWHERE
        self._high_watermark = 0
        self._leader = LeaderChanged(None, -1)
        self._epoch_start_offset = 0

    def add(self, listener: QuorumListener) -> None:
        subscription = _Subscription(listener)
        if self._leader.epoch >= 0:
            subscription.leader = self._leader
        self._subscriptions.append(subscription)

    def remember(self, batch: Batch) -> None:
        """Keep a batch that was just appended here and is not committed yet."""
        self._recent[batch.base_offset] = batch

    def forget_from(self, offset: int) -> None:
        """Drop batches from `offset` on: the log was truncated."""
        self._recent = {base: b for base, b in self._recent.items() if base < offset}
        self._read_ahead_at = NOWHERE

    def committed(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark

    def leader_changed(self, leader: LeaderChanged, epoch_start_offset: int) -> None:
        """Note the leader; `epoch_start_offset` matters only if this node leads."""
        self._leader = leader
        self._epoch_start_offset = epoch_start_offset
        for subscription in self._subscriptions:
            subscription.leader = leader

    def step(self) -> bool:
        """Deliver one batch or snapshot to each listener that waits for one. Returns: False if none
        did."""
        worked = False
        for subscription in self._subscriptions:
            worked |= self._step(subscription)
        if not worked:
            self._purge()
        return worked

    def _step(self, subscription: _Subscription) -> bool:
        worked = False
        if subscription.loading is not None:
            try:
                next(subscription.loading)
            except StopIteration:
                subscription.loading = None
            return True
        if subscription.next_offset < self._high_watermark:
            self._advance(subscription)
            worked = True
        leader = subscription.leader
        if leader is not None and self._may_tell(leader, subscription):
            subscription.leader = None
            subscription.listener.handle_leader_change(leader.leader_id, leader.epoch)
        return worked

    def _may_tell(self, leader: LeaderChanged, subscription: _Subscription) -> bool:
        if leader.leader_id != self._node_id:
            return True
        return subscription.next_offset > self._epoch_start_offset

    def _advance(self, subscription: _Subscription) -> None:
        offset = subscription.next_offset
        latest = self._log.latest_snapshot
        behind = offset == 0 or offset < self._log.start_offset
        if behind and latest is not None and offset < latest.offset <= self._high_watermark:
            subscription.next_offset = latest.offset
            snapshot = self._log.snapshots.open(latest)
            subscription.loading = subscription.listener.handle_snapshot(snapshot)
            return
        batch = self._batch_at(offset)
        subscription.next_offset = batch.last_offset + 1
        subscription.listener.handle_commit(batch)

    def _batch_at(self, offset: int) -> Batch:
        batch = self._recent.get(offset)
        if batch is None:
            batch = self._recent[offset] = self._read(offset)
        return batch

    def _read(self, offset: int) -> Batch:
        """Return the batch at `offset`, from the last read or from the log; batches are decoded one
        at a time."""
        batch = next(self._read_ahead, None) if offset == self._read_ahead_at else None
        if batch is None:
            self._read_ahead = self._log.read_committed(offset, _READ_BYTES)
            batch = next(self._read_ahead, None)
        if batch is None:
            raise InvariantViolated(f"committed offset {offset} has no batch")
        # A log that another program wrote may have holes. A hole that did not exist when the
        # batches were opened or fetched is a lost batch: skipping it would fork the image (M14).
        if batch.base_offset != offset and not self._log.holes.has(offset, batch.base_offset):
            raise InvariantViolated(f"the batch at offset {offset} begins at {batch.base_offset}")
        self._read_ahead_at = batch.last_offset + 1
        return batch

    def _purge(self) -> None:
        done = min(
            (subscription.next_offset for subscription in self._subscriptions),
            default=self._high_watermark,
        )
        if self._recent and next(iter(self._recent)) < done:
            self._recent = {base: b for base, b in self._recent.items() if base >= done}
