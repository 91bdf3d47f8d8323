"""Shell: Batches that reach the next leader before the metadata does, or before their predecessors.

A client that the old leader refused was told the new one (KIP-951) and is there at once, maybe
before the new leader's own image says that it leads. A second refusal, with nothing newer than what
the client knows, costs it its `retry.backoff.ms`, 100 ms by default, though the image is a few
milliseconds away. So a batch for a partition that this broker follows waits for the image that
makes it the leader, and is then judged and appended as if it had just come. It is refused as ever
when none has come in `HOLD_MAX_MS`.

Who led the partition until a moment ago, and nobody else between it and the present leader, is
asked by those who do not know better yet: it refuses at once, and its refusal says who leads. All
others are asked by who knows more, or by who has heard of nothing since the move before last; the
latter wait in vain.

An idempotent producer may have several batches on their way to the old leader. The Java client
sends those that are refused first, and newer ones behind them, while others of before are still to
be refused. OUT_OF_ORDER_SEQUENCE_NUMBER costs the newer ones the same back-off, though what they
follow is a few milliseconds away, too. So a leader that has just begun lets a batch of a producer
that it knows wait for what goes before it, `PREDECESSORS_MS` at most. Replies behind it wait, too.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from broker.replication.late_appends import LateAppend, LateAppends
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replica_role import ReplicaRole
from protocol.batch.header import HEADER_BYTES, BatchHeader, parse_header
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Buffer
from runtime.clock import Clock
from runtime.marks import mark

HOLD_MAX_MS: Final = 100.0
"""As long as the refusal would cost the client; replies behind this one wait, too."""
DEPOSED_MS: Final = 10_000.0
"""So long after it led, a broker is taken to be asked by those who have not heard of the move."""
PREDECESSORS_MS: Final = 30.0
"""So long a batch waits for those before it: they were sent before, to another broker."""
YOUNG_MS: Final = 1000.0
"""So long after its begin a leader is sent what the one before it has refused."""
HELD_BYTES_MAX: Final = 16 * 1024 * 1024
HELD_MAX: Final = 1000
"""Of all copies that wait, and so many of them; what comes then is refused at once."""


class _Held(NamedTuple):
    partition: Partition
    records: bytes
    header: BatchHeader | None
    """As it was sent, judged by nobody; None where there is not enough for one."""
    api_version: int
    required_acks: int
    until_ms: float
    done: asyncio.Future[LateAppend]


class EarlyAppends:
    """Make it inside a running loop. Times are monotonic milliseconds."""

    def __init__(self, replicas: ReplicaManager, late: LateAppends, clock: Clock) -> None:
        self._replicas = replicas
        self._late = late
        self._clock = clock
        self._held: list[_Held] = []  # in the order in which they came
        self._timer: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        self.ahead: set[Partition] = set()
        """Those whose batches wait for predecessors: `look_behind` is to be told of theirs."""

    def expects(self, partition: Partition, size_bytes: int) -> bool:
        """Whether a batch for this partition, which is not led here, may wait."""
        return (
            partition.role is ReplicaRole.FOLLOWER
            and self._has_room(size_bytes)
            and self._clock.monotonic_ms() - partition.led_until_ms > DEPOSED_MS
        )

    def expects_predecessors(
        self, partition: Partition, header: BatchHeader, size_bytes: int
    ) -> bool:
        """Whether a batch that this partition's leader has found out of order may wait."""
        return self._has_room(size_bytes) and self._is_ahead(partition, header)

    def _has_room(self, size_bytes: int) -> bool:
        return len(self._held) < HELD_MAX and self.held_bytes + size_bytes <= HELD_BYTES_MAX

    def _is_ahead(self, partition: Partition, header: BatchHeader) -> bool:
        return (
            partition.is_leader
            and partition.leader_epoch > 0  # somebody may have led before
            and self._clock.monotonic_ms() - partition.leads_since_ms <= YOUNG_MS
            and partition.log.producers.lacks_predecessors(header)
        )

    def submit(
        self, partition: Partition, records: Buffer, api_version: int, required_acks: int
    ) -> asyncio.Future[LateAppend]:
        """Takes a copy of a batch of no transaction that `expects` or `expects_predecessors` lets
        wait.

        The future is done when the batch is appended, or fails with the ApiError that
        `ReplicaManager.check` or `append` raises: where the time is up NOT_LEADER_OR_FOLLOWER, or
        OUT_OF_ORDER_SEQUENCE_NUMBER from a leader.
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
        """Something was appended to one of `ahead`: goes on with what it was missing."""
        if partition in self.ahead:
            self._go_on(self._clock.monotonic_ms())

    def look(self) -> None:
        """Roles may have changed: goes on with all whose partition is not followed any more."""
        if self._held:
            self._go_on(float("-inf"))

    def close(self) -> None:
        """Refuses whatever waits."""
        self._go_on(float("inf"))

    def _after_change(self) -> None:
        """One timer, for whose time is up first."""
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
        while len(self._held) != before:  # what was appended may have been what another waits for
            before = len(self._held)
            self._held = [one for one in self._held if not self._ends(one, now_ms)]
        self._after_change()

    def _ends(self, held: _Held, now_ms: float) -> bool:
        """Appends or refuses what need not wait, or may not any longer."""
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
