"""Shell: Batches that reach the next leader before the metadata does.

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
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.replication.late_appends import LateAppends
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replica_role import ReplicaRole
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Buffer
from runtime.clock import Clock
from runtime.marks import mark

if TYPE_CHECKING:
    from storage.log.append import AppendInfo

HOLD_MAX_MS: Final = 100.0
"""As long as the refusal would cost the client; replies behind this one wait, too."""
DEPOSED_MS: Final = 10_000.0
"""So long after it led, a broker is taken to be asked by those who have not heard of the move."""
HELD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all copies that wait; what comes then is refused at once."""


class _Held(NamedTuple):
    partition: Partition
    records: bytes
    api_version: int
    required_acks: int
    until_ms: float
    done: asyncio.Future[AppendInfo]


class EarlyAppends:
    """Make it inside a running loop. Times are monotonic milliseconds."""

    def __init__(self, replicas: ReplicaManager, late: LateAppends, clock: Clock) -> None:
        self._replicas = replicas
        self._late = late
        self._clock = clock
        self._held: deque[_Held] = deque()  # in the order in which they came, and end
        self._timer: asyncio.TimerHandle | None = None
        self.held_bytes = 0

    def expects(self, partition: Partition, size_bytes: int) -> bool:
        """Whether a batch for this partition, which is not led here, may wait."""
        if partition.role is not ReplicaRole.FOLLOWER:
            return False
        if self.held_bytes + size_bytes > HELD_BYTES_MAX:
            return False
        return self._clock.monotonic_ms() - partition.led_until_ms > DEPOSED_MS

    def submit(
        self, partition: Partition, records: Buffer, api_version: int, required_acks: int
    ) -> asyncio.Future[AppendInfo]:
        """Takes a copy of a batch of no transaction that `expects` lets wait.

        The future is done when the batch is appended, or fails with the ApiError that
        `ReplicaManager.check` or `append` raises, NOT_LEADER_OR_FOLLOWER where the time is up.
        """
        until_ms = self._clock.monotonic_ms() + HOLD_MAX_MS
        done: asyncio.Future[AppendInfo] = asyncio.get_running_loop().create_future()
        held = _Held(partition, bytes(records), api_version, required_acks, until_ms, done)
        self._held.append(held)
        self.held_bytes += len(records)
        self._arm()
        return done

    def look(self) -> None:
        """Roles may have changed: goes on with all whose partition is not followed any more."""
        if self._held:
            self._go_on(float("-inf"))

    def close(self) -> None:
        """Refuses whatever waits."""
        self._go_on(float("inf"))

    def _arm(self) -> None:
        if self._timer is not None or not self._held:
            return
        wait_ms = max(0.0, self._held[0].until_ms - self._clock.monotonic_ms())
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000.0, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        self._go_on(self._clock.monotonic_ms())

    def _go_on(self, now_ms: float) -> None:
        held, self._held = self._held, deque()
        for one in held:
            if one.partition.role is ReplicaRole.FOLLOWER and one.until_ms > now_ms:
                self._held.append(one)
            else:
                self.held_bytes -= len(one.records)
                self._append(one)
        if self._timer is not None and not self._held:
            self._timer.cancel()
            self._timer = None
        self._arm()

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
            done.set_result(info)


def _pass_on(appended: asyncio.Future[AppendInfo], done: asyncio.Future[AppendInfo]) -> None:
    if done.done():
        return
    error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    if appended.cancelled():
        done.set_exception(error)
    elif (failed := appended.exception()) is not None:
        done.set_exception(failed)
    else:
        done.set_result(appended.result())
