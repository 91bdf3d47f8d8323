"""Shell: Appends of batches whose records must be checked and are too large for the event loop.

Most batches are validated by their header (`protocol.batch.validate`) and appended at once. If the
topic is compacted, has timestamp limits or another codec, the records must be read. A heavy batch
(`walk_limits`) is then validated in a worker thread, and appended afterwards.

A partition's batches are appended in the order of their arrival: while one is in a worker, later
ones queue behind it, however small. The state of the partition that was checked on arrival is
checked again before the append.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from broker.replication.partition.partition import Partition
from broker.replication.reading.walk_limits import is_heavy
from broker.replication.replicas.replica_manager import ReplicaManager
from protocol.batch.header import BatchHeader, Buffer
from protocol.batch.validate import finish, needs_walk
from protocol.errors import ApiError, ErrorCode
from runtime.clock import Clock
from runtime.tasks import Supervisor
from storage.files import Files
from storage.log.append import AppendInfo

LATE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Limit for all waiting copies. A connection has few of them (`kraftbox.connection.max.inflight`),
but they stay when it closes: this bounds a client that reconnects for each batch."""


class LateAppend(NamedTuple):
    """A batch that was appended late, and the leader epoch of the append. Code that awaits it
    resumes one event-loop iteration later: another broker may lead by then and have truncated the
    batch."""

    info: AppendInfo
    leader_epoch: int


class _Job(NamedTuple):
    records: bytes
    header: BatchHeader
    required_acks: int
    done: asyncio.Future[LateAppend]


class LateAppends:
    """The batches that wait for validation, by partition."""

    def __init__(
        self, replicas: ReplicaManager, *, files: Files, clock: Clock, supervisor: Supervisor
    ) -> None:
        self._replicas = replicas
        self._files = files
        self._clock = clock
        self._supervisor = supervisor
        self._queues: dict[Partition, deque[_Job]] = {}
        self.waiting_bytes = 0

    def must_wait(self, partition: Partition, header: BatchHeader, size_bytes: int) -> bool:
        """Return whether this batch is appended late: it is heavy, or another one is queued before
        it."""
        if self._queues and partition in self._queues:
            return True
        return is_heavy(header, size_bytes) and needs_walk(
            header, partition.rules, self._clock.now_ms()
        )

    def submit(
        self, partition: Partition, records: Buffer, header: BatchHeader, required_acks: int
    ) -> asyncio.Future[LateAppend]:
        """Copy a batch that `check_batch` has passed, and queue it.

        Returns: a future that is done when the batch is appended. It fails with the ApiError that
        `ReplicaManager.append` would have raised.

        Raises:
            ApiError: REQUEST_TIMED_OUT if too many bytes are waiting; producers then retry.
        """
        if self.waiting_bytes + len(records) > LATE_BYTES_MAX and self._queues:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.waiting_bytes} bytes of batches wait for their validation; "
                f"at most {LATE_BYTES_MAX} may wait",
            )
        self.waiting_bytes += len(records)
        done: asyncio.Future[LateAppend] = asyncio.get_running_loop().create_future()
        job = _Job(bytes(records), header, required_acks, done)
        queue = self._queues.get(partition)
        if queue is not None:
            queue.append(job)
        else:
            self._queues[partition] = deque([job])
            name = f"late appends {partition.topic}-{partition.index}"
            self._supervisor.spawn(name, self._work(partition))
        return done

    async def _work(self, partition: Partition) -> None:
        queue = self._queues[partition]
        while queue:
            job = queue[0]
            try:
                now_ms = self._clock.now_ms()
                valid = await self._files.run(
                    finish, job.records, job.header, partition.rules, now_ms
                )
                appended = self._replicas.append_valid(partition, valid, job.required_acks, now_ms)
            except ApiError as error:
                if not job.done.done():
                    job.done.set_exception(error)
            except Exception as error:  # noqa: BLE001 - one batch must not end the worker
                refused = self._replicas.batch_failed(partition, job.records, error)
                if not job.done.done():
                    job.done.set_exception(refused)
            else:
                if not job.done.done():
                    job.done.set_result(LateAppend(appended, partition.leader_epoch))
            queue.popleft()
            self.waiting_bytes -= len(job.records)
        del self._queues[partition]
