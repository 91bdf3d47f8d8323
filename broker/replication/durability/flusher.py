"""Shell: Flushes that an append must wait for (`flush.messages`).

By default nothing is flushed on behalf of a producer: as with Kafka, replication is what makes a
record safe. A topic with `flush.messages` promises more. The append that reaches the count is
answered, and visible to consumers, only when it is on disk. All appends that wait while one flush
runs share the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.replication.partition.effects import Effects
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from broker.replication.partition.partition import Partition
from broker.replication.waiting.waits import CommitWaiter
from protocol.errors import ErrorCode
from runtime.tasks import Supervisor
from storage.log.errors import LogFailed

_Waiting = list[tuple[CommitWaiter, Any]]


class _Nobody:
    """A waiter without any effect."""

    __slots__ = ()

    def resolved(self, slot: Any, error: ErrorCode) -> None:
        return


_NOBODY: Final = _Nobody()


class Flusher:
    """Flushes of partitions, one at a time per partition."""

    def __init__(
        self,
        supervisor: Supervisor,
        storage_failed: Callable[[Partition, BaseException], None],
        carry_out: Callable[[Partition, Effects], None],
    ) -> None:
        self._supervisor = supervisor
        self._storage_failed = storage_failed
        self._carry_out = carry_out
        self._waiting: dict[Partition, _Waiting] = {}

    def want(self, partition: Partition) -> None:
        """Start a flush that covers the log as it is now, unless one is already queued."""
        waiting = self._waiting.get(partition)
        if not waiting:
            self.wait(partition, _NOBODY, None)

    def wait(self, partition: Partition, waiter: CommitWaiter, slot: Any) -> None:
        """Resolve `slot` when all that is in the log now is on disk."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.append((waiter, slot))
            return
        self._waiting[partition] = [(waiter, slot)]
        name = f"flush {partition.topic}-{partition.index}"
        self._supervisor.spawn(name, self._flush(partition))

    async def _flush(self, partition: Partition) -> None:
        while waiting := self._waiting[partition]:
            self._waiting[partition] = []
            error = ErrorCode.NONE
            before = partition.log.recovery_point
            try:
                await partition.log.flush()
            except LogFailed as failure:
                error = failure.code
                self._storage_failed(partition, failure.cause)
            if partition.is_leader and partition.log.recovery_point > before:
                self._carry_out(partition, maybe_advance_high_watermark(partition))
            for waiter, slot in waiting:
                waiter.resolved(slot, error)
        del self._waiting[partition]
