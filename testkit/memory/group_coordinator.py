"""A group coordinator over a fake log that responds, fails or waits as a test requires."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from broker.coordinators.coordinator_log import Appended, CoordinatorListener
from broker.coordinators.group.admin import delete_result
from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.offsets import offset_delete_error
from broker.coordinators.group.records import Record
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.coordinators.log_entries import LogBatch, LogEntry, LogRecord
from broker.coordinators.partitioner import partition_for
from protocol.errors import ApiError, ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.sync_group import SyncGroupRequest
from runtime.clock import ManualClock
from runtime.tasks import Supervisor
from testkit.memory.broker import settle
from testkit.memory.coordinator_entries import entries_of
from testkit.memory.group_shard import some_topics

GROUP = "g"
PARTITIONS = 4
HOME = partition_for(GROUP, PARTITIONS)


class FakeLog:
    """A log per partition; futures are done at once unless `hold` is set.

    `records` are the entries as (key, value). `in_transactions` has the entries of transactions by
    partition and offset; a marker has an empty key.
    """

    def __init__(self) -> None:
        self.records: dict[int, list[Record]] = {index: [] for index in range(PARTITIONS)}
        self.in_transactions: dict[tuple[int, int], LogEntry] = {}
        self.pending: list[asyncio.Future[None]] = []
        self.hold = False
        self.refuse: ErrorCode | None = None
        self.epochs: dict[int, int] = {}
        self.count: int | None = PARTITIONS
        self.gate: asyncio.Event | None = None
        self.broken_read: Exception | None = None
        self.listener: CoordinatorListener | None = None

    def partition_count(self) -> int | None:
        return self.count

    async def ensure_topic(self) -> None:
        raise AssertionError("not expected in this test")

    def append(self, partition: int, batch: LogBatch, timestamp_ms: int) -> Appended:
        if self.refuse is not None:
            raise ApiError(self.refuse, None)
        records = self.records[partition]
        base_offset = len(records)
        for entry in entries_of(batch, base_offset):
            if isinstance(entry, LogRecord):
                assert entry.key is not None
                records.append((entry.key, entry.value))
            else:
                records.append((b"", None))
            if entry.producer_id >= 0:
                self.in_transactions[partition, entry.offset] = entry
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.hold:
            self.pending.append(future)
        else:
            future.set_result(None)
        return Appended(base_offset, future)

    def leader_epoch(self, partition: int) -> int | None:
        return self.epochs.get(partition)

    async def read_all(self, partition: int) -> AsyncIterator[LogEntry]:
        if self.gate is not None:
            await self.gate.wait()
        for offset, (key, value) in enumerate(list(self.records[partition])):
            yield self.in_transactions.get((partition, offset)) or LogRecord(offset, key, value)
        if self.broken_read is not None:
            raise self.broken_read

    def add_listener(self, listener: CoordinatorListener) -> None:
        self.listener = listener
        for partition, epoch in self.epochs.items():
            listener.elected(partition, epoch)


class Driver:
    """A coordinator with its surroundings; time is the loop's, shortened by the tests' settings."""

    def __init__(self, **config: Any) -> None:
        self.log = FakeLog()
        self.clock = ManualClock()
        self.supervisor = Supervisor()
        self.topics = some_topics()
        numbers = {"initial_rebalance_delay_ms": 0, **config}
        self.coordinator = GroupCoordinator(
            config=GroupConfig(**numbers),
            clock=self.clock,
            rng=random.Random(1),
            log=self.log,
            supervisor=self.supervisor,
            topics=self.topics,
        )

    async def start(self) -> Driver:
        self.log.epochs[HOME] = 1
        self.coordinator.start()
        await settle()
        return self

    async def stop(self) -> None:
        self.coordinator.close()
        await self.supervisor.close()

    def context(self, version: int) -> Any:
        return SimpleNamespace(api_version=version, client_id="c", client_host="10.0.0.1")

    def join(self, member_id: str = "", version: int = 9) -> Any:
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return self.coordinator.ask_and_wait(
            GROUP,
            self.context(version),
            lambda shard, caller, now: shard.decide_join(caller, request, now),
            lambda code: code,
        )

    def sync(self, member_id: str, generation: int) -> Any:
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"x")
            ],
        )
        return self.coordinator.ask_and_wait(
            GROUP,
            self.context(5),
            lambda shard, caller, now: shard.decide_sync(caller, request, now),
            lambda code: code,
        )

    def commit(self, offset: int, metadata: str = "", group: str = GROUP) -> Any:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[partition])],
        )
        caller = SimpleNamespace(version=9)
        return self.coordinator.ask(
            group,
            lambda shard, now: shard.decide_offset_commit(caller, request, self.topics, now),  # type: ignore[arg-type]
            lambda code: code,
        )

    def delete_topics(self, *names: str) -> None:
        """Delete topics as a broker publishes it: first in the image, then by notifying the
        coordinator."""
        for name in names:
            del self.topics.topics[name]
        self.coordinator.topics_deleted(names)

    def delete_group(self) -> Any:
        return self.coordinator.ask(
            GROUP,
            lambda shard, now: shard.decide_delete_group(GROUP),
            lambda code: delete_result(GROUP, code),
        )

    def delete_offset(self) -> Any:
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name="a", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition()]
        )
        request = OffsetDeleteRequest(group_id=GROUP, topics=[topic])
        return self.coordinator.ask(
            GROUP,
            lambda shard, now: shard.decide_offset_delete(request, self.topics),
            offset_delete_error,
        )

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=generation)
        return ErrorCode(self.coordinator.heartbeat(request).error_code)

    def fetch(self) -> int:
        shard = self.coordinator.view(GROUP)
        assert not isinstance(shard, ErrorCode)
        (topic,) = shard.fetch_offsets(GROUP, [("a", bytes(16), [0])])
        return topic.partitions[0].offset

    async def member(self) -> str:
        """Return the one member of a stable group of generation 1."""
        member_id: str = self.join().member_id
        joined = await self.join(member_id)
        assert joined.generation_id == 1
        synced = self.sync(member_id, 1)
        assert (await synced).assignment == b"x"
        return member_id
