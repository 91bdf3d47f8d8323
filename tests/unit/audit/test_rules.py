"""Every rule about the metadata log and each of its parts, with the smallest log that breaks it.

`test_corrupted_logs.py` has a case of each check; here are other ways to break it, and valid logs
that look like a breach.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metalog.image.snapshot import image_to_records
from protocol.batch.control import ControlType, build_control_batch
from protocol.batch.header import parse_header, write_crc
from protocol.metadata import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from testkit.records.metadata_logs import FENCE, TOPIC_ID, LogBuilder, audited, broken

OTHER_ID = bytes(range(2, 18))


def cluster(*, elr: bool = True, **partition: Any) -> LogBuilder:
    """Return three brokers, and t-0 on all of them."""
    builder = LogBuilder().begin(elr=elr)
    builder.topic(**partition)
    return builder


def findings(builder: LogBuilder, folder: Path, others: list[Path] | None = None) -> list[Any]:
    """Return the findings that are not informational."""
    result = audited(builder.write(folder), others=others or ())
    return [f for f in result["findings"] if f["severity"] != "info"]


def told(builder: LogBuilder, folder: Path) -> list[str]:
    return [f"{f['check']}: {f['message']}" for f in findings(builder, folder)]


# --- epochs-monotone, one-leader-per-epoch --------------------------------------------------------


def again(builder: LogBuilder, **fields: Any) -> None:
    """Write t-0 again, unchanged except for these fields."""
    now = builder.image.topics.by_id[TOPIC_ID].partitions[0]
    as_it_is = {
        "isr": list(now.isr),
        "leader": now.leader,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch + 1,
    }
    builder.add(builder.partition(**{**as_it_is, **fields}))


def test_a_partition_epoch_that_goes_back(tmp_path: Path) -> None:
    builder = cluster(partition_epoch=7)
    again(builder, partition_epoch=6)
    assert told(builder, tmp_path) == [
        "epochs-monotone: the partition epoch of t-0 goes back from 7 to 6"
    ]


def test_a_leader_epoch_that_goes_back(tmp_path: Path) -> None:
    builder = cluster(leader_epoch=4)
    again(builder, leader_epoch=3)
    assert told(builder, tmp_path) == [
        "epochs-monotone: the leader epoch of t-0 goes back from 4 to 3"
    ]


def test_epochs_count_the_changes_between(tmp_path: Path) -> None:
    builder = cluster()
    builder.add(builder.change(isr=[1, 2]))
    builder.add(builder.change(leader=2))
    again(builder, leader_epoch=0, partition_epoch=1)
    assert told(builder, tmp_path) == [
        "epochs-monotone: the leader epoch of t-0 goes back from 1 to 0",
        "epochs-monotone: the partition epoch of t-0 goes back from 2 to 1",
    ]


def test_the_same_epochs_once_more_are_no_step_back(tmp_path: Path) -> None:
    builder = cluster(leader_epoch=4, partition_epoch=7)
    again(builder, partition_epoch=7)
    assert told(builder, tmp_path) == []


@pytest.mark.parametrize("change", [{"leader": -1}, {"leader": 2, "leader_epoch": 1}])
def test_one_leader_in_an_epoch(tmp_path: Path, change: dict[str, Any]) -> None:
    """An epoch may lose its leader, and another epoch may have another one."""
    builder = cluster()
    again(builder, **change)
    assert [f for f in findings(builder, tmp_path) if f["severity"] == "error"] == []


# --- broker-epochs --------------------------------------------------------------------------------


def registered(builder: LogBuilder, broker: int, epoch: int, incarnation: int) -> None:
    builder.add(
        RegisterBrokerRecord(
            broker_id=broker,
            broker_epoch=epoch,
            incarnation_id=bytes([incarnation]) * 16,
            fenced=False,
        ),
        replays=False,
    )


def test_two_processes_with_one_broker_epoch(tmp_path: Path) -> None:
    builder = cluster()
    epoch = builder.epoch_of(3)
    registered(builder, 3, epoch, incarnation=99)
    assert told(builder, tmp_path) == [
        f"broker-epochs: broker 3 registers with epoch {epoch} after epoch {epoch}"
    ]


def test_a_broker_epoch_that_goes_back(tmp_path: Path) -> None:
    for incarnation in (3, 99):
        builder = cluster()
        epoch = builder.epoch_of(3)
        registered(builder, 3, epoch - 1, incarnation)
        assert told(builder, tmp_path / str(incarnation)) == [
            f"broker-epochs: broker 3 registers with epoch {epoch - 1} after epoch {epoch}"
        ]


def test_a_process_registers_again_with_its_epoch(tmp_path: Path) -> None:
    """Kafka does so when it updates a registration (KIP-919)."""
    builder = cluster()
    registered(builder, 3, builder.epoch_of(3), incarnation=3)
    assert told(builder, tmp_path) == []


def test_the_next_process_registers_with_a_higher_epoch(tmp_path: Path) -> None:
    builder = cluster()
    registered(builder, 3, builder.epoch_of(3) + 1, incarnation=99)
    assert told(builder, tmp_path) == []


def about_another_life(builder: LogBuilder, kind: str, epoch: int) -> Any:
    if kind == "unregistered":
        return UnregisterBrokerRecord(broker_id=3, broker_epoch=epoch)
    if kind == "unfenced":
        return UnfenceBrokerRecord(id=3, epoch=epoch)
    record = builder.fenced_record(3, FENCE if kind == "fenced" else 0)
    record.broker_epoch = epoch
    record.in_controlled_shutdown = int(kind == "controlled-shutdown")
    record.log_dirs = [bytes([9]) * 16] if kind == "log-directory-failed" else []
    return record


@pytest.mark.parametrize(
    "kind", ["fenced", "unfenced", "controlled-shutdown", "log-directory-failed", "unregistered"]
)
def test_broker_epochs_refuses_a_record_with_another_broker_epoch(
    tmp_path: Path, kind: str
) -> None:
    builder = cluster(replicas=(1, 2))
    epoch = builder.epoch_of(3)
    builder.add(about_another_life(builder, kind, epoch + 1), replays=False)
    assert told(builder, tmp_path) == [
        f"broker-epochs: a record ({kind}) has epoch {epoch + 1} of broker 3, but it is "
        f"registered with epoch {epoch}"
    ]


# --- fenced-in-isr --------------------------------------------------------------------------------


def fenced_one_by_one(builder: LogBuilder, *isrs: list[int]) -> None:
    """Fence brokers 2, 3 and 1, so that t-0 has these ISRs, and no leader in the end."""
    for broker, isr in zip((2, 3, 1), isrs, strict=True):
        leader = {"leader": -1} if broker == 1 else {}
        builder.fence(broker, builder.change(isr=isr, **leader))


def test_fenced_members_of_a_leaderless_isr(tmp_path: Path) -> None:
    """Only the last member may stay, if there is no ELR to keep it."""
    builder = cluster(elr=False)
    fenced_one_by_one(builder, [1, 3], [1, 3], [1, 3])
    builder.add(builder.change(isr=[3]))
    found = [f for f in findings(builder, tmp_path) if f["check"] == "fenced-in-isr"]
    assert [f["message"] for f in found] == [
        "fenced broker 3 is in the ISR [1, 3] of t-0",
        "fenced broker 1 is in the ISR [1, 3] of t-0",
    ]
    assert found[1]["after"]["leader"] == -1


def test_with_elr_the_last_member_leaves_the_isr_as_well(tmp_path: Path) -> None:
    builder = cluster()
    builder.fence(2, builder.change(isr=[1, 3]))
    builder.fence(3, builder.change(isr=[1], eligible_leader_replicas=[3]))
    builder.fence(1, builder.change(leader=-1))
    assert told(builder, tmp_path)[0] == ("fenced-in-isr: fenced broker 1 is in the ISR [1] of t-0")


def test_a_last_member_that_leads_may_not_be_fenced(tmp_path: Path) -> None:
    builder = cluster(elr=False, isr=[1])
    builder.fence(1)
    assert told(builder, tmp_path) == ["fenced-in-isr: fenced broker 1 is in the ISR [1] of t-0"]


def test_a_new_partition_with_a_fenced_member(tmp_path: Path) -> None:
    builder = LogBuilder().begin()
    builder.fence(3)
    builder.topic()
    assert told(builder, tmp_path) == [
        "fenced-in-isr: fenced broker 3 is in the ISR [1, 2, 3] of t-0"
    ]


def test_only_where_a_batch_ends(tmp_path: Path) -> None:
    """The fencing record may be before or after the change in its batch."""
    builder = cluster()
    builder.add(builder.fenced_record(3), builder.change(isr=[1, 2]))
    assert told(builder, tmp_path) == []


# --- leader-in-isr, isr-elr-members, elr-cleared --------------------------------------------------


def test_a_recovering_leader_may_stand_outside_the_isr(tmp_path: Path) -> None:
    builder = cluster()
    builder.add(builder.change(isr=[2, 3], leader_recovery_state=1))
    assert told(builder, tmp_path) == []


def test_a_partition_that_begins_with_a_leader_outside_its_isr(tmp_path: Path) -> None:
    assert told(cluster(isr=[2, 3]), tmp_path) == [
        "leader-in-isr: t-0: leader 1 is not in the ISR [2, 3]"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"isr": [1, 2, 9]}, "[9] are in ISR [1, 2, 9] or ELR [], but not among the replicas"),
        (
            {"isr": [1], "eligible_leader_replicas": [9]},
            "[9] are in ISR [1] or ELR [9], but not among the replicas",
        ),
        ({"isr": [1, 2, 2]}, "the ISR [1, 2, 2] names a replica twice"),
        (
            {"isr": [1], "eligible_leader_replicas": [1, 3]},
            "[1] are in ISR [1] and ELR [1, 3] at once",
        ),
    ],
)
def test_members_of_isr_and_elr(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    builder = cluster()
    builder.add(builder.change(**change))
    (found,) = told(builder, tmp_path)
    assert found.startswith(f"isr-elr-members: t-0: {message}")


@pytest.mark.parametrize("left", [{"eligible_leader_replicas": [3]}, {"last_known_elr": [3]}])
def test_elr_and_last_known_elr_are_cleared_at_min_isr(
    tmp_path: Path, left: dict[str, Any]
) -> None:
    builder = cluster()
    builder.add(builder.change(isr=[1, 2], **left))
    assert broken(audited(builder.write(tmp_path / "at"))) == ["elr-cleared"]
    builder = cluster()
    builder.add(builder.change(isr=[1], **left))
    assert broken(audited(builder.write(tmp_path / "below"))) == []


def test_min_isr_is_never_more_than_there_are_replicas(tmp_path: Path) -> None:
    builder = cluster(replicas=(1,))
    builder.add(builder.change(isr=[1], last_known_elr=[1]))
    assert broken(audited(builder.write(tmp_path))) == ["elr-cleared"]


# --- the log: log-gap, batch-crc, truncated-tail, logs-agree --------------------------------------


def test_offsets_twice(tmp_path: Path) -> None:
    builder = cluster()
    batches = [*builder.batches[:5], builder.batches[4], *builder.batches[5:]]
    result = audited(builder.write(tmp_path, batches=batches))
    assert broken(result) == ["log-gap"]
    (finding,) = [f for f in result["findings"] if f["check"] == "log-gap"]
    first, after = builder.base_offsets[4:6]
    assert finding["message"].startswith(f"offsets {first} to {after - 1} stand in the log twice")


def test_offsets_missing_before_a_snapshot(tmp_path: Path) -> None:
    builder = cluster()
    builder.add(builder.change(isr=[1, 2]))
    builder.snapshot()
    lost = builder.offset - 1
    result = audited(builder.write(tmp_path, batches=builder.batches[:-1]))
    assert broken(result) == ["log-gap"]
    (finding,) = [f for f in result["findings"] if f["check"] == "log-gap"]
    assert finding["message"] == (
        f"offsets {lost} to {lost} are missing before the snapshot that contains them"
    )


def in_two_segments(builder: LogBuilder, log: Path, first: int, damage: bytes = b"") -> None:
    """Write the log with the batches from number `first` on in a segment of their own."""
    (log / f"{0:020d}.log").write_bytes(b"".join(builder.batches[:first]) + damage)
    second = log / f"{builder.base_offsets[first]:020d}.log"
    second.write_bytes(b"".join(builder.batches[first:]))


def test_a_segment_inside_the_log_that_ends_in_a_batch(tmp_path: Path) -> None:
    builder = cluster()
    log = builder.write(tmp_path)
    in_two_segments(builder, log, 5, builder.batches[5][:40])
    (finding,) = [f for f in audited(log)["findings"] if f["check"] == "truncated-tail"]
    assert finding["severity"] == "error"
    assert finding["message"].startswith("a segment inside the log ends in the middle of a batch")


def test_the_end_of_a_copy_that_is_behind(tmp_path: Path) -> None:
    """The copy was made during an append, and the audited log has rolled since."""
    builder = cluster()
    first = builder.write(tmp_path, 101)
    in_two_segments(builder, first, 5)
    behind = builder.write(tmp_path, 102, [*builder.batches[:3], builder.batches[3][:-7]])
    found = [f for f in audited(first, others=[behind])["findings"] if f["log"] == "node 102"]
    assert [(f["check"], f["severity"]) for f in found] == [("truncated-tail", "info")]
    assert found[0]["offset"] == builder.base_offsets[3]


def test_bytes_between_batches(tmp_path: Path) -> None:
    builder = cluster()
    batches = [*builder.batches[:5], b"no batch at all, " * 8, *builder.batches[5:]]
    result = audited(builder.write(tmp_path, batches=batches))
    assert broken(result) == ["batch-crc"]


def test_logs_that_both_committed_something_else(tmp_path: Path) -> None:
    """Snapshots contain committed records only."""
    builder, other = cluster(), cluster()
    other.add(other.change(isr=[2, 1]))
    builder.leader(102, epoch=2)
    for one in (builder, other):
        one.add(one.change(isr=[1, 2]))
        one.snapshot()
    second = other.write(tmp_path, 102)
    found = [f for f in findings(builder, tmp_path, [second]) if f["check"] == "logs-agree"]
    assert [f["severity"] for f in found] == ["error"]
    assert found[0]["message"].endswith("snapshots of both cover it, so both were committed")


# --- record-orphan, record-unreadable -------------------------------------------------------------


def register(broker: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker, broker_epoch=99, incarnation_id=bytes(16))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (TopicRecord(name="t", topic_id=OTHER_ID), "topic 't' exists already"),
        (TopicRecord(name="u", topic_id=TOPIC_ID), "topic 'u' exists already"),
        (RemoveTopicRecord(topic_id=OTHER_ID), "a topic is removed that does not exist"),
        (
            PartitionRecord(partition_id=3, topic_id=OTHER_ID, replicas=[1], isr=[1], leader=1),
            "no topic has the id of partition 3",
        ),
        (ClearElrRecord(topic_name="u"), "the ELR of a topic 'u' is cleared"),
        (FenceBrokerRecord(id=7, epoch=1), "broker 7 is fenced, but it is not registered"),
        (UnfenceBrokerRecord(id=7, epoch=1), "broker 7 is unfenced, but it is not registered"),
        (
            UnregisterBrokerRecord(broker_id=7, broker_epoch=1),
            "broker 7 is unregistered, but it is not registered",
        ),
        (
            RemoveUserScramCredentialRecord(name="u", mechanism=1),
            "a UserScramCredentialRecord is removed that does not exist",
        ),
    ],
)
def test_a_record_about_what_does_not_exist(tmp_path: Path, record: Any, message: str) -> None:
    builder = cluster()
    builder.add(record, replays=False)
    (found,) = told(builder, tmp_path)
    assert found.startswith("record-orphan: ") and message in found


def unreadable(batch: bytes, at: int, byte: int, attributes: int = 0) -> bytes:
    """Return the batch with one changed byte in its records, these attributes, and a matching
    CRC."""
    damaged = bytearray(batch)
    damaged[at] = byte
    damaged[22] |= attributes
    write_crc(damaged, 0, len(damaged))
    return bytes(damaged)


RECORDS_AT = 61
GZIP = 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a change of a known partition", ""),
        ("a batch that does not unpack", "batch: "),
        ("a control record", "control record: "),
    ],
)
def test_unreadable_record_is_the_only_finding(tmp_path: Path, name: str, message: str) -> None:
    builder = cluster()
    builder.add(builder.change(isr=[1, 2]))
    change = builder.batches[-1]
    if name == "a control record":
        damaged = build_control_batch(
            [(ControlType.LEADER_CHANGE, b"\x00")],
            builder.base_offsets[-1],
            leader_epoch=1,
            timestamp_ms=builder.now_ms,
        )
    elif message:
        damaged = unreadable(change, RECORDS_AT, 0x7F, GZIP)
    else:
        isr = change.index(b"\x03\x00\x00\x00\x01\x00\x00\x00\x02")
        damaged = unreadable(change, isr, 0x7F)
    builder.batches[-1] = damaged
    if name != "a control record":
        builder.fence(3)  # the unreadable record removed broker 3 from the ISR
    (found,) = told(builder, tmp_path)
    assert found.startswith(f"record-unreadable: the record is unreadable: {message}")


# --- snapshot-equality, snapshot-whole ------------------------------------------------------------


def without(records: list[Any], kind: type, **fields: Any) -> list[Any]:
    """Return the records without the last one of a kind, or with these `fields` changed in it."""
    at = max(at for at, record in enumerate(records) if isinstance(record, kind))
    if not fields:
        return [*records[:at], *records[at + 1 :]]
    for name, value in fields.items():
        setattr(records[at], name, value)
    return records


@pytest.mark.parametrize(
    ("kind", "fields", "what"),
    [
        (PartitionRecord, {}, "partition t-0"),
        (PartitionRecord, {"leader_epoch": 9}, "partition t-0"),
        (PartitionRecord, {"partition_epoch": 9}, "partition t-0"),
        (PartitionRecord, {"directories": [bytes([8]) * 16] * 3}, "partition t-0"),
        (RegisterBrokerRecord, {"rack": "elsewhere"}, "broker 3"),
        (RegisterBrokerRecord, {}, "broker 3"),
        (FeatureLevelRecord, {"feature_level": 0}, "feature eligible.leader.replicas.version"),
        (ConfigRecord, {"value": "3"}, "configuration of 4"),
        (TopicRecord, {"name": "u"}, "topic t"),
    ],
)
def test_snapshot_equality_names_the_object_that_differs(
    tmp_path: Path, kind: type, fields: dict[str, Any], what: str
) -> None:
    builder = cluster()
    records = [record for record, _ in image_to_records(builder.image)]
    builder.snapshot(without(records, kind, **fields))
    found = told(builder, tmp_path)
    assert all(one.startswith("snapshot-equality: ") for one in found)
    assert any(one.rstrip().endswith(f"about {what}") for one in found), found


@pytest.mark.parametrize("lost", ["the footer", "half of it"])
def test_a_snapshot_that_is_not_whole(tmp_path: Path, lost: str) -> None:
    builder = cluster()
    builder.snapshot()
    (name,) = builder.snapshots
    whole = builder.snapshots[name]
    cut = len(whole) // 2 if lost == "half of it" else len(whole) - sizes(whole)[-1]
    builder.snapshots[name] = whole[:cut]
    (found,) = told(builder, tmp_path)
    said = "is damaged at position" if lost == "half of it" else "has no footer"
    assert found.startswith("snapshot-whole: ") and said in found


def sizes(data: bytes) -> list[int]:
    """Return the sizes of the batches."""
    found: list[int] = []
    while sum(found) < len(data):
        found.append(parse_header(data, sum(found)).size_bytes)
    return found


# --- facts ----------------------------------------------------------------------------------------


def test_how_long_a_partition_had_no_leader(tmp_path: Path) -> None:
    builder = cluster(elr=False)
    fenced_one_by_one(builder, [1, 3], [1], [1])
    builder.add(builder.change(isr=[1]), after_ms=4000)
    builder.unfence(1, builder.change(leader=1))
    result = audited(builder.write(tmp_path))
    facts = [f["message"] for f in result["findings"] if f["severity"] == "info"]
    assert "t-0 had no leader for 5.000 s in 1 episodes" in facts
    assert broken(result) == []


def test_leaderless_counts_partitions_at_the_end_of_the_log(tmp_path: Path) -> None:
    builder = cluster(elr=False)
    fenced_one_by_one(builder, [1, 3], [1], [1])
    (finding,) = findings(builder, tmp_path)
    assert (finding["check"], finding["severity"]) == ("leaderless", "warning")
    assert finding["message"] == "1 partitions have no leader where the log ends"
