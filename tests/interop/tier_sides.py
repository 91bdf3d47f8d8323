"""Steps of a story of tiered storage on a side, and the resulting offsets.

Records are the same bytes on both sides, one batch in a request, so that segments begin at the same
offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from client.admin import Admin, ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import ClusterClient
from protocol.batch import Producer, Record, build_batch
from protocol.messages.delete_records import DeleteRecordsRequest
from testkit.kafka.tools import KafkaTools
from tests.interop.election_sides import Side

LATEST, EARLIEST, MAX_TIMESTAMP, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
GET_OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
ASKED: Final = (LATEST, EARLIEST, MAX_TIMESTAMP, LOCAL, TIERED, PENDING)
PRODUCER_ID: Final = 1 << 40
RECORDS: Final = 10
"""Records in a batch."""
BATCHES: Final = 5
"""Batches in a segment."""


class Offsets(NamedTuple):
    """The answers of ListOffsets to -1 to -6 for a topic's only partition."""

    latest: int
    earliest: int
    max_timestamp: int
    local: int
    tiered: int
    pending: int


def batch(number: int, timestamp_ms: int) -> bytes:
    """Return the records from offset `number` on, as an idempotent producer's batch.

    It may be sent again, for example if its leader steps down before it answers.
    """
    records = [
        Record(timestamp=timestamp_ms + n, key=None, value=b"%0100d" % (number + n))
        for n in range(RECORDS)
    ]
    return bytes(build_batch(records, producer=Producer(PRODUCER_ID, 0, number)))


SEGMENT_BYTES: Final = BATCHES * len(batch(0, 0))


def settings(directory: Path) -> dict[str, str]:
    """Return the settings of both sides."""
    return {
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": f"file://{directory}/bucket",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
        "log.segment.delete.delay.ms": "0",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
    }


def offsets(side: Side, topics: Sequence[str]) -> dict[str, Offsets]:
    async def ask(client: ClusterClient) -> dict[str, Offsets]:
        return {
            name: Offsets(*[(await client.list_offset(name, 0, one)).offset for one in ASKED])
            for name in topics
        }

    return side.ask(ask)


def told(side: Side, tools: KafkaTools, topics: Sequence[str]) -> dict[str, Offsets]:
    """Return the same by kafka-get-offsets, which omits missing offsets."""
    found: dict[str, list[int]] = {name: [] for name in topics}
    for one in ASKED:
        given = ("--topic-partitions", ",".join(topics), "--time", str(one))
        done = tools.run(GET_OFFSETS, "--bootstrap-server", side.bootstrap, *given)
        assert done.code == 0, done.text
        assert not done.err, done.err
        lines = (line.rsplit(":", 2) for line in done.out.split())
        listed = {name: int(offset) for name, _, offset in lines}
        for name, offsets_of in found.items():
            offsets_of.append(listed.get(name, -1))
    return {name: Offsets(*offsets_of) for name, offsets_of in found.items()}


def fill(side: Side, topic: str, first: int, batches: int, timestamp_ms: int) -> None:
    """Produce batches from offset `first` on."""

    async def send(client: ClusterClient) -> None:
        for number in range(first, first + batches * RECORDS, RECORDS):
            done = await client.produce(topic, 0, batch(number, timestamp_ms + number))
            assert done.base_offset == number, done

    side.ask(send)


def configure(side: Side, topic: str, configs: Mapping[str, str]) -> None:
    changes = [
        ConfigChange(key, ConfigOperation.SET if value else ConfigOperation.DELETE, value or None)
        for key, value in configs.items()
    ]
    side.ask(lambda c: Admin(c).alter_configs(ResourceType.TOPIC, topic, changes))


def delete_records(side: Side, topic: str, offset: int) -> None:
    one = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    named = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[one])
    request = DeleteRecordsRequest(topics=[named], timeout_ms=10_000)

    async def ask(client: ClusterClient) -> None:
        found = await client.topic(topic)
        answer = await client.request_broker(found.partitions[0].leader_id, request)
        (outcome,) = answer.topics[0].partitions
        assert outcome.error_code == 0, outcome

    side.ask(ask)
