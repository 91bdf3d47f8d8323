"""`__remote_log_metadata` as printed by Kafka's tools and as read by our code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from client.cluster_client import EARLIEST, ClusterClient
from client.consumer import Consumer
from client.offsets import offsets_at, partitions_of
from kraftbox.cli.tier import read_catalogue
from protocol.ids import uuid_to_text
from storage.tiered.records import METADATA_TOPIC, decode_record
from storage.tiered.states import SegmentState
from storage.tiered.values import (
    PartitionDeletion,
    RemotePartition,
    RemoteSegment,
    SegmentUpdate,
    TierRecord,
)
from testkit.kafka.tools import KafkaTools

DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER: Final = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization."
    "RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
)


def printed(record: TierRecord) -> str:
    """Return the output of Kafka's tools for a record of the topic."""
    if isinstance(record, PartitionDeletion):
        said = [
            f"topicPartition={_partition(record.partition)}",
            f"state=DELETE_PARTITION_{record.state.name}",
            f"eventTimestampMs={record.event_timestamp_ms}",
            f"brokerId={record.broker_id}",
        ]
        return f"RemotePartitionDeleteMetadata{{{', '.join(said)}}}"
    assert isinstance(record, RemoteSegment | SegmentUpdate)
    said = [
        f"remoteLogSegmentId=RemoteLogSegmentId{{"
        f"topicIdPartition={_partition(record.partition)}, id={uuid_to_text(record.segment_id)}}}"
    ]
    custom = f"customMetadata={_custom(record.custom_metadata)}"
    state = f"state={_state(record.state)}"
    if isinstance(record, SegmentUpdate):
        said += [custom, state, f"eventTimestampMs={record.event_timestamp_ms}"]
        said += [f"brokerId={record.broker_id}"]
        return f"RemoteLogSegmentMetadataUpdate{{{', '.join(said)}}}"
    epochs = ", ".join(f"{entry.epoch}={entry.start_offset}" for entry in record.epochs)
    said += [
        f"startOffset={record.start_offset}",
        f"endOffset={record.end_offset}",
        f"brokerId={record.broker_id}",
        f"maxTimestampMs={record.max_timestamp_ms}",
        f"eventTimestampMs={record.event_timestamp_ms}",
        f"segmentLeaderEpochs={{{epochs}}}",
        f"segmentSizeInBytes={record.size_bytes}",
        custom,
        state,
        f"txnIdxEmpty={str(record.txn_index_empty).lower()}",
    ]
    return f"RemoteLogSegmentMetadata{{{', '.join(said)}}}"


def _partition(partition: RemotePartition) -> str:
    return f"{uuid_to_text(partition.topic_id)}:{partition.topic}-{partition.partition}"


def _state(state: SegmentState) -> str:
    what, how = state.name.split("_")
    return f"{what}_SEGMENT_{how}"


def _custom(custom: bytes | None) -> str:
    return (
        "Optional.empty" if custom is None else f"Optional[CustomMetadata{{{len(custom)} bytes}}]"
    )


def dumped(tools: KafkaTools, files: Iterable[Path]) -> list[str]:
    """Return the records of log files as printed by kafka-dump-log."""
    names = ",".join(map(str, files))
    done = tools.run(DUMP, "--remote-log-metadata-decoder", "--files", names)
    assert done.code == 0, done.text
    lines = done.out.splitlines()
    return [line.partition(" payload: ")[2] for line in lines if " payload: " in line]


def consumed(tools: KafkaTools, bootstrap: str, count: int) -> list[str]:
    """Return the first records of the topic, by the formatter of kafka-console-consumer."""
    given = ["--bootstrap-server", bootstrap, "--topic", METADATA_TOPIC, "--from-beginning"]
    given += ["--formatter", FORMATTER, "--max-messages", str(count)]
    done = tools.run(CONSOLE_CONSUMER, *given)
    assert done.code == 0, done.text
    return [line.partition(", value: ")[2] for line in done.out.splitlines()]


async def records(client: ClusterClient) -> list[TierRecord]:
    """Return all records of a running cluster's topic."""
    partitions = await partitions_of(client, [METADATA_TOPIC])
    ends = await offsets_at(client, partitions, -1)
    consumer = Consumer(client)
    consumer.assign(await offsets_at(client, partitions, EARLIEST))
    found: list[TierRecord] = []
    while any(position < ends[one] for one, position in consumer.positions.items()):
        for record in await consumer.poll():
            assert record.key is None
            assert record.value is not None
            found.append(decode_record(record.value))
    return found


async def segments(client: ClusterClient) -> list[RemoteSegment]:
    """Return the segments that `kraftbox tier list` lists.

    Records that may not follow earlier ones are skipped, as in brokers: Kafka once wrote one.
    """
    return list((await read_catalogue(client)).segments())


def same(found: Iterable[str], expected: Iterable[TierRecord]) -> bool:
    """Return whether these lines are those of the records, in whatever order partitions were
    read."""
    return Counter(found) == Counter(map(printed, expected))
