"""Clients that request metadata and producer ids from brokers.

Metadata in a broker's response was committed before (M18): a topic that was never created, a leader
that was never elected or a broker that never registered breaks the promise. One connection belongs
to one broker incarnation, and its leader epochs never decrease (P15). A producer id is given out
once (T3, KIP-730), and comes from a block that the controllers have committed.
"""

from __future__ import annotations

import random

from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.transport.client import Connection
from simulation.clients.client import Unknown, fail_on
from simulation.clients.kind import ClientKind
from simulation.clients.load import REQUEST_MS, Access, Load
from simulation.judges.ledger import PartitionLedger
from simulation.shapes.shape import ClientShape, TopicShape
from simulation.world.invariants import Key, require

Described = (
    MetadataResponse.MetadataResponsePartition
    | DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
)


class Describer:
    """Requests all metadata from the leader of a partition, with one of three APIs."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._access = Access(load.new_client())
        self._seen: dict[Connection, dict[Key, int]] = {}

    async def step(self, rng: random.Random) -> None:
        if not self._load.ledgers.partitions:
            return
        one = rng.choice(self._load.ledgers.partitions)
        try:
            await self._ask(rng.randrange(3), one)
        except OSError as error:
            self._access.doubt()
            raise Unknown(str(error)) from error

    async def _ask(self, how: int, one: PartitionLedger) -> None:
        await self._access.leader(one)
        cluster = self._access.client.cluster
        connection = await cluster.leader(one.topic, one.index, REQUEST_MS)
        if how == 0:
            wish = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            told = await connection.request(wish, REQUEST_MS)
            for topic in told.topics:
                self._judge_topic(topic.topic_id, topic.name)
                for got in topic.partitions:
                    self._judge(connection, topic.topic_id, got)
            self._judge_brokers({node.node_id: (node.host, node.port) for node in told.brokers})
        elif how == 1:
            described = await connection.request(DescribeTopicPartitionsRequest(), REQUEST_MS)
            for each in described.topics:
                fail_on(each.error_code)
                self._judge_topic(each.topic_id, each.name)
                for found in each.partitions:
                    self._judge(connection, each.topic_id, found)
        else:
            answer = await connection.request(DescribeClusterRequest(), REQUEST_MS)
            fail_on(answer.error_code, answer.error_message)
            self._judge_brokers({node.broker_id: (node.host, node.port) for node in answer.brokers})

    def _judge_topic(self, topic_id: bytes, name: str | None) -> None:
        known = self._load.promises.metadata.topic_names.get(topic_id)
        require(known == name, f"M18: {self._name} got topic {name!r}, committed is {known!r}")

    def _judge(self, connection: Connection, topic_id: bytes, got: Described) -> None:
        key = (topic_id, got.partition_index)
        truth = self._load.promises.partitions.get(key)
        where = f"{self._name} got partition {got.partition_index} of {topic_id.hex()}"
        require(truth is not None, f"M18: {where}, which there never was")
        assert truth is not None
        elected = truth.elected.get(got.leader_epoch)
        require(
            elected is not None and got.leader_id in (elected, -1),
            f"M18: {where}: leader {got.leader_id} in epoch {got.leader_epoch}, elected is "
            f"{elected}",
        )
        strange = set(got.isr_nodes) - set(got.replica_nodes)
        require(not strange, f"P9: {where}: {strange} in the ISR and no replica")
        seen = self._seen.setdefault(connection, {})
        require(
            got.leader_epoch >= seen.get(key, -1),
            f"P15: {where}: epoch {got.leader_epoch}, the same broker said {seen.get(key)}",
        )
        seen[key] = got.leader_epoch

    def _judge_brokers(self, told: dict[int, tuple[str, int]]) -> None:
        known = self._load.promises.metadata.addresses
        strange = {one: at for one, at in told.items() if at not in known.get(one, ())}
        require(not strange, f"M18: {self._name} got unknown brokers {strange}")


class IdAsker:
    """Requests producer ids from all brokers without using them."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._access = Access(load.new_client())

    async def step(self, rng: random.Random) -> None:
        load = self._load
        if not load.ledgers.partitions:
            return
        leader = await self._access.leader(rng.choice(load.ledgers.partitions))
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            answer = await self._access.client._once(leader.node_id, request)
        except Unknown:
            self._access.doubt()
            raise
        fail_on(answer.error_code)
        found = answer.producer_id
        require(found not in load.producer_ids, f"T3: producer id {found} is given out twice")
        load.producer_ids.add(found)
        end = load.promises.metadata.image.next_producer_id
        require(found < end, f"T3: {found} is given out, committed are blocks up to {end}")


def _draw_describer(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    pause_ms = rng.choice((100.0, 400.0))
    return [ClientShape("describer", "describer", pause_ms)] if rng.random() < 0.7 else []


def _draw_asker(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    return [ClientShape("id asker", "id asker", 150.0)] if rng.random() < 0.5 else []


KINDS = {
    "describer": ClientKind(
        "askers",
        "asks brokers for topics, partitions and brokers",
        _draw_describer,
        lambda load, one: Describer(load, one.name).step,
        apart=True,
    ),
    "id asker": ClientKind(
        "askers",
        "takes producer ids from all brokers",
        _draw_asker,
        lambda load, one: IdAsker(load, one.name).step,
        apart=True,
    ),
}
