"""Brokers' logs compared with each other, the metadata, and clients' histories (H1-H12, P4)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from audit.findings.sink import Sink
from audit.inputs.metadata_log import MetadataLog
from audit.planning.partitions import plan_partitions
from audit.reading import replicas as files
from audit.reading.client_history import acknowledged
from audit.reading.logs import UnreadableInput, read_listing
from audit.reading.replicas import find_replicas
from audit.tasks.partition import audit_partition
from kraftbox.chaos.history import SendOutcome
from protocol.batch.header import write_crc
from testkit.records.replicas import Brokers, batch, send, value


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path)


def test_equal_replicas_and_kept_promises(brokers: Brokers) -> None:
    assert brokers.found() == []


def test_replicas_are_found_with_what_they_wrote_down(brokers: Brokers) -> None:
    brokers.work()
    first = find_replicas([brokers.folder])[0]
    assert (first.topic, first.partition, first.broker) == ("t", 0, 1)
    assert (first.high_watermark, first.epochs) == (5, ((0, 0),))


def test_replicas_that_differ_below_the_high_watermark(brokers: Brokers) -> None:
    damaged = bytearray(brokers.logs[3][2])
    damaged[-3] ^= 1
    write_crc(damaged, 0, len(damaged))
    brokers.logs[3][2] = bytes(damaged)
    assert brokers.found() == ["replicas-equal"]


def test_replicas_may_differ_above_it(brokers: Brokers) -> None:
    brokers.logs[3][4] = batch(4, 0, value(77))
    brokers.high_watermarks[3] = 4
    assert brokers.found() == []


def test_a_flipped_bit_in_a_replica(brokers: Brokers) -> None:
    damaged = bytearray(brokers.logs[2][4])
    damaged[-3] ^= 1
    brokers.logs[2][4] = bytes(damaged)
    brokers.high_watermarks[2] = 4
    assert brokers.found() == ["replica-damage"]


def test_a_cut_tail_of_a_replica_is_no_finding(brokers: Brokers) -> None:
    brokers.logs[2][4] = brokers.logs[2][4][:-4]
    brokers.high_watermarks[2] = 4
    assert brokers.found() == []


def test_an_epoch_that_the_metadata_does_not_know(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node][4] = batch(4, 7)
        brokers.epochs[node] = "0\n2\n0 0\n7 4\n"
    assert brokers.found() == ["leader-epochs"]


def test_a_checkpoint_that_lacks_an_epoch(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node][4] = batch(4, 1)
        brokers.epochs[node] = "0\n2\n0 0\n1 4\n" if node < 3 else "0\n1\n0 0\n"
    brokers.result["partitions"][0]["leader_epoch"] = 1
    assert brokers.found() == ["leader-epochs"]


def test_a_lost_acknowledged_record(brokers: Brokers) -> None:
    brokers.sends.append(send(5, 5))
    assert brokers.found() == ["acknowledged-lost"]


def test_an_acknowledged_record_replaced_by_another(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node][3] = batch(3, 0, value(99))
    assert brokers.found() == ["acknowledged-lost"]


def test_a_record_twice(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node].append(batch(5, 0, value(2)))
    assert brokers.found() == ["acknowledged-twice"]


def test_records_in_another_order(brokers: Brokers) -> None:
    brokers.sends = [send(0, 0, 1), send(1, 1, 0), *brokers.sends[2:]]
    assert brokers.found() == ["acknowledged-order"]


def test_send_with_an_unknown_outcome_needs_no_record(brokers: Brokers) -> None:
    unknown = send(5, -1)._replace(outcome=SendOutcome.UNKNOWN)
    brokers.sends.append(unknown)
    assert brokers.found() == []


def test_a_broken_history_is_refused(brokers: Brokers) -> None:
    brokers.work()
    history = brokers.folder / "history.kbxh"
    data = bytearray(history.read_bytes())
    data[9] ^= 1
    history.write_bytes(bytes(data))
    with pytest.raises(UnreadableInput, match="its CRC does not fit"):
        acknowledged([history])


# --- replicas-equal -------------------------------------------------------------------------------


def test_a_replica_that_is_shorter_than_its_high_watermark(brokers: Brokers) -> None:
    brokers.only(1)
    brokers.sends.clear()
    brokers.logs[1].pop()
    assert brokers.messages() == [
        "replicas-equal: the log of t-0 on broker 1 ends at offset 4, below its high watermark 5"
    ]


def test_a_log_whose_records_were_all_deleted_is_not_short(brokers: Brokers) -> None:
    """Retention leaves an empty segment that begins at the log end."""
    brokers.work()
    place = brokers.folder / "broker-3" / "t-0"
    (place / f"{0:020d}.log").unlink()
    (place / f"{5:020d}.log").write_bytes(b"")
    sink = Sink()
    work = plan_partitions(
        find_replicas([brokers.folder]),
        acknowledged([brokers.folder / "history.kbxh"]),
        {**brokers.result, "partitions": [{**brokers.partition, "leader": 3}]},
    )
    audit_partition(work[0], sink)
    assert sink.findings == []


@pytest.mark.parametrize("short", [1, 3], ids=["the leader", "a follower"])
def test_a_follower_or_leader_lacks_what_both_committed(brokers: Brokers, short: int) -> None:
    del brokers.logs[short][2]
    brokers.sends.clear()
    found = brokers.messages()
    assert len(found) == (1 if short == 3 else 2)
    holder = "broker 1 has" if short == 1 else "broker 3"
    assert all("differs at offset 2, below the high watermark 5" in one for one in found)
    assert f"{holder} no batch that begins there" in found[0]


def test_the_lower_of_two_high_watermarks_counts(brokers: Brokers) -> None:
    brokers.logs[1][4] = batch(4, 0, value(77))
    brokers.sends.pop()
    brokers.high_watermarks[1] = 4
    assert brokers.found() == []


def test_below_a_log_start_nothing_is_compared(brokers: Brokers) -> None:
    for short, other in ((1, 3), (3, 1)):
        again = Brokers(brokers.folder / str(short))
        del again.logs[short][:2]
        again.logs[other][1] = batch(1, 0, value(78))
        again.logs[2] = again.logs[short]
        again.sends.clear()
        assert again.found() == []


def test_cleaned_replicas_are_not_compared(brokers: Brokers) -> None:
    brokers.logs[2][1] = batch(1, 0, value(78))
    brokers.partition["compacted"] = True
    assert brokers.found() == []


def test_replicas_equal_limits_the_differences_per_partition(brokers: Brokers) -> None:
    brokers.sends.clear()
    for node in (1, 2, 3):
        brokers.logs[node] = [batch(i, 0, value(i + (100 if node == 3 else 0))) for i in range(30)]
        brokers.high_watermarks[node] = 30
    assert len(brokers.messages()) == 10


# --- replica-damage -------------------------------------------------------------------------------


def test_bytes_between_batches(brokers: Brokers) -> None:
    brokers.logs[2].insert(2, b"no batch at all, " * 8)
    (found,) = brokers.messages()
    assert found.startswith("replica-damage: broker 2: 136 bytes from position")


def test_a_cut_batch_inside_a_log(brokers: Brokers) -> None:
    brokers.logs[2][2] = brokers.logs[2][2][:-4]
    brokers.rolled[2] = 3
    assert brokers.found() == ["replica-damage", "replicas-equal"]


# --- leader-epochs --------------------------------------------------------------------------------


def epochs(*entries: tuple[int, int]) -> str:
    return "\n".join(["0", str(len(entries)), *(f"{e} {start}" for e, start in entries), ""])


def grown(brokers: Brokers, *of_batches: int) -> None:
    """Give every replica batches of these leader epochs, with matching checkpoints."""
    brokers.led(*of_batches)
    first: dict[int, int] = {}
    for at, epoch in enumerate(of_batches):
        first.setdefault(epoch, at)
    for node in brokers.logs:
        brokers.logs[node] = [batch(at, epoch) for at, epoch in enumerate(of_batches)]
        brokers.epochs[node] = epochs(*first.items())


def test_leader_epoch_checkpoints_equal_to_the_logs_have_no_findings(brokers: Brokers) -> None:
    grown(brokers, 0, 2, 2, 5, 6)
    assert brokers.found() == []


def test_a_leader_epoch_that_goes_back_in_a_log(brokers: Brokers) -> None:
    grown(brokers, 0, 2, 2, 2, 2)
    for node in (1, 2, 3):
        brokers.logs[node][3] = batch(3, 0)
    found = brokers.messages()
    assert found[0] == (
        "leader-epochs: the leader epoch goes back from 2 to 0 in the log of broker 1"
    )
    assert len(found) == 3


def test_a_batch_of_an_epoch_without_leader(brokers: Brokers) -> None:
    grown(brokers, 0, 0, 3, 3, 4)
    brokers.result["leadership"][2][5] = -1  # epoch 3
    brokers.result["leadership"][3][5] = -1
    found = brokers.messages()
    assert len(found) == 3
    assert "a batch of leader epoch 3, in which the partition had no leader" in found[0]


def test_leader_epochs_uses_elections_without_a_leadership_row(brokers: Brokers) -> None:
    grown(brokers, 0, 0, 3, 3, 4)
    brokers.result["leadership"][2:4] = []
    election = {
        **{"topic": "t", "partition": 0, "kind": "isr"},
        **{"leader_epoch": 3, "to_leader": -1},
    }
    brokers.result["elections"] = [election]
    assert brokers.found() == ["leader-epochs"]


def test_after_a_hole_in_the_metadata_leader_epochs_are_not_known(brokers: Brokers) -> None:
    grown(brokers, 0, 0, 3, 3, 4)
    brokers.result["leadership"][2][5] = -1
    brokers.partition["leader_epoch"] = None
    assert brokers.found() == []


@pytest.mark.parametrize("running", [False, True])
def test_a_checkpoint_that_lacks_an_epoch_between_others(brokers: Brokers, running: bool) -> None:
    grown(brokers, 0, 2, 2, 5, 6)
    brokers.epochs[2] = epochs((0, 0), (5, 3), (6, 4))
    if running:
        brokers.at_rest.clear()
    assert brokers.messages() == [
        "leader-epochs: the leader epoch checkpoint of broker 2 lacks epoch 2, which begins at "
        "offset 1"
    ]


@pytest.mark.parametrize("running", [False, True])
def test_a_checkpoint_that_lets_an_epoch_begin_elsewhere(brokers: Brokers, running: bool) -> None:
    for entry in ((2, 2), (6, 5)):
        again = Brokers(brokers.folder / str(entry[0]))
        grown(again, 0, 2, 2, 5, 6)
        again.epochs[3] = epochs(*({0: 0, 2: 1, 5: 3, 6: 4} | dict([entry])).items())
        if running:
            again.at_rest.clear()
        (found,) = again.messages()
        assert f"of broker 3, epoch {entry[0]} begins at offset {entry[1]}" in found


def test_a_checkpoint_that_lacks_the_first_epoch(brokers: Brokers) -> None:
    grown(brokers, 0, 2, 2, 5, 6)
    brokers.epochs[2] = epochs((2, 1), (5, 3), (6, 4))
    (found,) = brokers.messages()
    assert found.endswith("broker 2 lacks epoch 0, which begins at offset 0")


def test_batches_without_leader_epoch_are_in_no_checkpoint(brokers: Brokers) -> None:
    grown(brokers, -1, -1, 0, 0, 3)
    for node in (1, 2, 3):
        brokers.epochs[node] = epochs((0, 2), (3, 4))
    assert brokers.found() == []


@pytest.mark.parametrize("log_start", [1, 2])
@pytest.mark.parametrize("running", [False, True])
def test_a_log_that_began_later_once(brokers: Brokers, running: bool, log_start: int) -> None:
    """Deleted records stay until their whole segment is removed; the checkpoint drops their epochs
    at once."""
    grown(brokers, 0, 2, 2, 5, 6)
    brokers.log_starts = dict.fromkeys((1, 2, 3), log_start)
    for node in (1, 2, 3):
        brokers.epochs[node] = epochs((2, log_start), (5, 3), (6, 4))
    if running:  # the broker checkpoints the log start later
        brokers.at_rest.clear()
        brokers.log_starts.clear()
    assert brokers.found() == []


def test_a_cleaned_log_may_lack_the_first_batch_of_an_epoch(brokers: Brokers) -> None:
    grown(brokers, 0, 2, 2, 5, 6)
    brokers.partition["compacted"] = True
    brokers.sends.clear()
    for node in (1, 2, 3):
        del brokers.logs[node][1]
    assert brokers.found() == []


def test_a_log_without_checkpoint_of_its_epochs(brokers: Brokers) -> None:
    """Kafka writes it with the first epoch, and rebuilds it from the log if it is missing."""
    brokers.epochs[2] = ""
    work = brokers.work()
    (brokers.folder / "broker-2" / "t-0" / "leader-epoch-checkpoint").unlink()
    without = work[0].replicas[1]._replace(epochs=None)
    replicas = (work[0].replicas[0], without, work[0].replicas[2])
    sink = Sink()
    audit_partition(work[0]._replace(replicas=replicas), sink)
    assert sink.findings == []
    assert [replica.epochs for replica in find_replicas([brokers.folder])][1] is None


def test_epochs_of_deleted_segments_may_be_left_in_a_checkpoint(brokers: Brokers) -> None:
    grown(brokers, 0, 2, 2, 5, 6)
    brokers.sends.clear()
    for node in (1, 2, 3):
        del brokers.logs[node][:2]
    assert brokers.found() == []


# --- copies of directories that were written to ---------------------------------------------------


def test_the_end_of_what_a_running_broker_wrote_down_may_be_behind(brokers: Brokers) -> None:
    """Log, checkpoints and metadata are copied one after the other."""
    grown(brokers, 0, 2, 2, 5, 6)
    brokers.at_rest.clear()
    brokers.logs[2] = brokers.logs[2][:3]  # before its high watermark was
    brokers.logs[3][4] = brokers.logs[3][4][:-4]  # in the middle of an append
    brokers.epochs[1] = epochs((0, 0), (2, 1))
    brokers.epochs[3] = epochs((0, 0), (2, 1), (4, 3))  # 4 was truncated, 5 is not written yet
    brokers.led(0, 2, 5)  # the metadata was copied first
    assert brokers.found() == []


def test_find_replicas_skips_files_deleted_during_the_listing(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.work()
    (brokers.folder / "broker-1" / "t-0" / f"{9:020d}.log").symlink_to("/nowhere")
    assert [len(replica.segments) for replica in find_replicas([brokers.folder])] == [1, 1, 1]

    def listed(folder: Path) -> MetadataLog:
        if "broker-2" in str(folder):
            raise FileNotFoundError(folder)
        return read_listing(folder)

    monkeypatch.setattr(files, "read_listing", listed)
    assert [replica.broker for replica in find_replicas([brokers.folder])] == [1, 3]


def test_a_segment_that_is_deleted_after_it_was_listed(brokers: Brokers) -> None:
    brokers.at_rest.clear()
    brokers.rolled = dict.fromkeys((1, 2, 3), 2)
    (work,) = brokers.work()
    place = brokers.folder / "broker-2" / "t-0"
    (place / f"{0:020d}.log").unlink()
    sink = Sink()
    audit_partition(work, sink)
    assert sink.findings == []
    shutil.rmtree(place)
    with pytest.raises(FileNotFoundError):  # a folder that no task can reach
        audit_partition(work, sink)


def test_replicas_equal_compares_committed_offsets_of_running_brokers(brokers: Brokers) -> None:
    brokers.at_rest.clear()
    brokers.logs[2][1] = batch(1, 0, value(88))
    del brokers.logs[3][2]
    found = brokers.messages()
    assert [one.split(",")[0] for one in found] == [
        "replicas-equal: t-0 differs at offset 1",
        "replicas-equal: t-0 differs at offset 2",
    ]


# --- acknowledged ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compacted", [False, True])
def test_an_acknowledged_record_at_another_offset(brokers: Brokers, compacted: bool) -> None:
    brokers.sends[1:] = [send(4, 2)]
    brokers.partition["compacted"] = compacted
    (found,) = brokers.messages()
    assert found == (
        "acknowledged-lost: a record of client 1 was acknowledged at offset 2 of t-0, but in the "
        "log of broker 1 it is at offset 4 instead"
    )


def test_an_acknowledged_record_beyond_the_end(brokers: Brokers) -> None:
    brokers.sends.append(send(5, 9))
    (found,) = brokers.messages()
    assert found.endswith("the log ends at 5")


@pytest.mark.parametrize("offset", [0, 3])
def test_something_else_at_an_acknowledged_offset(brokers: Brokers, offset: int) -> None:
    brokers.sends[offset] = send(66, offset, offset)
    (found,) = brokers.messages()
    assert found.endswith("in the log of broker 1 that offset has other content")


def test_a_cleaned_log_may_lack_an_acknowledged_record(brokers: Brokers) -> None:
    brokers.sends[3] = send(66, 3, 3)
    brokers.partition["compacted"] = True
    assert brokers.found() == []


def test_acknowledged_records_below_every_log_start_are_not_lost(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        del brokers.logs[node][:2]
    assert brokers.found() == []


def test_the_leaders_log_is_what_clients_read(brokers: Brokers) -> None:
    brokers.partition["leader"] = 3
    brokers.logs[3].pop()
    brokers.high_watermarks[3] = 4
    assert brokers.messages()[0].endswith("in the log of broker 3 the log ends at 4")


def test_without_leader_the_log_that_would_be_elected_is_read(brokers: Brokers) -> None:
    brokers.partition["leader"] = -1
    for node in (1, 2):
        brokers.logs[node].pop()
        brokers.high_watermarks[node] = 4
    assert brokers.found() == []


def test_lost_record_findings_are_limited_to_one_hundred(brokers: Brokers) -> None:
    brokers.sends = [send(i, i) for i in range(300)]
    assert len(brokers.messages()) == 100


def test_one_offset_for_two_records_of_a_client(brokers: Brokers) -> None:
    brokers.sends = [send(0, 0), send(1, 1), send(0, 1, 2)]
    found = brokers.found()
    assert found == ["acknowledged-lost", "acknowledged-order"]


def test_clients_have_an_order_each(brokers: Brokers) -> None:
    other = send(4, 0, 5)._replace(process=2, value=value(0))
    brokers.sends = [*(send(i, i) for i in range(1, 5)), other]
    assert brokers.found() == []


# --- which replicas -------------------------------------------------------------------------------


def test_a_copy_that_the_assignment_no_longer_names(brokers: Brokers) -> None:
    brokers.logs[3] = [batch(0, 0, value(99))]
    brokers.partition["replicas"] = [1, 2]
    assert brokers.found() == []


def test_a_folder_of_an_older_topic_of_that_name(brokers: Brokers) -> None:
    brokers.logs[3] = [batch(0, 0, value(99))]
    brokers.work()
    old = brokers.folder / "broker-3" / "t-0" / "partition.metadata"
    old.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    (work,) = plan_partitions(find_replicas([brokers.folder]), {}, brokers.result)
    assert [replica.broker for replica in work.replicas] == [1, 2]


@pytest.mark.parametrize("padding", ["=", "=="])
def test_replica_whose_topic_id_is_padded_is_audited(brokers: Brokers, padding: str) -> None:
    """Both servers read a partition.metadata with padding, which other programs write."""
    brokers.logs[3] = [batch(0, 0, value(99))]
    brokers.work()
    file = brokers.folder / "broker-3" / "t-0" / "partition.metadata"
    file.write_text(file.read_text().rstrip("\n") + padding + "\n")
    (work,) = plan_partitions(find_replicas([brokers.folder]), {}, brokers.result)
    assert [replica.broker for replica in work.replicas] == [1, 2, 3]


# --- each check at the first, a middle and the last committed batch -----------------------------

EDGES = pytest.mark.parametrize("at", [0, 2, 4], ids=["first", "middle", "last"])
"""Replicas of five batches, all of them committed (class 10 of the planted bugs)."""


def offsets(brokers: Brokers) -> list[tuple[str, int]]:
    """Return check and offset of each finding."""
    sink = Sink()
    for one in brokers.work():
        audit_partition(one, sink)
    return [(finding.check, finding.offset) for finding in sink.findings]


@EDGES
@pytest.mark.parametrize("node", [1, 2, 3])
def test_replica_with_another_batch_is_found_at_that_batch(
    brokers: Brokers, at: int, node: int
) -> None:
    brokers.sends.clear()
    brokers.logs[node][at] = batch(at, 0, value(77))
    others = 2 if node == 1 else 1  # broker 1 leads: the others are compared with it
    assert offsets(brokers) == [("replicas-equal", at)] * others


@EDGES
def test_replica_without_a_batch_is_found_at_that_batch(brokers: Brokers, at: int) -> None:
    brokers.sends.clear()
    del brokers.logs[3][at]
    found = {one for one in offsets(brokers) if one[0] == "replicas-equal"}
    # Without its first batch a log only begins later, as after a deletion.
    assert found == {0: set(), 2: {("replicas-equal", 2)}, 4: {("replicas-equal", 4)}}[at]


@pytest.mark.parametrize("late", [1, 3], ids=["leader", "follower"])
@pytest.mark.parametrize("start", [1, 2, 4])
def test_first_batch_that_both_replicas_have_is_compared(
    brokers: Brokers, late: int, start: int
) -> None:
    """One log begins later: the first common batch is the first one of that log."""
    brokers.sends.clear()
    del brokers.logs[late][:start]
    brokers.log_starts[late] = start
    brokers.logs[3][start - (start if late == 3 else 0)] = batch(start, 0, value(77))
    brokers.logs[2] = list(brokers.logs[1])
    if late == 1:
        brokers.log_starts[2] = start
    found = [one for one in offsets(brokers) if one[0] == "replicas-equal"]
    assert found == [("replicas-equal", start)]


@EDGES
@pytest.mark.parametrize("lower", [1, 3], ids=["leader", "follower"])
def test_batch_at_the_lower_high_watermark_is_not_committed(
    brokers: Brokers, at: int, lower: int
) -> None:
    brokers.sends.clear()
    brokers.logs[3][at] = batch(at, 0, value(77))
    brokers.high_watermarks[lower] = at
    assert offsets(brokers) == []
    again = Brokers(brokers.folder / "again")
    again.sends.clear()
    again.logs[3][at] = batch(at, 0, value(77))
    again.high_watermarks[lower] = at + 1
    assert offsets(again) == [("replicas-equal", at)]


@EDGES
@pytest.mark.parametrize("node", [1, 3])
def test_flipped_bit_is_found_in_any_batch(brokers: Brokers, at: int, node: int) -> None:
    damaged = bytearray(brokers.logs[node][at])
    damaged[-3] ^= 1
    brokers.logs[node][at] = bytes(damaged)
    assert ("replica-damage", at) in offsets(brokers)


@EDGES
def test_unknown_epoch_is_found_in_any_batch(brokers: Brokers, at: int) -> None:
    brokers.sends.clear()
    for node in (1, 2, 3):
        for later in range(at, 5):
            brokers.logs[node][later] = batch(later, 7)
        brokers.epochs[node] = f"0\n2\n0 0\n7 {at}\n" if at else "0\n1\n7 0\n"
    assert offsets(brokers) == [("leader-epochs", at)] * 3


@EDGES
def test_acknowledged_record_is_missed_in_any_batch(brokers: Brokers, at: int) -> None:
    for node in (1, 2, 3):
        brokers.logs[node][at] = batch(at, 0, value(99))
    assert offsets(brokers) == [("acknowledged-lost", at)]


@EDGES
def test_record_twice_is_found_in_any_batch(brokers: Brokers, at: int) -> None:
    for node in (1, 2, 3):
        brokers.logs[node].append(batch(5, 0, value(at)))
        brokers.high_watermarks[node] = 6
    assert offsets(brokers) == [("acknowledged-twice", 5)]


@pytest.mark.parametrize("at", [0, 1, 3], ids=["first", "middle", "last"])
def test_two_records_in_another_order_are_found_anywhere(brokers: Brokers, at: int) -> None:
    brokers.sends[at : at + 2] = [send(at, at, at + 1), send(at + 1, at + 1, at)]
    assert offsets(brokers) == [("acknowledged-order", at)]


@EDGES
def test_record_inside_a_batch_of_several_is_missed(brokers: Brokers, at: int) -> None:
    """The first, a middle and the last record of a batch."""
    ids = [value(10 + number) for number in range(5)]
    brokers.sends = [send(10 + number, number) for number in range(5)]
    ids[at] = value(99)
    for node in (1, 2, 3):
        brokers.logs[node] = [batch(0, 0, *ids)]
    assert offsets(brokers) == [("acknowledged-lost", at)]
