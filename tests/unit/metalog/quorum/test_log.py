"""The metadata log on disk: bounds, voters, snapshots, and its state after a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metalog.quorum.batches import (
    build_kraft_batch,
    build_metadata_batch,
    kraft_version_record,
    leader_change,
    read_batches,
    voters_record,
)
from metalog.quorum.core.messages import OffsetAndEpoch, QuorumState
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterSet
from metalog.quorum.log import DIRECTORY_NAME, MetadataLog, MetadataLogConfig
from metalog.quorum.snapshots import snapshot_name, snapshot_parts, write_snapshot
from metalog.quorum.state_file import format_quorum_state
from protocol.batch.header import CONTROL_BIT, iter_batches
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.ids import METADATA_TOPIC_ID
from protocol.metadata import NoOpRecord, TopicRecord
from runtime.clock import ManualClock
from runtime.errors import StartupRefused
from storage.files import LossyFiles, MemoryFiles
from storage.log.errors import CorruptLog
from testkit.records.batches import altered

FOLDER = f"/data/{DIRECTORY_NAME}"
SMALL = MetadataLogConfig(segment_bytes=1024, retention_bytes=2000, retention_ms=-1)
STATIC = VoterSet([Voter(ReplicaKey(1))])
DYNAMIC = VoterSet([Voter(ReplicaKey(1, b"d" * 16)), Voter(ReplicaKey(2, b"e" * 16))])


def open_log(
    files: MemoryFiles, config: MetadataLogConfig = SMALL, voters: VoterSet = STATIC
) -> MetadataLog:
    return MetadataLog.open(files, "/data", ManualClock(), config, voters)


def fill(log: MetadataLog, count: int, epoch: int = 1) -> None:
    for _ in range(count):
        log.append_records([(NoOpRecord(), 0)], epoch=epoch, timestamp_ms=5)


def add_snapshot(
    log: MetadataLog, offset: int, epoch: int = 1, voters: VoterSet | None = None
) -> OffsetAndEpoch:
    snapshot_id = OffsetAndEpoch(offset, epoch)
    parts = snapshot_parts(
        snapshot_id,
        [],
        last_contained_timestamp_ms=5,
        timestamp_ms=5,
        voters=voters,
        kraft_version=int(voters is not None),
    )
    write_snapshot(log.files, log.snapshots.path(snapshot_id), parts)
    log.snapshots.add(snapshot_id)
    return snapshot_id


def test_an_empty_log() -> None:
    log = open_log(MemoryFiles())
    assert (log.start_offset, log.end_offset, log.last_epoch, log.start_epoch) == (0, 0, 0, 0)
    assert log.end_offset_for_epoch(5) == OffsetAndEpoch(0, 0)
    assert log.latest_snapshot is None and log.voters == STATIC
    assert log.files.read(f"{FOLDER}/partition.metadata").endswith(b"AAAAAAAAAAAAAAAAAAAAAQ")
    assert bytes(15) + b"\x01" == METADATA_TOPIC_ID


def test_records_come_back_with_offsets_and_epochs() -> None:
    files = MemoryFiles()
    log = open_log(files)
    batch = log.append_records(
        [(NoOpRecord(), 0), (TopicRecord(name="t"), 0)], epoch=3, timestamp_ms=9
    )
    assert (batch.base_offset, batch.last_offset, batch.epoch) == (0, 1, 3)
    log.close()
    log = open_log(files)
    assert list(read_batches(log.read(0, 4096))) == [batch]
    assert (log.end_offset, log.last_epoch) == (2, 3)


def test_epoch_ends() -> None:
    log = open_log(MemoryFiles())
    fill(log, 3, epoch=2)
    fill(log, 2, epoch=4)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(0, 0)
    assert log.end_offset_for_epoch(2) == OffsetAndEpoch(3, 2)
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(3, 2)
    assert log.end_offset_for_epoch(4) == OffsetAndEpoch(5, 4)
    assert log.end_offset_for_epoch(9) == OffsetAndEpoch(5, 4)


def test_too_large_a_batch_is_refused_whole() -> None:
    log = open_log(MemoryFiles(), MetadataLogConfig())
    records = [(TopicRecord(name="x" * 30_000), 0)] * 300
    with pytest.raises(ApiError) as refused:
        log.append_records(records, epoch=1, timestamp_ms=0)
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0


def test_voters_follow_the_log_and_its_truncation() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 2)
    records = [leader_change(1, (1,), (1,)), kraft_version_record(1), voters_record(DYNAMIC)]
    _, changed = log.append_control(records, epoch=1, timestamp_ms=5)
    assert changed and log.voters == DYNAMIC and log.kraft_version == 1
    assert log.voter_history.voters_at(4) == STATIC and log.voter_history.voters_at(5) == DYNAMIC
    log.close()
    log = open_log(files)
    assert log.voters == DYNAMIC and log.voter_history.in_log
    assert log.truncate_to(2)
    assert log.voters == STATIC and log.kraft_version == 0


def test_fetched_batches_bring_voters_too() -> None:
    log = open_log(MemoryFiles())
    data = build_metadata_batch([(NoOpRecord(), 0)], 0, epoch=1, timestamp_ms=1)
    assert not log.append_fetched(data)
    data = build_kraft_batch([voters_record(DYNAMIC)], 1, epoch=2, timestamp_ms=1)
    assert log.append_fetched(data)
    assert log.voters == DYNAMIC and log.last_epoch == 2


def test_voters_of_the_first_snapshot_are_not_in_the_log() -> None:
    files = MemoryFiles()
    log = open_log(files, voters=VoterSet())
    add_snapshot(log, 0, 0, DYNAMIC)
    log.close()
    log = open_log(files, voters=VoterSet())
    assert log.voters == DYNAMIC and log.kraft_version == 1 and not log.voter_history.in_log


def test_voters_of_a_later_snapshot_are() -> None:
    files = MemoryFiles()
    log = open_log(files, voters=VoterSet())
    fill(log, 4)
    add_snapshot(log, 4, voters=DYNAMIC)
    log.close()
    log = open_log(files, voters=VoterSet())
    assert log.voters == DYNAMIC and log.voter_history.in_log


def test_cleaning_drops_old_snapshots_and_the_log_below_the_next() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 60)
    ids = [add_snapshot(log, offset) for offset in (10, 40, 50)]
    log.update_high_watermark(60)
    assert log.clean(0) == [ids[0], ids[1]]
    assert log.start_offset == 50 and log.start_epoch == 1
    assert log.snapshots.ids == [ids[2]]
    assert log.clean(0) == []
    log.close()
    log = open_log(files)
    assert (log.start_offset, log.end_offset) == (50, 60)
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(50, 1)


def test_retention_by_time_uses_the_newest_record_of_a_snapshot() -> None:
    log = open_log(MemoryFiles(), MetadataLogConfig(retention_bytes=-1, retention_ms=100))
    fill(log, 10)
    ids = [add_snapshot(log, offset) for offset in (5, 8)]
    log.update_high_watermark(10)
    assert log.clean(now_ms=105) == []
    assert log.clean(now_ms=106) == [ids[0]]


def test_log_that_ends_before_snapshot_restarts_at_its_end() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 10)
    add_snapshot(log, 100, epoch=7)
    log.close()
    log = open_log(files)
    assert (log.start_offset, log.end_offset) == (100, 100)
    assert (log.start_epoch, log.last_epoch) == (7, 7)
    fill(log, 1, epoch=8)
    assert log.end_offset_for_epoch(7) == OffsetAndEpoch(100, 7)


def test_installing_a_snapshot_replaces_the_log() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 10)
    snapshot_id = add_snapshot(log, 30, epoch=3, voters=DYNAMIC)
    log.install_snapshot(snapshot_id)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (30, 30, 3)
    assert log.voters == DYNAMIC


def test_snapshots_below_the_start_go_at_the_next_start() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 60)
    old, new = add_snapshot(log, 10), add_snapshot(log, 50)
    log.update_high_watermark(60)
    data = files.read(log.snapshots.path(old))
    log.clean(0)
    files.write_atomic(log.snapshots.path(old), data)
    log.close()
    log = open_log(files)
    assert log.snapshots.ids == [new]
    assert not files.exists(f"{FOLDER}/{snapshot_name(old)}")


def test_a_log_without_its_beginning_and_without_a_snapshot_is_refused() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 60)
    new = add_snapshot(log, 50)
    log.update_high_watermark(60)
    add_snapshot(log, 55)
    log.clean(0)
    log.close()
    for snapshot_id in (new, OffsetAndEpoch(55, 1)):
        if files.exists(f"{FOLDER}/{snapshot_name(snapshot_id)}"):
            files.unlink(f"{FOLDER}/{snapshot_name(snapshot_id)}")
    with pytest.raises(StartupRefused, match="no snapshot"):
        open_log(files)


def test_parts_of_snapshots() -> None:
    log = open_log(MemoryFiles())
    fill(log, 4)
    snapshot_id = add_snapshot(log, 4)
    size = log.snapshots.size(snapshot_id)
    whole = log.files.read(log.snapshots.path(snapshot_id))
    assert size == len(whole)
    assert log.snapshots.read(snapshot_id, 10, 20) == whole[10:30]
    assert log.snapshots.size(OffsetAndEpoch(3, 1)) is None


def test_a_vote_that_was_read_survives_a_power_cut() -> None:
    """The process that wrote the vote was killed before the file name was durable.

    Using the vote and then losing it would allow a second vote in the same epoch.
    """
    backing = MemoryFiles()
    backing.mkdirs("/data")
    files = LossyFiles(backing)
    log = MetadataLog.open(files, "/data", ManualClock(), SMALL, STATIC)
    state = QuorumState(epoch=5, voted=ReplicaKey(2))

    def killed(kind: str, path: str) -> None:
        if kind == "fsync_dir":
            raise OSError("killed")

    files.on_op = killed
    with pytest.raises(OSError, match="killed"):
        files.write_atomic(
            log.state_file.path, format_quorum_state(state, log.kraft_version, log.voters.ids)
        )
    files.on_op = None
    assert MetadataLog.open(files, "/data", ManualClock(), SMALL, STATIC).state_file.read() == state
    files.crash()
    again = MetadataLog.open(LossyFiles(backing), "/data", ManualClock(), SMALL, STATIC)
    assert again.state_file.read() == state


@pytest.mark.parametrize("fault", ["crc", "offset", "magic", "control"])
def test_fetched_batches_are_validated(fault: str) -> None:
    log = open_log(MemoryFiles())
    bad = bytearray(build_metadata_batch([(NoOpRecord(), 0)], 0, epoch=1, timestamp_ms=5))
    log.check_fetched(bad)
    if fault == "crc":
        bad[-1] ^= 1
    elif fault == "offset":
        fill(log, 3)
    elif fault == "magic":
        bad[16] = 1
    else:
        bad = bytearray(altered(bytes(bad), attributes=CONTROL_BIT))
    with pytest.raises(ProtocolError):
        log.check_fetched(bytes(bad))


# Damaged snapshots -----------------------------------------------------------------------------


def damage_newest(log: MetadataLog, how: str) -> str:
    path = log.snapshots.path(log.snapshots.ids[-1])
    data = bytearray(log.files.read(path))
    if how == "flipped":
        data[-3] ^= 1
    data = {"empty": bytearray(), "half": data[: len(data) // 2]}.get(how, data)
    log.files.write_atomic(path, bytes(data))
    return path


@pytest.mark.parametrize("how", ["empty", "half", "flipped"])
@pytest.mark.parametrize("older", [False, True])
def test_damaged_snapshot_is_renamed_if_log_has_its_records(how: str, older: bool) -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 20)
    kept = [add_snapshot(log, 5)] if older else []
    add_snapshot(log, 10)
    path = damage_newest(log, how)
    log.close()
    again = open_log(files)
    assert (list(again.snapshots.ids), again.start_offset, again.end_offset) == (kept, 0, 20)
    (problem,) = again.problems
    assert path in problem
    assert not files.exists(path) and files.exists(f"{path}.damaged")
    again.close()
    assert open_log(files).problems == []


def test_a_damaged_snapshot_with_an_older_one_where_the_log_begins() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.install_snapshot(add_snapshot(log, 30))
    fill(log, 20)
    add_snapshot(log, 40)
    damage_newest(log, "empty")
    log.close()
    again = open_log(files)
    assert [one.offset for one in again.snapshots.ids] == [30]
    assert (again.start_offset, again.end_offset) == (30, 50)


def begun_by_a_snapshot(log: MetadataLog) -> None:
    log.install_snapshot(add_snapshot(log, 30))
    fill(log, 5)


def behind_its_snapshot(log: MetadataLog) -> None:
    fill(log, 5)
    add_snapshot(log, 30)


def with_its_first_voters(log: MetadataLog) -> None:
    fill(log, 5)
    add_snapshot(log, 0, epoch=0, voters=DYNAMIC)


@pytest.mark.parametrize(
    ("written", "how", "reason"),
    [
        (begun_by_a_snapshot, "empty", "begins at offset 30"),
        # This voter acknowledged the records that the log lacks.
        (behind_its_snapshot, "half", "ends at offset 5, below the end"),
        (with_its_first_voters, "empty", "the first voters"),
    ],
)
def test_damaged_snapshot_with_records_that_the_log_lacks_refuses_the_start(
    written: Callable[[MetadataLog], None], how: str, reason: str
) -> None:
    """F19: the start must not continue without records that this voter had."""
    files = MemoryFiles()
    log = open_log(files)
    written(log)
    path = damage_newest(log, how)
    log.close()
    with pytest.raises(StartupRefused, match=reason) as refused:
        open_log(files)
    assert path in str(refused.value)
    assert files.exists(path)


def test_a_damaged_old_snapshot_does_not_stop_the_cleaning() -> None:
    files = MemoryFiles(now_ms=lambda: 7)
    log = open_log(files, SMALL._replace(retention_bytes=-1, retention_ms=1000))
    fill(log, 20)
    log.update_high_watermark(20)
    damaged = add_snapshot(log, 5)
    damage_newest(log, "empty")
    add_snapshot(log, 10)
    assert log.clean(1007) == []
    assert log.clean(1008) == [damaged]


def rot(files: MemoryFiles | LossyFiles, base: int, position: int) -> str:
    """Flip a bit in the segment that begins at `base`."""
    path = f"{FOLDER}/{base:020}.log"
    file = files.open(path)
    file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)
    return path


def with_a_hole(*gone: int, voters: VoterSet = STATIC) -> MemoryFiles:
    """Return the files of a log of five batches, one record each, without those at offsets
    `gone`."""
    files = MemoryFiles()
    log = open_log(files, MetadataLogConfig(), voters)
    fill(log, 5)
    log.close()
    path = f"{FOLDER}/{0:020}.log"
    whole = files.read(path)
    kept = [
        whole[at : at + h.size_bytes] for h, at in iter_batches(whole) if h.base_offset not in gone
    ]
    files.write_atomic(path, b"".join(kept))
    for name in files.listdir(FOLDER):
        if not name.endswith((".log", ".metadata")):
            files.unlink(f"{FOLDER}/{name}")
    return files


@pytest.mark.parametrize(
    ("gone", "named"), [((0,), "0 to 0"), ((2, 3), "2 to 3"), ((0, 2), "0 to 0")]
)
def test_only_voter_serves_a_log_with_a_hole_and_names_it(
    gone: tuple[int, ...], named: str
) -> None:
    """Kafka 4.3.1 starts on such a log: hand-written directories begin at offset 1."""
    log = open_log(with_a_hole(*gone), MetadataLogConfig())
    log.update_high_watermark(5)
    (problem,) = log.problems
    assert f"{FOLDER}/{0:020}.log has no batch for offsets {named}" in problem
    offset, found = 0, []
    while offset < log.end_offset:
        batch = next(log.read_committed(offset, 1))
        found.append(batch.base_offset)
        offset = batch.last_offset + 1
    assert found == [at for at in range(5) if at not in gone]


def test_log_knows_the_holes_that_it_was_opened_or_fetched_with() -> None:
    """Delivery stops at any other (M14); a hole goes with the batch behind it."""
    log = open_log(with_a_hole(0, 2, 3), MetadataLogConfig())
    assert log.holes.has(0, 1) and log.holes.has(2, 4)
    assert not log.holes.has(1, 2) and not log.holes.has(2, 3)
    data = with_a_hole(0, 2, 3).read(f"{FOLDER}/{0:020}.log")
    follower = open_log(MemoryFiles(), MetadataLogConfig())
    assert not follower.holes.has(0, 1)
    follower.append_fetched(data)
    assert follower.holes.has(0, 1) and follower.holes.has(2, 4)
    follower.truncate_to(4)
    assert follower.holes.has(0, 1) and not follower.holes.has(2, 4)


def test_one_of_several_voters_with_a_hole_is_refused() -> None:
    """M6: the other voters may have the records that this one acknowledged and has lost."""
    voters = VoterSet([Voter(ReplicaKey(1)), Voter(ReplicaKey(2))])
    files = with_a_hole(2, voters=voters)
    with pytest.raises(StartupRefused, match="no batch for offsets 2 to 2: .*restore the files"):
        open_log(files, MetadataLogConfig(), voters)


def test_observer_with_a_hole_fetches_again_from_there() -> None:
    """A broker has acknowledged nothing: the controllers have the records."""
    again = MetadataLog.open(
        with_a_hole(2), "/data", ManualClock(), MetadataLogConfig(), STATIC, votes=False
    )
    assert again.end_offset == 2
    assert "fetched again" in again.problems[0]


def second_batch(files: MemoryFiles, base: int) -> int:
    """Return the position of the second batch in a segment."""
    found = list(iter_batches(files.read(f"{FOLDER}/{base:020}.log")))
    return found[1][1]


@pytest.mark.parametrize("byte", [8, 16, 30, 65])
def test_a_voter_forgets_nothing_because_its_disk_has_not_kept_it(byte: int) -> None:
    """M6, F20: without acknowledged records it would vote for candidates that lack them, too.

    The error names the file, the position and the offset.
    """
    files = MemoryFiles()
    log = open_log(files, MetadataLogConfig())
    fill(log, 5)
    log.close()
    at = second_batch(files, 0)
    path = rot(files, 0, at + byte)
    before = files.read(path)
    with pytest.raises(StartupRefused, match=f"{path} at position {at}, offset 1: .*restore the"):
        open_log(files, MetadataLogConfig())
    assert files.read(path) == before, "an operator may still repair it"
    rot(files, 0, at + byte)
    assert open_log(files, MetadataLogConfig()).end_offset == 5


def test_an_observer_gets_it_again() -> None:
    """A broker has acknowledged nothing of it: its log ends before, and the leader has the rest."""
    files = MemoryFiles()
    log = open_log(files, MetadataLogConfig())
    fill(log, 5)
    log.close()
    rot(files, 0, second_batch(files, 0) + 65)
    again = MetadataLog.open(
        files, "/data", ManualClock(), MetadataLogConfig(), STATIC, votes=False
    )
    assert again.end_offset == 1


def test_incomplete_last_batch_is_truncated_for_a_voter() -> None:
    files = MemoryFiles()
    log = open_log(files, MetadataLogConfig())
    fill(log, 5)
    log.close()
    path = f"{FOLDER}/{0:020}.log"
    files.open(path).truncate(files.size(path) - 3)
    assert open_log(files, MetadataLogConfig()).end_offset == 4


@pytest.mark.parametrize("byte", [9, 16, 30, 65])
def test_damaged_batch_is_not_read(byte: int) -> None:
    """M5, F20: a damaged batch is neither replayed nor sent to a follower; the batches before it
    are.

    The error names the file and the offset.
    """
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 40)
    log.update_high_watermark(40)
    base = log._log.segments[1].base_offset
    path = rot(files, base, second_batch(files, base) + byte)
    assert [one.base_offset for one in read_batches(log.read(base - 1, 1))] == [base - 1]
    for read in (log.read, log.read_committed):
        with pytest.raises(CorruptLog, match=f"{path}, at offset {base + 1}: "):
            read(base + 1, 4096)


def test_a_cut_that_meets_what_the_disk_has_not_kept_names_file_and_offset() -> None:
    """Seed 157: a voter that has to truncate its log finds the position by the batches before
    it."""
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 40)
    base = log._log.segments[1].base_offset
    path = rot(files, base, second_batch(files, base) + 16)
    with pytest.raises(CorruptLog, match=f"{path}, at offset {base + 3}: .*disk lost data"):
        log.truncate_to(base + 3)
