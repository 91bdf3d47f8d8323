"""`__remote_log_metadata` compared with Kafka's own serde, partitioner and tools (S6)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from protocol.batch import Record, build_batch
from protocol.ids import uuid_to_text
from runtime.clock import SystemClock
from storage.files import RealFiles
from storage.log.config import LogConfig
from storage.log.log import Log
from storage.tiered.records import decode_record, encode_record, metadata_partition
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentUpdate,
    TierRecord,
)
from testkit.kafka.jars import java_program, kafka_libs
from testkit.kafka.tools import KafkaTools
from testkit.records.tier import PARTITION, random_record
from tests.interop.tier_formats import dumped, printed

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "java/kafka-tools/TierOracle.java"
VALUES = 10_000
RUN_TIMEOUT_S = 300


def partition_of(record: TierRecord) -> RemotePartition:
    if isinstance(record, RemoteSegment | SegmentUpdate | PartitionDeletion):
        return record.partition
    return PARTITION


def question(record: TierRecord, partitions: int) -> str:
    """Return the record in the form of TierOracle.java."""
    partition = partition_of(record)
    topic = [partition.topic, uuid_to_text(partition.topic_id), partition.partition, partitions]
    words: list[object]
    if isinstance(record, PartitionDeletion):
        words = ["deletion", *topic, record.broker_id, record.event_timestamp_ms, int(record.state)]
    else:
        custom = "-" if record.custom_metadata is None else record.custom_metadata.hex()
        named = uuid_to_text(record.segment_id)
        if isinstance(record, SegmentUpdate):
            when = [record.broker_id, record.event_timestamp_ms]
            words = ["update", *topic, named, *when, custom, int(record.state)]
        else:
            words = [
                "segment" if isinstance(record, RemoteSegment) else "snapshot",
                *topic,
                named,
                record.start_offset,
                record.end_offset,
                record.max_timestamp_ms,
                record.broker_id,
                record.event_timestamp_ms,
                record.size_bytes,
                custom,
                int(record.state),
                ",".join(f"{entry.epoch}:{entry.start_offset}" for entry in record.epochs),
                str(record.txn_index_empty).lower(),
            ]
    return " ".join(map(str, words))


def test_kafka_writes_the_same_bytes_to_the_same_partitions(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    rng = random.Random(405)
    cases = [(random_record(rng), rng.choice((1, 3, 50, 1000))) for _ in range(VALUES)]
    done = subprocess.run(
        java_program(SOURCE, tmp_path),
        input="\n".join(question(record, partitions) for record, partitions in cases),
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases), done.stderr[-2000:]
    for (record, partitions), answer in zip(cases, answers, strict=True):
        expected = metadata_partition(partition_of(record), partitions)
        assert answer == f"{encode_record(record).hex()} {expected}", record
        assert decode_record(bytes.fromhex(answer.split()[0])) == record


def test_kafkas_dump_tool_reads_our_log(tmp_path: Path, tools: KafkaTools) -> None:
    """The topic's partition is written by our broker, with every kind of record."""
    rng = random.Random(1)
    found = [random_record(rng) for _ in range(200)]
    written = [
        record
        for record in found
        if isinstance(record, RemoteSegment | SegmentUpdate | PartitionDeletion)
    ]
    folder = tmp_path / "__remote_log_metadata-0"
    log = Log.open(RealFiles(), str(folder), LogConfig(), SystemClock())
    for record in written:
        batch = build_batch([Record(timestamp=1, value=encode_record(record))])
        log.append_as_leader(bytearray(batch), 0, 1)
    log.close()
    told = dumped(tools, [folder / f"{0:020d}.log"])
    assert told == [printed(record) for record in written]
