"""Shell: Batches that reach the next leader before its metadata or their predecessors do.

A client that the old leader has refused learns the new leader from that response (KIP-951). It may
contact the new leader before that broker's own image makes it the leader. A second refusal contains
nothing newer, so it costs the client its `retry.backoff.ms` (100 ms by default), although the image
is only milliseconds away. So a batch for a partition that this broker follows waits for the image
that makes it the leader. The batch is then validated and appended as if it had just arrived. If no
such image arrives within `HOLD_MAX_MS`, the batch is refused as usual.

A broker that was the leader immediately before the present one refuses at once, and its refusal
names the leader. Most of its clients have not learned of the move yet. Any other broker receives
requests from clients with newer metadata, or from clients that missed the last two moves. The
latter requests wait in vain.

An idempotent producer may have several batches in flight to the old leader. The Java client resends
the refused ones first and newer ones behind them, while earlier ones are still to be refused.
OUT_OF_ORDER_SEQUENCE_NUMBER would cost the newer ones the same back-off, although their
predecessors are only milliseconds away. So a new leader lets a batch of a known producer wait for
its predecessors, for `PREDECESSORS_MS` at most. Replies behind it on the connection wait, too.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from broker.replication.appends.late import LateAppend, LateAppends
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.replication.replicas.replica_manager import ReplicaManager
from protocol.batch.header import HEADER_BYTES, BatchHeader, parse_header
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Buffer
from runtime.clock import Clock
from runtime.marks import mark

HOLD_MAX_MS: Final = 100.0
"""Longest wait: as long as the refusal would cost the client. Replies behind it wait, too."""
DEPOSED_MS: Final = 10_000.0
"""For this time after it led, a broker assumes that its clients have not learned of the move."""
PREDECESSORS_MS: Final = 30.0
"""Longest wait of a batch for its predecessors, which were sent earlier to another broker."""
YOUNG_MS: Final = 1000.0
"""For this time after it began to lead, a leader may receive what its predecessor has refused."""
HELD_BYTES_MAX: Final = 16 * 1024 * 1024
HELD_MAX: Final = 1000
"""Limits for all waiting copies, in bytes and number. A batch beyond them is refused at once."""


class _Held(NamedTuple):
    partition: Partition
    records: bytes
    header: BatchHeader | None
    """The header as sent, not validated; None if the batch is too short for one."""
    api_version: int
    required_acks: int
    until_ms: float
    done: asyncio.Future[LateAppend]


class EarlyAppends:
    """Batches that wait for a role or a predecessor. Create it inside a running loop. Times are
    monotonic milliseconds."""

    def __init__(self, replicas: ReplicaManager, late: LateAppends, clock: Clock) -> None:
        self._replicas = replicas
        self._late = late
        self._clock = clock
        self._held: list[_Held] = []  # in order of arrival
        self._timer: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        self.ahead: set[Partition] = set()
        """Partitions with batches that wait for predecessors: the caller reports appends to them
        with `look_behind`."""

    def expects(self, partition: Partition, size_bytes: int) -> bool:
        """Return whether a batch for this partition, which is not led here, may wait."""
        return (
            partition.role is ReplicaRole.FOLLOWER
            and self._has_room(size_bytes)
            and self._clock.monotonic_ms() - partition.led_until_ms > DEPOSED_MS
        )

    def expects_predecessors(
        self, partition: Partition, header: BatchHeader, size_bytes: int
    ) -> bool:
        """Return whether a batch may wait that this partition's leader has found out of order."""
        return self._has_room(size_bytes) and self._is_ahead(partition, header)

    def _has_room(self, size_bytes: int) -> bool:
        return len(self._held) < HELD_MAX and self.held_bytes + size_bytes <= HELD_BYTES_MAX

    def _is_ahead(self, partition: Partition, header: BatchHeader) -> bool:
        return (
            partition.is_leader
            and partition.leader_epoch > 0  # another broker may have led before
            and self._clock.monotonic_ms() - partition.leads_since_ms <= YOUNG_MS
            and partition.log.producers.lacks_predecessors(header)
        )

    def submit(
        self, partition: Partition, records: Buffer, api_version: int, required_acks: int
    ) -> asyncio.Future[LateAppend]:
        """Copy a batch of no transaction that `expects` or `expects_predecessors` lets wait.

        Returns: a future that is done when the batch is appended. It fails with the ApiError that
        `ReplicaManager.check` or `append` raises. After the time limit this is
        NOT_LEADER_OR_FOLLOWER, or from a leader OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        hold_ms = HOLD_MAX_MS
        if partition.is_leader:
            mark("replication.append-ahead")
            hold_ms = PREDECESSORS_MS
        done: asyncio.Future[LateAppend] = asyncio.get_running_loop().create_future()
        held = _Held(
            partition,
            bytes(records),
            parse_header(records) if len(records) >= HEADER_BYTES else None,
            api_version,
            required_acks,
            self._clock.monotonic_ms() + hold_ms,
            done,
        )
        self._held.append(held)
        self.held_bytes += len(records)
        self._after_change()
        return done

    def look_behind(self, partition: Partition) -> None:
        """Retry the batches that wait for predecessors, after an append to a partition of
        `ahead`."""
        if partition in self.ahead:
            self._go_on(self._clock.monotonic_ms())

    def look(self) -> None:
        """Retry all batches whose partition is no longer followed. Call it when roles may have
        changed."""
        if self._held:
            self._go_on(float("-inf"))

    def close(self) -> None:
        """Append or refuse all waiting batches now."""
        self._go_on(float("inf"))

    def _after_change(self) -> None:
        """Rebuild `ahead` and arm the timer for the earliest time limit."""
        self.ahead = {held.partition for held in self._held if held.partition.is_leader}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            until_ms = min(held.until_ms for held in self._held)
            wait_ms = max(0.0, until_ms - self._clock.monotonic_ms())
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000.0, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        self._go_on(self._clock.monotonic_ms())

    def _go_on(self, now_ms: float) -> None:
        before = -1
        while len(self._held) != before:  # an appended batch may be the predecessor of another one
            before = len(self._held)
            self._held = [one for one in self._held if not self._ends(one, now_ms)]
        self._after_change()

    def _ends(self, held: _Held, now_ms: float) -> bool:
        """Append or refuse the batch if it need not or may not wait any longer. Returns: whether it
        did."""
        partition, header = held.partition, held.header
        waits = partition.role is ReplicaRole.FOLLOWER or (
            header is not None and self._is_ahead(partition, header)
        )
        if waits and held.until_ms > now_ms:
            return False
        self.held_bytes -= len(held.records)
        self._append(held)
        return True

    def _append(self, held: _Held) -> None:
        partition, records, done = held.partition, held.records, held.done
        if done.done():
            return
        replicas = self._replicas
        if partition.is_leader:
            mark("replication.early-append")
        try:
            header = replicas.check(
                partition,
                records,
                api_version=held.api_version,
                required_acks=held.required_acks,
                transactional=False,
            )
            if self._late.must_wait(partition, header, len(records)):
                late = self._late.submit(partition, records, header, held.required_acks)
                late.add_done_callback(lambda appended: _pass_on(appended, done))
                return
            info = replicas.append(partition, records, header, self._clock.now_ms())
        except ApiError as error:
            done.set_exception(error)
        else:
            done.set_result(LateAppend(info, partition.leader_epoch))


def _pass_on(appended: asyncio.Future[LateAppend], done: asyncio.Future[LateAppend]) -> None:
    if done.done():
        return
    error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    if appended.cancelled():
        done.set_exception(error)
    elif (failed := appended.exception()) is not None:
        done.set_exception(failed)
    else:
        done.set_result(appended.result())
