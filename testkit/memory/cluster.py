"""Brokers in memory that each lead a part of one log, for the tests of clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from client.cluster_client import LATEST, ClusterClient
from client.leaders import Leader
from protocol.api_keys import ApiKey
from protocol.batch import Record, build_batch, iter_batches, patch
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.server import Server
from runtime.clock import SystemClock

TOPIC_ID = bytes(range(16))


class ClusterWorld:
    """One partition `t-0`, its log, and the leader that each broker believes in."""

    def __init__(self) -> None:
        self.log = b""
        self.end = 0
        self.servers: dict[int, Server] = {}
        self.leader = Leader(0, 5)
        self.beliefs: dict[int, Leader] = {}
        self.hints = True
        self.leaderless = 0
        """Further partitions of `t`, `t-1` and so on, that have no leader."""
        self.errors: list[ErrorCode] = []
        self.produced_at: list[int] = []
        self.metadata_asked = 0
        self.topic_errors: list[ErrorCode] = []
        """Errors of the next Metadata responses; LEADER_NOT_AVAILABLE is the partition's."""

    def believed(self, node: int) -> Leader:
        return self.beliefs.get(node, self.leader)


class Broker:
    def __init__(self, world: ClusterWorld, node_id: int, produce_max: int | None) -> None:
        self.world = world
        self.node_id = node_id
        self.table = HandlerTable()
        self.table.serve_api_versions()
        self.table.register(ApiKey.METADATA, self.metadata)
        self.table.register(ApiKey.PRODUCE, self.produce, max_version=produce_max)
        self.table.register(ApiKey.FETCH, self.fetch)
        self.table.register(ApiKey.LIST_OFFSETS, self.list_offsets)

    def metadata(self, _: RequestContext, request: MetadataRequest) -> MetadataResponse:
        world = self.world
        world.metadata_asked += 1
        leader = world.believed(self.node_id)
        topics = []
        for entry in request.topics or []:
            if entry.name != "t":
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
                topics.append(
                    MetadataResponse.MetadataResponseTopic(error_code=code, name=entry.name)
                )
                continue
            code = world.topic_errors.pop(0) if world.topic_errors else ErrorCode.NONE
            if code and code is not ErrorCode.LEADER_NOT_AVAILABLE:
                topics.append(MetadataResponse.MetadataResponseTopic(error_code=code, name="t"))
                continue
            partition = MetadataResponse.MetadataResponsePartition(
                error_code=code,
                leader_id=-1 if code else leader.node_id,
                leader_epoch=leader.epoch,
            )
            others = [
                MetadataResponse.MetadataResponsePartition(
                    error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index + 1,
                    leader_id=-1,
                    leader_epoch=leader.epoch,
                )
                for index in range(world.leaderless)
            ]
            topics.append(
                MetadataResponse.MetadataResponseTopic(
                    name="t", topic_id=TOPIC_ID, partitions=[partition, *others]
                )
            )
        brokers = [
            MetadataResponse.MetadataResponseBroker(
                node_id=node, host=server.address[0], port=server.address[1]
            )
            for node, server in world.servers.items()
        ]
        return MetadataResponse(cluster_id="c", brokers=brokers, topics=topics)

    def refusal(self) -> ErrorCode:
        if self.world.errors:
            return self.world.errors.pop(0)
        if self.world.leader.node_id != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def produce(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
        world = self.world
        topic = request.topic_data[0]
        if context.api_version >= 13:
            assert topic.topic_id == TOPIC_ID
        one = ProduceResponse.PartitionProduceResponse(error_code=self.refusal())
        answer = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=[one]
                )
            ]
        )
        if not one.error_code:
            records = topic.partition_data[0].records
            assert isinstance(records, memoryview)
            batch = bytearray(records)
            patch(batch, world.end, world.leader.epoch)
            one.base_offset = world.end
            world.log += batch
            world.end += sum(header.record_count for header, _ in iter_batches(batch))
            world.produced_at.append(self.node_id)
        elif world.hints and context.api_version >= 10:
            one.current_leader = ProduceResponse.LeaderIdAndEpoch(
                leader_id=world.leader.node_id, leader_epoch=world.leader.epoch
            )
        return answer if request.acks else None

    def fetch(self, _: RequestContext, request: FetchRequest) -> FetchResponse:
        topic = request.topics[0]
        one = FetchResponse.PartitionData(error_code=self.refusal())
        if one.error_code and self.world.hints:
            one.current_leader = FetchResponse.LeaderIdAndEpoch(
                leader_id=self.world.leader.node_id, leader_epoch=self.world.leader.epoch
            )
        if not one.error_code:
            one.records = self.world.log
            one.high_watermark = self.world.end
            one.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=7, first_offset=3)
            ]
        response = FetchResponse.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=[one]
        )
        return FetchResponse(responses=[response])

    def list_offsets(self, _: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        timestamp = request.topics[0].partitions[0].timestamp
        one = ListOffsetsResponse.ListOffsetsPartitionResponse(error_code=self.refusal())
        one.offset = self.world.end if timestamp == LATEST else 0
        return ListOffsetsResponse(
            topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[one])]
        )


@asynccontextmanager
async def cluster(brokers: int = 2, produce_max: int | None = None) -> AsyncIterator[ClusterWorld]:
    world = ClusterWorld()
    for node in range(brokers):
        table = Broker(world, node, produce_max).table
        server = Server(table, clock=SystemClock(), listener="PLAINTEXT")
        await server.start("127.0.0.1", 0)
        world.servers[node] = server
    try:
        yield world
    finally:
        for server in world.servers.values():
            await server.close(grace_ms=100)


@asynccontextmanager
async def connected(world: ClusterWorld, **options: float) -> AsyncIterator[ClusterClient]:
    bootstrap = [server.address for server in world.servers.values()]
    client = await ClusterClient.connect(bootstrap, **options)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()


def batch(*values: bytes) -> bytes:
    return build_batch([Record(timestamp=1, value=value) for value in values])
