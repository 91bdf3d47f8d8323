"""A node with all kinds of traffic, scraped before and after, for the tests of metrics.

Run as a module it rewrites the table of docs/metrics.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from kraftbox.node import Node
from protocol.batch.records import Record, build_batch
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.transport.client import Connection
from testkit.memory.node import running_node
from testkit.memory.turns import until

TOPIC = "t"
BATCH = build_batch([Record(0, 0, None, b"x" * 100), Record(1, 0, None, b"y")])
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"

Labels = frozenset[tuple[str, str]]


class Row(NamedTuple):
    """A metric as the document shows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


class Scrape:
    """The parsed result of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[tuple[str, Labels], float] = {}
        self.rows: dict[str, Row] = {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name, _, words = line[len("# HELP ") :].partition(" ")
                assert name not in self.rows, f"duplicate {name}"
                self.rows[name] = Row(name, "", (), words)
            elif line.startswith("# TYPE "):
                name, kind = line[len("# TYPE ") :].split()
                self.rows[name] = self.rows[name]._replace(kind=kind)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                # The parser appends this suffix to every counter; several of Kafka's do not have
                # it.
                name = sample.name if sample.name in text else sample.name.removesuffix("_total")
                key = (name, frozenset(sample.labels.items()))
                assert key not in self.values, f"duplicate {key}"
                self.values[key] = sample.value
                row = self.rows.get(name)
                if row is None:  # the sum or count of a summary
                    row = self.rows[name.rpartition("_")[0]]
                names = tuple(dict.fromkeys([*row.labels, *sample.labels]))
                self.rows[row.name] = row._replace(labels=names)

    def value(self, name: str, **labels: str) -> float:
        """Return the value of one series. Raises: KeyError if it does not exist."""
        return self.values[(name, frozenset(labels.items()))]

    def labels_of(self, name: str) -> set[tuple[str, ...]]:
        """Return the label names of each series of that name, sorted."""
        return {
            tuple(sorted(key for key, _ in labels))
            for series, labels in self.values
            if series == name
        }


def scrape(node: Node) -> Scrape:
    return Scrape(b"".join(node.metrics.exposition()).decode())


async def connect(node: Node) -> Connection:
    return await Connection.connect("127.0.0.1", node.bound_port("PLAINTEXT"), "metrics", 5000)


def produce(topic_id: bytes, index: int, records: bytes) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])


def fetch(topic_id: bytes, offset: int, *, wait_ms: int = 0, session: bool = False) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        session_epoch=0 if session else -1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )


async def create_topic(
    connection: Connection, name: str, partitions: int = 2, **configs: str
) -> bytes:
    """Create a topic. Returns: its id."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    return await topic_id_of(connection, name)


async def topic_id_of(connection: Connection, name: str) -> bytes:
    """Return the topic's id as soon as every partition has a leader."""
    wanted = MetadataRequest.MetadataRequestTopic(name=name)
    while True:
        (found,) = (await connection.request(MetadataRequest(topics=[wanted]))).topics
        if found.error_code == 0 and all(p.leader_id >= 0 for p in found.partitions):
            return found.topic_id


async def join(connection: Connection, topic: str = TOPIC) -> None:
    """Create a group of one member that has committed an offset."""
    while True:
        found = await connection.request(FindCoordinatorRequest(coordinator_keys=["g"]))
        if not found.coordinators[0].error_code:
            break
    member = ""
    while True:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        joined = await connection.request(
            JoinGroupRequest(
                group_id="g",
                member_id=member,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[protocol],
            )
        )
        member = joined.member_id
        if not joined.error_code:
            break
    names: dict[str, Any] = {"group_id": "g", "member_id": member}
    names["generation_id"] = joined.generation_id
    part = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"")
    synced = await connection.request(
        SyncGroupRequest(
            assignments=[part], protocol_type="consumer", protocol_name="range", **names
        )
    )
    assert synced.error_code == ErrorCode.NONE
    names["generation_id_or_member_epoch"] = names.pop("generation_id")
    offset = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1)
    offsets = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[offset])
    committed = await connection.request(OffsetCommitRequest(topics=[offsets], **names), version=9)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE


async def limit(connection: Connection, **limits: float) -> None:
    """Set quotas of the client that all connections here belong to."""
    entity = AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name="metrics")
    ops = [AlterClientQuotasRequest.OpData(key=key, value=value) for key, value in limits.items()]
    entry = AlterClientQuotasRequest.EntryData(entity=[entity], ops=ops)
    reply = await connection.request(AlterClientQuotasRequest(entries=[entry]))
    assert reply.entries[0].error_code == ErrorCode.NONE


async def traffic(node: Node) -> tuple[Scrape, Scrape]:
    """Scrape before and after traffic; during the second scrape a fetch waits and a group has its
    member."""
    first, second, third = [await connect(node) for _ in range(3)]
    topic_id = await create_topic(first, TOPIC)
    before = scrape(node)
    await limit(
        second,
        producer_byte_rate=1e9,
        consumer_byte_rate=1e9,
        request_percentage=1e6,
        controller_mutation_rate=1.0,
    )
    await create_topic(second, "flushed", partitions=12, **{"flush.messages": "1"})
    flushed_id = await topic_id_of(second, "flushed")
    await second.request(produce(flushed_id, 0, BATCH))
    await first.request(produce(topic_id, 0, BATCH))
    refused = await first.request(produce(topic_id, 0, BATCH[:-1] + b"?"))
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    await first.request(fetch(topic_id, 0, session=True))
    missed = await first.request(fetch(topic_id, 77))
    assert missed.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await first.request(fetch(topic_id, 2, wait_ms=20))
    await join(second)
    waiting = asyncio.ensure_future(third.request(fetch(topic_id, 2, wait_ms=30_000)))
    assert node.broker is not None and node.broker.context is not None
    waits = node.broker.context.waits
    await until(lambda: len(waits.purgatory) > 0)
    after = scrape(node)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    for connection in (first, second, third):
        await connection.close()
    return before, after


async def observe() -> tuple[Scrape, Scrape]:
    async with running_node() as node:
        return await traffic(node)


def table(rows: Iterable[Row]) -> str:
    """Return the rows as Markdown, without those of the client library."""
    lines = ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    for row in sorted(rows):
        if not row.name.startswith("process_"):
            labels = ", ".join(row.labels) or "–"
            lines.append(f"| {row.name} | {row.kind} | {labels} | {row.text} |")
    return "".join(f"{line}\n" for line in lines)


def write_down(scraped: Scrape) -> None:
    """Write the table to docs/metrics.md."""
    head, _, old = DOCUMENT.read_text().partition(BEGIN)
    tail = old.partition(END)[2]
    DOCUMENT.write_text(head + BEGIN + table(scraped.rows.values()) + END + tail)


if __name__ == "__main__":
    write_down(asyncio.run(observe())[1])
