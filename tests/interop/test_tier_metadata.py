"""`__remote_log_metadata` against Kafka's own serde, partitioner and tools (S6)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from protocol.ids import uuid_to_text
from storage.tiered.records import decode_record, encode_record, metadata_partition
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentSnapshot,
    SegmentUpdate,
    TierRecord,
)
from testkit.kafka.jars import java_program, kafka_libs
from testkit.records.tier import PARTITION, random_record

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "java/kafka-tools/TierOracle.java"
VALUES = 10_000
RUN_TIMEOUT_S = 300


def partition_of(record: TierRecord) -> RemotePartition:
    return PARTITION if isinstance(record, SegmentSnapshot) else record.partition


def question(record: TierRecord, partitions: int) -> str:
    """The record in the words of TierOracle.java."""
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
