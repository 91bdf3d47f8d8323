"""Snapshots: loading of their records into a state, and differences of two states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from audit.checks.base import CheckTable, Difference
from audit.decoding.batches import Batch, Damage, split
from audit.findings.sink import Sink
from audit.inputs.metadata_log import Snapshot
from audit.replay.replay import Replay
from audit.state.cluster import ClusterState, PartitionState
from audit.state.shapes import describe
from metalog.image.first_records import first_records_problem
from protocol.batch.control import read_control_type
from protocol.control import SnapshotFooterRecord, SnapshotHeaderRecord, decode_control_value
from protocol.errors import ApiError, ProtocolError
from protocol.metadata import decode_record

DIFFERENCES_MAX = 100


def load_snapshot(
    replay: Replay, snapshot: Snapshot, batches: Iterable[Batch | Damage]
) -> str | None:
    """Replay the records of the snapshot into the cluster's state, without checks.

    The replay's time becomes that of the last record that the snapshot contains. Returns the error
    of the file, None if it is complete.
    """
    replay.scope.loading = True
    footer = False
    contained_ms = -1
    try:
        for found in batches:
            if not isinstance(found, Batch) or not found.crc_ok:
                return f"the snapshot {snapshot.path} is damaged at position {found.position}"
            rows = split(found)
            if not found.header.is_control:
                replay.batch(found, rows)
                replay.scope.timestamp_ms = contained_ms
                continue
            for _, _, key, value in rows:
                record = decode_control_value(read_control_type(key), value or b"")
                footer = isinstance(record, SnapshotFooterRecord)
                if isinstance(record, SnapshotHeaderRecord):
                    contained_ms = replay.scope.timestamp_ms = record.last_contained_log_timestamp
    except (ProtocolError, ApiError) as error:
        return f"the snapshot {snapshot.path} cannot be read: {error}"
    finally:
        replay.scope.loading = False
        replay.statistics.records = replay.statistics.batches = 0
        for partition in replay.cluster.each_partition():
            _known_since(partition, contained_ms)
    return None if footer else f"the snapshot {snapshot.path} has no footer"


def check_first_snapshot(
    replay: Replay, snapshot: Snapshot, batches: Iterable[Batch | Damage]
) -> str | None:
    """Check the snapshot at offset 0, whose records a log begins with, and leave the state empty.

    The first active controller appends the records (KIP-1170; one of Kafka 4.3 does not), so the
    log itself has them. Returns the error of the file, None if it is complete and valid.
    """
    records: list[Any] = []
    checks, sink = CheckTable(()), Sink()
    min_isr = replay.cluster.default_min_isr
    other = Replay(replay.scope, checks, sink, min_isr=min_isr, history=False)
    problem = load_snapshot(other, snapshot, _with_records(batches, records))
    replay.scope.timestamp_ms = -1
    if problem is None and records:
        problem = first_records_problem(records)
        problem = problem and f"the snapshot {snapshot.path} {problem}"
    return problem


def _with_records(
    batches: Iterable[Batch | Damage], records: list[Any]
) -> Iterator[Batch | Damage]:
    """Yield the batches, and add their metadata records to `records`. Raises ProtocolError."""
    for found in batches:
        if isinstance(found, Batch) and found.crc_ok and not found.header.is_control:
            records += [decode_record(value or b"")[0] for _, _, _, value in split(found)]
        yield found


def _known_since(partition: PartitionState, timestamp_ms: int) -> None:
    if partition.under_since_ms is not None:
        partition.under_since_ms = timestamp_ms
    if partition.leaderless_since_ms is not None:
        partition.leaderless_since_ms = timestamp_ms


def state_differences(
    mine: ClusterState, other: ClusterState, *, everything: bool
) -> Iterator[Difference]:
    """Yield the differences between the replayed state and the snapshot's.

    They are about partitions only, unless `everything`.
    """
    names = {topic.id: topic.name for topic in (*mine.topics.values(), *other.topics.values())}
    yield from _partitions(mine, other, names)
    if not everything:
        return
    parts: tuple[tuple[str, Mapping[Any, Any], Mapping[Any, Any]], ...] = (
        ("topic", _topic_names(mine), _topic_names(other)),
        ("broker", mine.brokers, other.brokers),
        ("feature", mine.features, other.features),
        ("configuration of", mine.configs, other.configs),
        ("entry", mine.entities, other.entities),
    )
    for what, replayed, stored in parts:
        for key in _different(replayed, stored):
            yield Difference(
                f"{what} {_shown(key)}", _plain(replayed.get(key)), _plain(stored.get(key))
            )


def _partitions(
    mine: ClusterState, other: ClusterState, names: Mapping[bytes, str]
) -> Iterator[Difference]:
    keys = [
        key
        for key in mine.partitions.keys() | other.partitions.keys()
        if not _same(mine.partitions.get(key), other.partitions.get(key))
    ]
    for key in sorted(keys)[:DIFFERENCES_MAX]:
        topic = names.get(key[4:], "?")
        index = int.from_bytes(key[:4], "big", signed=True)
        yield Difference(
            f"partition {topic}-{index}",
            _described(mine.partitions.get(key)),
            _described(other.partitions.get(key)),
            topic,
            index,
        )


def _same(left: PartitionState | None, right: PartitionState | None) -> bool:
    if left is None or right is None:
        return left is right
    if (left.leader_epoch, left.partition_epoch) != (right.leader_epoch, right.partition_epoch):
        return False
    mine, other = left.shape.key, right.shape.key
    if mine == other:
        return True
    # Versions before KIP-858 have no directories; such a record leaves them unknown.
    if len(mine.directories) == len(other.directories) == len(mine.replicas):
        return False
    return mine._replace(directories=()) == other._replace(directories=())


def _described(partition: PartitionState | None) -> object:
    if partition is None:
        return None
    return describe(partition.shape.key, partition.leader_epoch, partition.partition_epoch)


def _topic_names(cluster: ClusterState) -> dict[str, str]:
    return {topic.name: topic.id.hex() for topic in cluster.topics.values()}


def _different(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> list[Any]:
    keys = [key for key in left.keys() | right.keys() if left.get(key) != right.get(key)]
    return sorted(keys, key=repr)[:DIFFERENCES_MAX]


def _plain(value: Any) -> Any:
    return value._asdict() if hasattr(value, "_asdict") else value


def _shown(key: Any) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
