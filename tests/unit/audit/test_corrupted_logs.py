"""Twelve and more ways to break a log, each found by its own check alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.job import BROKEN, NOT_JUDGED, exit_code
from audit.report.text import verdict
from metalog.image.snapshot import image_to_records
from metalog.quorum.snapshots import FIRST_SNAPSHOT, snapshot_name, snapshot_parts
from protocol.batch.header import write_crc
from protocol.batch.records import Record, build_batch
from protocol.metadata import (
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from protocol.schema import MetadataRecord
from testkit.records.metadata_logs import TOPIC_ID, LogBuilder, audited, broken


def story(builder: LogBuilder) -> LogBuilder:
    """Return a log in which a broker is lost and returns, and leadership moves there and back."""
    change = builder.change
    builder.fence(1, change(isr=[2, 3], leader=2))
    builder.unfence(1)
    builder.add(change(isr=[2, 3, 1]))
    builder.add(change(leader=1))
    return builder


def healthy() -> LogBuilder:
    builder = LogBuilder().begin()
    builder.topic()
    return story(builder)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_healthy_log_has_no_findings(tmp_path: Path, shards: int) -> None:
    builder = healthy()
    builder.snapshot()
    story(builder)
    result = audited(builder.write(tmp_path), shards)
    assert broken(result) == []
    assert [e["kind"] for e in result["elections"]] == ["isr", "preferred"] * 2
    assert [e["cause"] for e in result["elections"]] == ["broker-fenced", "preferred"] * 2
    assert result["summary"]["records"] == builder.offset


def test_two_leaders_in_one_epoch(tmp_path: Path) -> None:
    builder = healthy()
    now = builder.image.topics.by_id[TOPIC_ID].partitions[0]
    builder.add(
        builder.partition(
            isr=[2, 3, 1],
            leader=3,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch + 1,
        )
    )
    assert broken(audited(builder.write(tmp_path))) == ["one-leader-per-epoch"]


def test_a_fenced_member_in_an_isr_of_several(tmp_path: Path) -> None:
    builder = healthy()
    offset = builder.fence(3)
    result = audited(builder.write(tmp_path))
    assert broken(result) == ["fenced-in-isr"]
    (finding,) = [f for f in result["findings"] if f["check"] == "fenced-in-isr"]
    assert finding["offset"] == offset
    assert "fenced broker 3 is in the ISR [2, 3, 1] of t-0" in finding["message"]


def test_a_fenced_broker_joins_an_isr(tmp_path: Path) -> None:
    builder = healthy()
    builder.fence(3, builder.change(isr=[2, 1]))
    builder.add(builder.change(isr=[2, 1, 3]))
    assert broken(audited(builder.write(tmp_path))) == ["fenced-in-isr"]


def test_the_last_member_of_a_leaderless_partition_may_be_fenced_without_elr(
    tmp_path: Path,
) -> None:
    builder = LogBuilder().begin(elr=False)
    builder.topic()
    builder.fence(2, builder.change(isr=[1, 3]))
    builder.fence(3, builder.change(isr=[1]))
    builder.fence(1, builder.change(leader=-1))
    result = audited(builder.write(tmp_path))
    assert broken(result) == ["leaderless"]  # a warning: it has no leader where the log ends
    assert result["summary"]["promises_hold"]


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_leader_that_went_with_a_controlled_shutdown_is_no_warning(
    tmp_path: Path, elr: bool, in_order: bool, snapshot: bool
) -> None:
    """A clean stop of the last member is no warning, also if only a snapshot contains it.

    With `in_order` False the last member was lost.
    """
    builder = LogBuilder().begin(elr=elr)
    builder.topic()
    builder.leave(2, builder.change(isr=[1, 3]))
    builder.leave(3, builder.change(isr=[1]))
    left: dict[str, Any] = {"isr": [], "last_known_elr": [1]} if elr else {}
    if in_order:
        builder.leave(1, builder.change(leader=-1, **left))
    else:
        builder.fence(1, builder.change(leader=-1, **left))
    if snapshot:
        builder.snapshot()
        builder.add(builder.fenced_record(2))
    result = audited(builder.write(tmp_path))
    assert result["summary"]["partitions_leaderless"] == 1
    assert result["summary"]["findings"]["warning"] == (not in_order)
    said = [f for f in result["findings"] if f["check"] == "leaderless"]
    ends = [f for f in said if "where the log ends" in f["message"]]
    assert [f["severity"] for f in ends] == ["info" if in_order else "warning"]
    assert ("stopped in good order" in ends[0]["message"]) is in_order


def test_leaderless_partition_that_needs_a_lost_and_a_stopped_broker_is_a_warning(
    tmp_path: Path,
) -> None:
    builder = LogBuilder().begin(elr=False)
    builder.topic()
    builder.fence(2, builder.change(isr=[1, 3]))
    builder.leave(1, builder.change(leader=3, isr=[3]))
    builder.fence(3, builder.change(leader=-1))
    result = audited(builder.write(tmp_path))
    assert broken(result) == ["leaderless"]


def test_of_several_that_may_lead_all_must_have_been_stopped_in_order(tmp_path: Path) -> None:
    builder = LogBuilder().begin()
    builder.topic(eligible_leader_replicas=[])
    builder.fence(3, builder.change(isr=[1, 2]))
    builder.fence(2, builder.change(isr=[1], eligible_leader_replicas=[2]))
    builder.leave(1, builder.change(leader=-1, isr=[], eligible_leader_replicas=[2, 1]))
    assert broken(audited(builder.write(tmp_path))) == ["leaderless"]


def test_a_stopped_broker_that_was_unregistered_is_a_warning(tmp_path: Path) -> None:
    builder = LogBuilder().begin(elr=False)
    builder.topic()
    builder.leave(2, builder.change(isr=[1, 3]))
    builder.leave(3, builder.change(isr=[1]))
    builder.leave(1, builder.change(leader=-1))
    builder.add(UnregisterBrokerRecord(broker_id=1, broker_epoch=builder.epoch_of(1)))
    assert broken(audited(builder.write(tmp_path))) == ["leaderless"]


def test_an_elr_that_was_not_cleared(tmp_path: Path) -> None:
    builder = healthy()
    builder.fence(2, builder.change(isr=[3, 1]))
    builder.fence(3, builder.change(isr=[1], eligible_leader_replicas=[3]))
    builder.unfence(2)
    builder.add(builder.change(isr=[1, 2]))
    assert broken(audited(builder.write(tmp_path))) == ["elr-cleared"]


def test_a_replica_in_isr_and_elr(tmp_path: Path) -> None:
    builder = healthy()
    builder.fence(2, builder.change(isr=[3, 1]))
    builder.fence(3, builder.change(isr=[1], eligible_leader_replicas=[1, 3]))
    assert broken(audited(builder.write(tmp_path))) == ["isr-elr-members"]


def test_a_leader_outside_the_isr(tmp_path: Path) -> None:
    builder = healthy()
    builder.add(builder.change(isr=[2, 3]))
    assert broken(audited(builder.write(tmp_path))) == ["leader-in-isr"]


def test_a_missing_batch(tmp_path: Path) -> None:
    builder = healthy()
    batches = [b for at, b in enumerate(builder.batches) if at != 5]
    result = audited(builder.write(tmp_path, batches=batches))
    assert broken(result) == ["log-gap"]
    (finding,) = [f for f in result["findings"] if f["check"] == "log-gap"]
    assert finding["offset"] == builder.base_offsets[5]


def test_a_missing_batch_in_the_story(tmp_path: Path) -> None:
    """Records behind the hole are not judged by the records in it."""
    builder = healthy()
    for missing in range(len(builder.batches) - 4, len(builder.batches) - 1):
        batches = [b for at, b in enumerate(builder.batches) if at != missing]
        assert broken(audited(builder.write(tmp_path / str(missing), batches=batches))) == [
            "log-gap"
        ]


@pytest.mark.parametrize("batch", [3, 8, -2])
def test_a_flipped_bit(tmp_path: Path, batch: int) -> None:
    builder = healthy()
    damaged = bytearray(builder.batches[batch])
    damaged[-3] ^= 0x10
    builder.batches[batch] = bytes(damaged)
    assert broken(audited(builder.write(tmp_path))) == ["batch-crc"]


def test_a_flipped_bit_in_a_length(tmp_path: Path) -> None:
    builder = healthy()
    damaged = bytearray(builder.batches[4])
    damaged[9] ^= 0x40
    builder.batches[4] = bytes(damaged)
    assert broken(audited(builder.write(tmp_path))) == ["batch-crc"]


def test_a_truncated_tail(tmp_path: Path) -> None:
    builder = healthy()
    builder.batches[-1] = builder.batches[-1][:-7]
    result = audited(builder.write(tmp_path))
    (finding,) = [f for f in result["findings"] if f["check"] == "truncated-tail"]
    assert finding["severity"] == "info", "nobody has to act after a crash in an append"
    assert broken(result) == [] and result["summary"]["promises_hold"]


def test_audit_ignores_preallocated_space_at_the_end(tmp_path: Path) -> None:
    builder = healthy()
    assert broken(audited(builder.write(tmp_path, batches=[*builder.batches, bytes(5000)]))) == []


def test_a_batch_of_an_older_epoch(tmp_path: Path) -> None:
    builder = healthy()
    builder.leader(102, epoch=5)
    builder.epoch = 4
    builder.add(builder.change(isr=[2, 3, 1]))
    assert broken(audited(builder.write(tmp_path))) == ["epochs-monotone"]


def test_a_leader_epoch_that_goes_back(tmp_path: Path) -> None:
    builder = healthy()
    now = builder.image.topics.by_id[TOPIC_ID].partitions[0]
    builder.add(builder.partition(leader_epoch=0, partition_epoch=now.partition_epoch + 1))
    assert broken(audited(builder.write(tmp_path))) == ["epochs-monotone"]


def test_two_quorum_leaders_in_one_epoch(tmp_path: Path) -> None:
    builder = healthy()
    builder.leader(102, epoch=5)
    builder.leader(103, epoch=5)
    assert broken(audited(builder.write(tmp_path))) == ["one-quorum-leader-per-epoch"]


def test_two_quorum_leaders_in_one_epoch_with_a_snapshot_between_them(tmp_path: Path) -> None:
    builder = healthy()
    builder.leader(102, epoch=5)
    builder.snapshot()
    builder.leader(103, epoch=5)
    result = audited(builder.write(tmp_path))
    assert broken(result) == ["one-quorum-leader-per-epoch"]
    (finding,) = [f for f in result["findings"] if f["severity"] == "error"]
    assert finding["offset"] == builder.base_offsets[-1]
    assert finding["before"]["leader"] == 102 and finding["after"]["leader"] == 103


def test_a_record_about_nothing(tmp_path: Path) -> None:
    builder = healthy()
    change = builder.change(isr=[1])
    change.partition_id = 7
    builder.add(change, replays=False)
    assert broken(audited(builder.write(tmp_path))) == ["record-orphan"]


def test_a_record_of_an_older_broker_epoch(tmp_path: Path) -> None:
    builder = healthy()
    builder.fence(3, builder.change(isr=[2, 1]))
    builder.add(FenceBrokerRecord(id=3, epoch=builder.epoch_of(3) - 1), replays=False)
    assert broken(audited(builder.write(tmp_path))) == ["broker-epochs"]


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    builder = healthy()
    builder.add(TopicRecord(name="other", topic_id=bytes(15) + b"\x09"))
    damaged = bytearray(builder.batches[-1])
    at = damaged.index(b"\x01\x02\x00\x06other")
    damaged[at + 1] = 99  # an unknown record type
    write_crc(damaged, 0, len(damaged))
    builder.batches[-1] = bytes(damaged)
    assert broken(audited(builder.write(tmp_path))) == ["record-unreadable"]


def test_a_snapshot_that_differs_from_the_records(tmp_path: Path) -> None:
    builder = healthy()
    records: list[Any] = [record for record, _ in image_to_records(builder.image)]
    for record in records:
        if isinstance(record, PartitionRecord):
            record.isr = [1, 2]
    builder.snapshot(records)
    assert broken(audited(builder.write(tmp_path))) == ["snapshot-equality"]


def test_a_damaged_snapshot(tmp_path: Path) -> None:
    builder = healthy()
    builder.snapshot()
    story(builder)
    (name,) = builder.snapshots
    content = bytearray(builder.snapshots[name])
    content[len(content) // 2] ^= 1
    builder.snapshots[name] = bytes(content)
    assert broken(audited(builder.write(tmp_path))) == ["snapshot-whole"]


def test_logs_that_differ_below_the_high_watermark(tmp_path: Path) -> None:
    builder = healthy()
    first = builder.write(tmp_path, 101)
    second = builder.write(tmp_path, 102)
    damaged = bytearray(builder.batches[-2])
    damaged[-2] ^= 1
    write_crc(damaged, 0, len(damaged))
    batches = [*builder.batches[:-2], bytes(damaged), builder.batches[-1]]
    third = builder.write(tmp_path, 103, batches)
    result = audited(first, others=[second, third])
    assert broken(result) == ["logs-agree"]
    (finding,) = [f for f in result["findings"] if f["check"] == "logs-agree"]
    assert finding["offset"] == builder.base_offsets[-2]
    assert "node 103" in finding["message"]


def test_logs_agree_reports_an_uncommitted_tail_as_information(tmp_path: Path) -> None:
    builder = healthy()
    old = LogBuilder().begin()
    old.topic()
    story(old)
    old.add(old.change(isr=[2, 3]))
    builder.leader(102, epoch=2)
    builder.add(builder.change(isr=[2, 1]))
    result = audited(builder.write(tmp_path, 101), others=[old.write(tmp_path, 102)])
    assert broken(result) == []
    (fact,) = [f for f in result["findings"] if f["check"] == "logs-agree"]
    assert "will be truncated" in fact["message"]


def test_batch_crc_finding_names_the_damaged_copy(tmp_path: Path) -> None:
    builder = healthy()
    first = builder.write(tmp_path, 101)
    damaged = bytearray(builder.batches[6])
    damaged[-3] ^= 0x10
    batches = [*builder.batches[:6], bytes(damaged), *builder.batches[7:]]
    second = builder.write(tmp_path, 102, batches)
    result = audited(first, others=[second])
    assert broken(result) == ["batch-crc"]
    (finding,) = [f for f in result["findings"] if f["check"] == "batch-crc"]
    assert finding["log"] == "node 102"


def test_a_log_that_begins_in_the_middle_of_nothing(tmp_path: Path) -> None:
    builder = healthy()
    log = builder.write(tmp_path, batches=builder.batches[6:])
    (log / f"{0:020d}.log").rename(log / f"{builder.base_offsets[6]:020d}.log")
    result = audited(log)
    assert broken(result) == ["log-start"]
    assert result["summary"]["promises_hold"]


FIRST = snapshot_name(FIRST_SNAPSHOT)


def first_snapshot(*records: MetadataRecord) -> bytes:
    """Return the bytes of a 0-0 snapshot with these records."""
    versioned = [(record, 0) for record in records]
    parts = snapshot_parts(FIRST_SNAPSHOT, versioned, last_contained_timestamp_ms=0, timestamp_ms=0)
    return b"".join(parts)


VERSION = FeatureLevelRecord(name="metadata.version", feature_level=30)


def test_first_snapshot_with_valid_records_has_no_findings(tmp_path: Path) -> None:
    """KIP-1170: formatting leaves the first records there; the log has them again, or not at all
    if Kafka 4.3 started on the directory."""
    builder = healthy()
    group = FeatureLevelRecord(name="group.version", feature_level=1)
    builder.snapshots[FIRST] = first_snapshot(VERSION, group)
    result = audited(builder.write(tmp_path))
    assert broken(result) == []
    assert "group.version" not in result["summary"]["features"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (first_snapshot(VERSION)[:-5], "is damaged at position"),
        (first_snapshot(VERSION, VERSION), "sets the feature metadata.version twice"),
        (
            first_snapshot(VERSION, FeatureLevelRecord(name="x.version", feature_level=1)),
            "sets the unknown feature 'x.version'",
        ),
    ],
)
def test_first_snapshot_that_no_node_accepts_is_reported(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    """The audit applies the rule by which a node refuses to start (`first_records_problem`)."""
    builder = healthy()
    builder.snapshots[FIRST] = content
    result = audited(builder.write(tmp_path))
    assert broken(result) == ["snapshot-whole"]
    assert any(problem in finding["message"] for finding in result["findings"])


def later(builder: LogBuilder, name: str, level: int, record_type: int) -> LogBuilder:
    """Append a feature level, and a record of a type that this release does not have."""
    builder.add(FeatureLevelRecord(name=name, feature_level=level))
    unknown = bytes([1, record_type, 0]) + bytes(5)
    data = build_batch(
        [Record(timestamp=builder.now_ms, value=unknown)], builder.offset, leader_epoch=1
    )
    builder._keep(data, 1)
    return builder


@pytest.mark.parametrize(
    ("name", "level", "known"), [("metadata.version", 99, True), ("later.version", 1, False)]
)
def test_log_at_a_level_of_a_later_release_is_not_judged(
    tmp_path: Path, name: str, level: int, known: bool
) -> None:
    """An unknown record type under such a level is no finding; the exit code is one of its own."""
    builder = later(healthy(), name, level, 77)
    builder.add(PartitionChangeRecord(topic_id=bytes(16), leader=1), replays=False)
    result = audited(builder.write(tmp_path))
    summary = result["summary"]
    (found,) = summary["not_judged"]
    assert (found["feature"], found["level"]) == (name, level)
    assert (found["known"] > 0) is known
    assert broken(result) == []
    assert exit_code(summary) == NOT_JUDGED == 3
    assert f"not judged: the log uses {name} at level {level}" in verdict(summary)


def test_unknown_record_type_under_known_levels_is_a_finding(tmp_path: Path) -> None:
    """No known release writes such a record."""
    result = audited(later(healthy(), "metadata.version", 30, 77).write(tmp_path))
    assert broken(result) == ["record-unreadable"]
    assert exit_code(result["summary"]) == BROKEN == 1


def test_promise_broken_below_a_later_level_stays_broken(tmp_path: Path) -> None:
    """The finding precedes the level, so the state was complete there."""
    builder = later(healthy(), "metadata.version", 30, 77)
    result = audited(later(builder, "metadata.version", 99, 77).write(tmp_path))
    assert broken(result) == ["record-unreadable"]
    assert exit_code(result["summary"]) == BROKEN
    assert result["summary"]["not_judged"]
