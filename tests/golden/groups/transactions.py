"""A recorder of Apache Kafka's records and answers about offsets in transactions.

`python -m tests.golden.groups.transactions DIRECTORY` starts one Kafka node there, commits offsets
of many groups in and outside of transactions, and keeps the log of the one partition of
`__consumer_offsets`. Then it starts the node again and fetches the offsets. It needs Java and
Kafka's jars.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.transport.client import Connection
from testkit.kafka.twins import CLUSTER_ID, COMMON_FEATURES, NodeDirectory, kafka_at

LOG = Path(__file__).parent / "transactions-4.4.0.log"
ANSWERS = Path(__file__).parent / "transactions-4.4.0.txt"
TOPIC = "t"
TIMEOUT_S = 30
TIMEOUT_MS = 30_000.0
OPEN_MS = 600_000
LOADING_S = 0.2

Fact = tuple[str, int, int, str]


class Recorder:
    """Commits at one Kafka node."""

    def __init__(self, place: NodeDirectory) -> None:
        self.place = place
        self.groups: list[str] = []
        self._producers: list[Producer] = []

    def consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self.place.bootstrap, "group.id": group})

    def commit(self, group: str, offset: int) -> None:
        """Commit an offset outside of any transaction."""
        if group not in self.groups:
            self.groups.append(group)
        consumer = self.consumer(group)
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        consumer.close()

    def begin(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.place.bootstrap,
                "transactional.id": f"x{len(self._producers)}",
                "transaction.timeout.ms": OPEN_MS,
            }
        )
        self._producers.append(producer)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        return producer

    def send(self, producer: Producer, group: str, offset: int) -> Producer:
        if group not in self.groups:
            self.groups.append(group)
        consumer = self.consumer(group)
        metadata = consumer.consumer_group_metadata()
        offsets = [TopicPartition(TOPIC, 0, offset)]
        producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S)
        consumer.close()
        return producer

    async def delete(self, group: str) -> None:
        connection = await self._connect()
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=TOPIC, partitions=[partition])
        request = OffsetDeleteRequest(group_id=group, topics=[topic])
        await connection.request(request, TIMEOUT_MS, 0)
        await connection.close()

    async def _connect(self) -> Connection:
        host, port = self.place.bootstrap.split(":")
        return await Connection.connect(host, int(port), "recorder")

    def run(self) -> None:
        """Run every case in a group of its own."""
        self.commit("aborted", 3)
        self.send(self.begin(), "aborted", 9).abort_transaction(TIMEOUT_S)
        self.send(self.begin(), "aborted-only", 9).abort_transaction(TIMEOUT_S)
        self.commit("committed", 3)
        self.send(self.begin(), "committed", 9).commit_transaction(TIMEOUT_S)
        self.commit("overtaken", 3)
        first = self.send(self.begin(), "overtaken", 9)
        self.commit("overtaken", 5)
        first.commit_transaction(TIMEOUT_S)
        for group, second_commits in (("two", True), ("two-aborted", False)):
            self.commit(group, 3)
            first, second = self.begin(), self.begin()
            self.send(first, group, 7)
            self.send(second, group, 8)
            end = second.commit_transaction if second_commits else second.abort_transaction
            end(TIMEOUT_S)
            first.commit_transaction(TIMEOUT_S)
        self.commit("twice", 3)
        first = self.send(self.send(self.begin(), "twice", 4), "twice", 6)
        first.commit_transaction(TIMEOUT_S)
        first.begin_transaction()
        self.send(first, "twice", 8).abort_transaction(TIMEOUT_S)
        self.commit("open", 3)
        self.send(self.begin(), "open", 9)
        self.send(self.begin(), "open-only", 9)
        self.commit("open-overtaken", 3)
        self.send(self.begin(), "open-overtaken", 9)
        self.commit("open-overtaken", 5)
        self.commit("deleted", 3)
        first = self.send(self.begin(), "deleted", 9)
        asyncio.run(self.delete("deleted"))
        first.commit_transaction(TIMEOUT_S)
        self.commit("deleted-open", 3)
        self.send(self.begin(), "deleted-open", 9)
        asyncio.run(self.delete("deleted-open"))

    async def ask(self) -> list[str]:
        connection = await self._connect()
        lines = []
        for group in self.groups:
            for stable in (False, True):
                for topics in (_asked(), None):
                    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
                        group_id=group, topics=topics
                    )
                    request = OffsetFetchRequest(groups=[wanted], require_stable=stable)
                    answer = (await connection.request(request, TIMEOUT_MS, 8)).groups[0]
                    while answer.error_code:
                        await asyncio.sleep(LOADING_S)
                        answer = (await connection.request(request, TIMEOUT_MS, 8)).groups[0]
                    facts = [
                        (
                            topic.name,
                            each.partition_index,
                            each.committed_offset,
                            ErrorCode(each.error_code).name,
                        )
                        for topic in answer.topics
                        for each in topic.partitions
                    ]
                    lines.append(line(group, stable=stable, everything=topics is None, facts=facts))
        await connection.close()
        return lines


def _asked() -> list[Any]:
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])
    return [topic]


def line(group: str, *, stable: bool, everything: bool, facts: Sequence[Fact]) -> str:
    """Return the answer to one request as a line of the file."""
    return json.dumps([group, stable, everything, sorted(facts)])


def record(directory: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    place = NodeDirectory(directory / "kafka", settings)
    kafka = kafka_at(place)
    kafka.format(CLUSTER_ID, "--standalone", *COMMON_FEATURES)
    recorder = Recorder(place)
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": place.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(TIMEOUT_S)
        recorder.run()
        before = asyncio.run(recorder.ask())
        (log,) = (place.data / "__consumer_offsets-0").glob("*.log")
        LOG.write_bytes(log.read_bytes())
        kafka.stop()
        kafka.start()
        after = asyncio.run(recorder.ask())
    finally:
        kafka.stop()
    assert before == after, "Kafka itself says something else after loading"
    ANSWERS.write_text("".join(f"{each}\n" for each in after))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
