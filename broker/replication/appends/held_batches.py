"""Shell: Produced batches that wait before their append, and the appends after the wait.

Most batches are validated by their header (`protocol.batch.validate`) and appended at once. The
others wait for one of four reasons (`lines.Reason`); a waiting producer delays no other one.

Image: a client that the old leader has refused learns the new leader from that response (KIP-951).
It may contact the new leader before that broker's own image makes it the leader. A second refusal
contains nothing newer, so it costs the client its `retry.backoff.ms` (100 ms by default), although
the image is only milliseconds away. So a batch for a partition that this broker follows waits for
the image that makes it the leader. The batch is then validated and appended as if it had just
arrived. If no such image arrives within `HOLD_MAX_MS`, the batch is refused as usual. A broker that
was the leader immediately before the present one refuses at once, and its refusal names the leader:
most of its clients have not learned of the move yet. Any other broker receives requests from
clients with newer metadata, or from clients that missed the last two moves. The latter requests
wait in vain.

Predecessors: an idempotent or transactional producer may have several batches in flight to the old
leader. The Java client resends the refused ones first and newer ones behind them, while earlier
ones are still to be refused. OUT_OF_ORDER_SEQUENCE_NUMBER would cost the newer ones the same
back-off, although their predecessors are only milliseconds away. So a new leader lets a batch of a
known producer wait for its predecessors, for `PREDECESSORS_MS` at most. Replies behind it on the
connection wait, too.

Record walk: if the topic is compacted, has timestamp limits or another codec, the records must be
read. A heavy batch (`walk_limits`) is validated in a worker, and later batches of its producer
queue behind it, however small. The partition's state is checked again before the append. The
workers are few: each takes the interpreter lock from the event loop.

Verification: see `verification`. No batch waits for it before transactions have a coordinator.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.replication.appends.lines import (
    HELD_BYTES_MAX,
    NEVER_MS,
    HeldAppend,
    HeldBatch,
    HeldLines,
    LineKey,
    Reason,
)
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.replication.reading.walk_limits import is_heavy
from broker.replication.replicas.replica_manager import ReplicaManager
from protocol.batch.header import HEADER_BYTES, BatchHeader, parse_header
from protocol.batch.validate import finish, needs_walk
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Buffer
from runtime.clock import Clock
from runtime.marks import mark
from runtime.slices import SLICE_MS
from runtime.tasks import Supervisor
from storage.files import Files
from storage.log.append import AppendInfo

HOLD_MAX_MS: Final = 100.0
"""Longest wait for an image: as long as the refusal would cost the client. Replies behind it wait,
too."""
DEPOSED_MS: Final = 10_000.0
"""For this time after it led, a broker assumes that its clients have not learned of the move."""
PREDECESSORS_MS: Final = 30.0
"""Longest wait of a batch for its predecessors, which were sent earlier to another broker."""
YOUNG_MS: Final = 1000.0
"""For this time after it began to lead, a leader may receive what its predecessor has refused."""
WALKS_MAX: Final = 4
"""Record walks that run at once."""
SEQUENCE_MASK: Final = 0x7FFFFFFF


class HeldBatches:
    """The waiting batches of a broker. Create it inside a running loop. Times are monotonic
    milliseconds."""

    def __init__(
        self, replicas: ReplicaManager, *, files: Files, clock: Clock, supervisor: Supervisor
    ) -> None:
        self._replicas = replicas
        self._files = files
        self._clock = clock
        self._supervisor = supervisor
        self._lines = HeldLines()
        self.waiting = self._lines.by_key
        """The lines with waiting batches: while there are some, the caller reports each append with
        `follow_up`."""
        self._walking: set[LineKey] = set()
        self._walks = asyncio.Semaphore(WALKS_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._continuation: asyncio.Handle | None = None

    @property
    def held_bytes(self) -> int:
        """Size of all waiting copies."""
        return self._lines.held_bytes

    # Reasons to wait ---------------------------------------------------------------------------

    def expects_image(self, partition: Partition, size_bytes: int) -> bool:
        """Return whether a batch for this partition, which is not led here, may wait."""
        return (
            partition.role is ReplicaRole.FOLLOWER
            and self._lines.has_room(size_bytes)
            and self._clock.monotonic_ms() - partition.led_until_ms > DEPOSED_MS
        )

    def expects_predecessors(
        self, partition: Partition, header: BatchHeader, size_bytes: int
    ) -> bool:
        """Return whether a batch may wait that this partition's leader has found out of order."""
        return self._lines.has_room(size_bytes) and self._is_ahead(partition, header)

    def must_queue(self, partition: Partition, header: BatchHeader, size_bytes: int) -> bool:
        """Return whether this batch is appended later: it is heavy, or an earlier one of its
        producer waits."""
        if self.waiting and self._lines.blocker((partition, header.producer_id)) is not None:
            return True
        return is_heavy(header, size_bytes) and needs_walk(
            header, partition.rules, self._clock.now_ms()
        )

    def _is_ahead(self, partition: Partition, header: BatchHeader) -> bool:
        return (
            partition.is_leader
            and partition.leader_epoch > 0  # another broker may have led before
            and self._clock.monotonic_ms() - partition.leads_since_ms <= YOUNG_MS
            and partition.log.producers.lacks_predecessors(header)
        )

    # Arrivals ----------------------------------------------------------------------------------

    def hold(
        self,
        partition: Partition,
        records: Buffer,
        api_version: int,
        required_acks: int,
        *,
        transactional: bool,
    ) -> asyncio.Future[HeldAppend]:
        """Copy a batch that `expects_image` or `expects_predecessors` lets wait.

        `transactional`: the request has a transactional id.

        Returns: a future that is done when the batch is appended. It fails with the ApiError that
        `ReplicaManager.check` or `append` raises. After the time limit this is
        NOT_LEADER_OR_FOLLOWER, or from a leader OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        reason, hold_ms = Reason.IMAGE, HOLD_MAX_MS
        if partition.is_leader:
            mark("replication.append-ahead")
            reason, hold_ms = Reason.PREDECESSORS, PREDECESSORS_MS
        held = HeldBatch(
            partition,
            bytes(records),
            parse_header(records) if len(records) >= HEADER_BYTES else None,
            api_version=api_version,
            required_acks=required_acks,
            transactional=transactional,
            reason=reason,
            until_ms=self._clock.monotonic_ms() + hold_ms,
            done=asyncio.get_running_loop().create_future(),
        )
        self._lines.add(held)
        self._arm()
        return held.done

    def queue(
        self,
        partition: Partition,
        records: Buffer,
        header: BatchHeader,
        api_version: int,
        required_acks: int,
        *,
        transactional: bool,
    ) -> asyncio.Future[HeldAppend]:
        """Copy a batch that `must_queue` has found and `ReplicaManager.check` has passed.

        Returns: a future that is done when the batch is appended. It fails with the ApiError that
        `ReplicaManager.append` would have raised.

        Raises:
            ApiError: REQUEST_TIMED_OUT if too many bytes or batches are waiting; producers then
                retry.
        """
        lines = self._lines
        if not lines.has_room(len(records)):
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the queue of waiting batches is full: {len(lines)} batches of "
                f"{lines.held_bytes} bytes, limit {HELD_BYTES_MAX} bytes",
            )
        before = lines.blocker((partition, header.producer_id))
        held = HeldBatch(
            partition,
            bytes(records),
            header,
            api_version=api_version,
            required_acks=required_acks,
            transactional=transactional,
            reason=Reason.WALK if before is None else before.reason,
            until_ms=NEVER_MS if before is None else before.until_ms,
            done=asyncio.get_running_loop().create_future(),
        )
        lines.add(held)
        if held.reason is Reason.WALK:
            self._walk_soon(held.key)
        self._arm()
        return held.done

    # Events ------------------------------------------------------------------------------------

    def follow_up(self, partition: Partition, header: BatchHeader) -> None:
        """Retry the batches that wait for this one, which was just appended."""
        key = partition, header.producer_id
        if key in self.waiting:
            self._go_on(key)
            self._arm()

    def roles_changed(self) -> None:
        """Retry the batches whose partition has another role than they wait in. Call it when roles
        may have changed.

        A release of many batches continues in the next event-loop iterations. New batches queue
        behind the rest of their line.
        """
        if not self.waiting:
            return
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        for held in self._lines:
            if held not in self._lines or not _has_other_role(held):
                continue
            self._retry(held, self._clock.monotonic_ms())
            if self._clock.monotonic_ms() >= ends_ms:
                self._continue_soon()
                break
        self._arm()

    def _continue_soon(self) -> None:
        if self._continuation is None:
            self._continuation = asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._continuation = None
        self.roles_changed()

    def _time_up(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        now_ms = self._clock.monotonic_ms()
        for held in self._lines.overdue(now_ms):
            self._retry(held, now_ms)
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the earliest deadline."""
        due_ms = self._lines.next_deadline_ms()
        if due_ms is None:
            due_ms = NEVER_MS
        if due_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = due_ms
        if due_ms != NEVER_MS:
            wait_ms = max(0.0, due_ms - self._clock.monotonic_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000.0, self._time_up)

    def close(self) -> None:
        """Append or refuse all batches now, except those in record walks."""
        for held in self._lines:
            if held in self._lines and held.reason is not Reason.WALK:
                self._retry(held, NEVER_MS)
        self._arm()

    # Decisions ---------------------------------------------------------------------------------

    def _retry(self, held: HeldBatch, now_ms: float) -> None:
        """Decide about a batch, and about those that it was a predecessor of."""
        if self._settle(held, now_ms):
            self._go_on(held.key)

    def _go_on(self, key: LineKey) -> None:
        """Append the batches of a line whose predecessors are in the log.

        One pass in the order of their sequence numbers suffices, and no pass calls another.
        """
        ahead = self._lines.ahead(key)
        if not ahead:
            return
        partition, producer_id = key
        state = partition.log.producers.get(producer_id) if partition.is_leader else None
        if state is not None and len(ahead) > 1:
            expected = state.last_sequence + 1
            ahead.sort(key=lambda held: (_sequence_of(held) - expected) & SEQUENCE_MASK)
        now_ms = self._clock.monotonic_ms()
        for held in ahead:
            self._settle(held, now_ms)

    def _settle(self, held: HeldBatch, now_ms: float) -> bool:
        """Append or refuse a batch that need not or may not wait any longer. Returns: whether it
        was appended."""
        partition, header, lines = held.partition, held.header, self._lines
        if held.done.done():  # its connection has closed
            lines.remove(held)
            return False
        if held.until_ms > now_ms:
            if partition.role is ReplicaRole.FOLLOWER:
                lines.wait_on(held, Reason.IMAGE, held.until_ms)
                return False
            if header is not None and self._is_ahead(partition, header):
                lines.wait_on(held, Reason.PREDECESSORS, held.until_ms)
                return False
        return self._append(held)

    def _append(self, held: HeldBatch) -> bool:
        partition, replicas = held.partition, self._replicas
        if partition.is_leader:
            mark("replication.early-append")
        now_ms = self._clock.now_ms()
        try:
            if held.valid is not None:
                info = replicas.append_valid(partition, held.valid, held.required_acks, now_ms)
            else:
                header = replicas.check(
                    partition,
                    held.records,
                    api_version=held.api_version,
                    required_acks=held.required_acks,
                    transactional=held.transactional,
                )
                if self._walks_now(held, header):
                    self._lines.wait_on(held, Reason.WALK, NEVER_MS)
                    self._walk_soon(held.key)
                    return False
                info = replicas.append(partition, held.records, header, now_ms)
        except ApiError as error:
            self._failed(held, error)
            return False
        except Exception as error:  # noqa: BLE001 - one batch must not end the retry of others
            self._failed(held, replicas.batch_failed(partition, held.records, error))
            return False
        self._done(held, info)
        return True

    def _walks_now(self, held: HeldBatch, header: BatchHeader) -> bool:
        if self._lines.first(held.key, Reason.WALK) is not None:
            return True
        return is_heavy(header, len(held.records)) and needs_walk(
            header, held.partition.rules, self._clock.now_ms()
        )

    def _done(self, held: HeldBatch, info: AppendInfo) -> None:
        self._lines.remove(held)
        if not held.done.done():
            held.done.set_result(HeldAppend(info, held.partition.leader_epoch))

    def _failed(self, held: HeldBatch, error: ApiError) -> None:
        self._lines.remove(held)
        if not held.done.done():
            held.done.set_exception(error)

    # Record walks ------------------------------------------------------------------------------

    def _walk_soon(self, key: LineKey) -> None:
        if key not in self._walking:
            self._walking.add(key)
            partition = key[0]
            name = f"record walks {partition.topic}-{partition.index}"
            self._supervisor.spawn(name, self._walk_line(key))

    async def _walk_line(self, key: LineKey) -> None:
        try:
            while (held := self._lines.first(key, Reason.WALK)) is not None:
                async with self._walks:
                    appended = await self._walk(held)
                if appended:
                    self._go_on(key)
                self._arm()
        finally:
            self._walking.discard(key)

    async def _walk(self, held: HeldBatch) -> bool:
        """Validate a batch in a worker and append it. Returns: whether it was appended. A batch
        whose connection has closed in the meantime is appended too: it was accepted."""
        partition, header = held.partition, held.header
        assert header is not None, "`check` has passed it"
        try:
            now_ms = self._clock.now_ms()
            valid = await self._files.run(finish, held.records, header, partition.rules, now_ms)
            if self._is_ahead(partition, valid.header):
                mark("replication.append-ahead")
                self._lines.walked(held, valid)
                until_ms = self._clock.monotonic_ms() + PREDECESSORS_MS
                self._lines.wait_on(held, Reason.PREDECESSORS, until_ms)
                return False
            info = self._replicas.append_valid(partition, valid, held.required_acks, now_ms)
        except ApiError as error:
            self._failed(held, error)
            return False
        except Exception as error:  # noqa: BLE001 - one batch must not end the worker
            self._failed(held, self._replicas.batch_failed(partition, held.records, error))
            return False
        self._done(held, info)
        return True


def _has_other_role(held: HeldBatch) -> bool:
    """Return whether the partition has left the role in which this batch waits."""
    if held.reason is Reason.WALK:
        return False  # its worker checks the role
    waits_in = ReplicaRole.FOLLOWER if held.reason is Reason.IMAGE else ReplicaRole.LEADER
    return held.partition.role is not waits_in


def _sequence_of(held: HeldBatch) -> int:
    return 0 if held.header is None else held.header.base_sequence
