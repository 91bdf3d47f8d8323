"""Small metadata logs, written batch by batch, for the audit's tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from audit.findings.sink import Sink
from audit.inputs.metadata_log import LogEnd, MetadataLog
from audit.planning.intervals import plan_intervals
from audit.reading.logs import METADATA_DIRECTORY, read_listing
from audit.report.document import Merged
from audit.tasks.interval import IntervalAudit
from metalog.image.features import record_version
from metalog.image.replay import replay
from metalog.image.snapshot import image_to_records
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from metalog.quorum.batches import build_kraft_batch, build_metadata_batch
from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.snapshots import snapshot_name, snapshot_parts
from protocol.control import LeaderChangeMessage
from protocol.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

LEVEL = 30
START_MS = 1_790_000_000_000
TOPIC_ID = bytes(range(1, 17))
ELR = "eligible.leader.replicas.version"
FENCE, UNFENCE = 1, -1


class LogBuilder:
    """Writes one segment; batches are kept apart, so that tests can damage them."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.batches: list[bytes] = []
        self.base_offsets: list[int] = []
        self.snapshots: dict[str, bytes] = {}
        self.offset = 0
        self.epoch = 1
        self.now_ms = start_ms
        self.image: MetadataImage = EMPTY_IMAGE
        self.leader(101)

    def leader(self, node: int, epoch: int | None = None) -> None:
        """Append the record with which a quorum leader begins its epoch."""
        self.epoch = self.epoch if epoch is None else epoch
        record = LeaderChangeMessage(leader_id=node)
        self._keep(
            build_kraft_batch([record], self.offset, epoch=self.epoch, timestamp_ms=self.now_ms), 1
        )

    def add(self, *records: Any, after_ms: int = 1000, replays: bool = True) -> int:
        """Append one batch of records. Returns: its first offset.

        `replays` False is for records that no image accepts, which a damaged cluster may have.
        """
        base = self.offset
        pairs = [(r, record_version(type(r).__name__, LEVEL)) for r in records]
        self.now_ms += after_ms
        data = build_metadata_batch(pairs, base, epoch=self.epoch, timestamp_ms=self.now_ms)
        if replays:
            for record in records:
                self.image = replay(self.image, record)
        self._keep(data, len(records))
        return base

    def _keep(self, data: bytes, count: int) -> None:
        self.base_offsets.append(self.offset)
        self.batches.append(data)
        self.offset += count

    def snapshot(self, records: Iterable[Any] | None = None) -> None:
        """Take a snapshot of the cluster here, or of these records."""
        snapshot_id = OffsetAndEpoch(self.offset, self.epoch)
        pairs: Iterable[Any] = image_to_records(self.image)
        if records is not None:
            pairs = [(r, record_version(type(r).__name__, LEVEL)) for r in records]
        parts = snapshot_parts(
            snapshot_id,
            pairs,
            last_contained_timestamp_ms=self.now_ms,
            timestamp_ms=self.now_ms,
        )
        self.snapshots[snapshot_name(snapshot_id)] = b"".join(parts)

    def write(self, folder: Path, node: int = 101, batches: Sequence[bytes] | None = None) -> Path:
        """Write the log directory of a node below `folder`. Returns: its path."""
        log = folder / f"node-{node}" / METADATA_DIRECTORY
        log.mkdir(parents=True)
        (log.parent / "meta.properties").write_text(
            f"version=1\ncluster.id=audited-cluster\nnode.id={node}\n"
        )
        data = b"".join(self.batches if batches is None else batches)
        (log / f"{0:020d}.log").write_bytes(data)
        for name, content in self.snapshots.items():
            (log / name).write_bytes(content)
        return log

    # --- a cluster -----------------------------------------------------------------------------

    def begin(self, brokers: int = 3, *, elr: bool = True, min_isr: int = 2) -> LogBuilder:
        """Write features, min ISR, and brokers 1 to `brokers`, unfenced."""
        records: list[Any] = [FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)]
        if elr:
            records.append(FeatureLevelRecord(name=ELR, feature_level=1))
        self.add(*records)
        self.add(
            ConfigRecord(
                resource_type=4, resource_name="", name="min.insync.replicas", value=str(min_isr)
            )
        )
        for broker in range(1, brokers + 1):
            self.register(broker)
            self.unfence(broker)
        return self

    def register(self, broker: int) -> int:
        return self.add(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=self.offset,
                incarnation_id=bytes([broker]) * 16,
                rack=f"rack-{broker % 2}",
                fenced=True,
            )
        )

    def epoch_of(self, broker: int) -> int:
        return self.image.cluster.brokers[broker].epoch

    def fenced_record(self, broker: int, fenced: int = FENCE) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(
            broker_id=broker, broker_epoch=self.epoch_of(broker), fenced=fenced
        )

    def unfence(self, broker: int, *changes: Any) -> int:
        return self.add(self.fenced_record(broker, UNFENCE), *changes)

    def fence(self, broker: int, *changes: Any) -> int:
        """Fence a broker as Kafka does: the changes first, then the fencing, in one batch."""
        return self.add(*changes, self.fenced_record(broker))

    def leave(self, broker: int, *changes: Any) -> int:
        """Write a controlled shutdown: the broker hands over, and is fenced in a batch of
        its own."""
        leaving = BrokerRegistrationChangeRecord(
            broker_id=broker, broker_epoch=self.epoch_of(broker), in_controlled_shutdown=1
        )
        self.add(leaving, *changes)
        return self.fence(broker)

    def topic(self, replicas: Sequence[int] = (1, 2, 3), **more: Any) -> int:
        return self.add(TopicRecord(name="t", topic_id=TOPIC_ID), self.partition(replicas, **more))

    @staticmethod
    def partition(replicas: Sequence[int] = (1, 2, 3), **more: Any) -> PartitionRecord:
        values: dict[str, Any] = {
            "partition_id": 0,
            "topic_id": TOPIC_ID,
            "replicas": list(replicas),
            "isr": list(replicas),
            "leader": replicas[0],
            "leader_epoch": 0,
            "partition_epoch": 0,
            "directories": [bytes([9]) * 16] * len(replicas),
        }
        return PartitionRecord(**{**values, **more})

    @staticmethod
    def change(**fields: Any) -> PartitionChangeRecord:
        return PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, **fields)


def audited(log: Path, shards: int = 1, others: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the audit's result for one log, in this process, without Spark; `others` are
    copies."""
    from audit.planning.copies import plan_comparisons
    from audit.tasks.comparison import compare

    listing: MetadataLog = read_listing(log)
    copies = [read_listing(path) for path in others]
    ends = {one.name: LogEnd(0, 0) for one in (listing, *copies)}
    merged = Merged(listing, [listing, *copies], ends)
    for interval in plan_intervals(listing, copies):
        for shard in range(shards):
            sink = Sink()
            IntervalAudit(interval._replace(shard=shard, shards=shards), sink).run()
            merged.add(sink.rows())
    for comparison in plan_comparisons(listing, copies):
        sink = Sink()
        compare(comparison, sink)
        merged.add(sink.rows())
    return merged.result(1000)


def broken(result: dict[str, Any]) -> list[str]:
    """Return the checks with findings above severity info, sorted."""
    return sorted({f["check"] for f in result["findings"] if f["severity"] != "info"})
