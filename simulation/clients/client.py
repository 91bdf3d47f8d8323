"""A client of a simulated cluster: one request, one response, no hidden retry.

It runs on a host of its own and sees the cluster through the network alone. The effect of a request
is known only if a response came; otherwise `Unknown` is raised. Errors of the protocol are
`ApiError` as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.leaders import Leader
from protocol.batch.header import Buffer, CorruptBatch, iter_checked
from protocol.batch.records import Producer, Record, build_batch, read_batch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.produce import ProduceRequest
from protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

REQUEST_MS = 3_000
POLL_MS = 100
TOPIC = 2
"""The resource type of topics in configuration requests."""
SET = 0


class Unknown(Exception):
    """No response came: the request may have been executed, or not, or may still be."""


def checked(data: Buffer) -> list[Record]:
    """Return the records of all whole batches but control batches.

    Raises: Unknown for a batch that was damaged on its way.
    """
    try:
        return [
            record
            for header, at in iter_checked(data)
            if not header.is_control
            for record in read_batch(data, at, header)
        ]
    except CorruptBatch as error:
        raise Unknown(str(error)) from error


def fail_on(code: int, message: str | None = None) -> None:
    """Raise ApiError for any error code other than NONE."""
    if code:
        raise ApiError(ErrorCode(code), message)


class SimClient:
    """A client that must be created and used on the client's host."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]]) -> None:
        self.bootstrap = tuple(bootstrap)
        self.cluster = ClusterClient(bootstrap, "sim")
        self._coordinators: dict[str, int] = {}

    async def close(self) -> None:
        await self.cluster.close()

    async def _any(self, request: Request[R], timeout_ms: float = REQUEST_MS) -> R:
        """Send to any broker, until one was reached or the time is over. For reading only.

        Raises: Unknown if no response came.
        """
        try:
            return await self.cluster.request_any(request, timeout_ms)
        except OSError as error:
            raise Unknown(str(error)) from error

    async def _once(self, node_id: int, request: Request[R], timeout_ms: float = REQUEST_MS) -> R:
        try:
            return await self.cluster.request_broker(node_id, request, timeout_ms)
        except OSError as error:
            raise Unknown(str(error)) from error

    async def _some_broker(self) -> int:
        if not self.cluster.cache.brokers:
            await self.topics()
        return next(iter(self.cluster.cache.brokers), -1)

    # --- topics -------------------------------------------------------------------------------

    async def topics(self) -> dict[str, tuple[bytes, int]]:
        """Return all topics that are not internal: name -> (id, number of partitions)."""
        try:
            answer = await self.cluster.metadata(None, REQUEST_MS)
        except OSError as error:
            raise Unknown(str(error)) from error
        found = {}
        for topic in answer.topics:
            fail_on(topic.error_code)
            if not topic.is_internal and topic.name is not None:
                found[topic.name] = (topic.topic_id, len(topic.partitions))
        return found

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Return the leader in the cached metadata."""
        return self.cluster.cache.leaders.get((topic, partition))

    async def find_leader(self, topic: str, partition: int) -> Leader:
        """Return the cached leader, or request metadata first.

        Raises: ApiError(LEADER_NOT_AVAILABLE) if the metadata names no leader.
        """
        cache = self.cluster.cache
        if (topic, partition) not in cache.leaders or topic not in cache.topic_ids:
            await self.topics()
        leader = cache.leaders.get((topic, partition))
        if leader is None or leader.node_id < 0 or topic not in cache.topic_ids:
            cache.forget(topic)
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    async def create_topic(
        self,
        name: str,
        partitions: int,
        configs: dict[str, str],
        replicas: int = 1,
        placed: Sequence[Sequence[int]] = (),
    ) -> bytes:
        """Create a topic. Returns: its id.

        Args:
            placed: the brokers of each partition, its preferred leader first; `partitions` and
                `replicas`
                are then ignored.
        """
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if placed else partitions,
            replication_factor=-1 if placed else replicas,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=list(brokers)
                )
                for index, brokers in enumerate(placed)
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
        answer = (await self._once(await self._some_broker(), request)).topics[0]
        fail_on(answer.error_code, answer.error_message)
        self.cluster.cache.forget(name)  # forget an earlier topic of that name, with another id
        return answer.topic_id

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=REQUEST_MS
        )
        answer = (await self._once(await self._some_broker(), request)).responses[0]
        fail_on(answer.error_code, answer.error_message)

    async def set_config(self, topic: str, key: str, value: str) -> None:
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, config_operation=SET, value=value
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC, resource_name=topic, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = (await self._once(await self._some_broker(), request)).responses[0]
        fail_on(answer.error_code, answer.error_message)

    async def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        *,
        now_ms: int,
        producer: Producer | None = None,
        acks: int = -1,
    ) -> int:
        """Send one batch once. Returns: the offset of its first record."""
        cache = self.cluster.cache
        leader = await self.find_leader(topic, partition)
        records = [Record(timestamp=now_ms, value=value) for value in values]
        batch = build_batch(records, producer=producer or Producer())
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=REQUEST_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic, topic_id=cache.topic_ids[topic], partition_data=[data]
                )
            ],
        )
        answer = await self._once(leader.node_id, request)
        one = answer.responses[0].partition_responses[0]
        if one.error_code:
            cache.forget(topic)
        fail_on(one.error_code, one.error_message)
        return one.base_offset

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (log start, high watermark)."""
        try:
            end = await self.cluster.list_offset(topic, partition, LATEST, timeout_ms=REQUEST_MS)
            start = await self.cluster.list_offset(
                topic, partition, EARLIEST, timeout_ms=REQUEST_MS
            )
        except OSError as error:
            raise Unknown(str(error)) from error
        return start.offset, end.offset

    async def read(
        self, topic: str, partition: int, start: int, end: int, *, max_bytes: int = 1 << 20
    ) -> list[tuple[int, bytes]]:
        """Return (offset, value) of the records in [start, end)."""
        found: list[tuple[int, bytes]] = []
        at = start
        while at < end:
            try:
                fetched = await self.cluster.fetch(
                    topic, partition, at, max_bytes=max_bytes, timeout_ms=REQUEST_MS
                )
            except OSError as error:
                raise Unknown(str(error)) from error
            records = [one for one in checked(fetched.records) if at <= one.offset < end]
            if not records:
                break
            found += [(one.offset, one.value or b"") for one in records]
            at = records[-1].offset + 1
        return found

    async def poll(self, topic: str, partition: int, offset: int) -> list[tuple[int, bytes]]:
        """Return (offset, value) of the records of one fetch at `offset`, which may wait
        `POLL_MS`."""
        try:
            fetched = await self.cluster.fetch(
                topic, partition, offset, max_wait_ms=POLL_MS, timeout_ms=REQUEST_MS
            )
        except OSError as error:
            raise Unknown(str(error)) from error
        records = checked(fetched.records)
        return [(one.offset, one.value or b"") for one in records if one.offset >= offset]

    async def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Request the deletion of records below `before`. Returns: the new log start."""
        leader = self.leader(topic, partition)
        if leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        one = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[one])],
            timeout_ms=REQUEST_MS,
        )
        answer = (await self._once(leader.node_id, request)).topics[0].partitions[0]
        fail_on(answer.error_code)
        return answer.low_watermark

    async def producer(self) -> Producer:
        """Request a producer id for an idempotent producer."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self._once(await self._some_broker(), request)
        fail_on(answer.error_code)
        return Producer(answer.producer_id, answer.producer_epoch, 0)

    # --- groups -------------------------------------------------------------------------------

    async def coordinator(self, group: str) -> int:
        """Return the node id of the group's coordinator."""
        known = self._coordinators.get(group)
        if known is not None:
            return known
        answer = await self._any(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        found = answer.coordinators[0]
        fail_on(found.error_code, found.error_message)
        try:
            await self.cluster.find_broker(found.node_id, REQUEST_MS)
        except OSError as error:
            raise Unknown(str(error)) from error
        self._coordinators[group] = found.node_id
        return found.node_id

    def forget_coordinator(self, group: str) -> None:
        """Look the coordinator up again for the next request."""
        self._coordinators.pop(group, None)

    async def of_group(self, group: str, request: Request[R], timeout_ms: float = REQUEST_MS) -> R:
        """Send to the group's coordinator, once."""
        return await self._once(await self.coordinator(group), request, timeout_ms)

    async def committed(self, group: str, topic: str, topic_id: bytes, partition: int) -> int:
        """Return the group's committed offset, -1 if nothing is committed."""
        named = OffsetFetchRequest.OffsetFetchRequestTopics(
            name=topic, topic_id=topic_id, partition_indexes=[partition]
        )
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[named])
        answer = (await self.of_group(group, OffsetFetchRequest(groups=[asked]))).groups[0]
        fail_on(answer.error_code)
        one = answer.topics[0].partitions[0]
        fail_on(one.error_code)
        return one.committed_offset
