"""Shell: `__cluster_metadata-0`: the metadata log in KRaft's layout, over a storage log.

Besides segments, the folder contains snapshots (`<end offset>-<epoch>.checkpoint`) and the
quorum-state file. The log starts at 0 or exactly at the end of a snapshot, and the latest snapshot
never ends beyond the log (M12). Opening the log restores this after a crash. Half-written snapshots
are removed. A log that ends before the latest snapshot (the crash came between installing one and
emptying the log) starts again at the snapshot's end.

A log of another program, or one that lost a batch, may lack offsets at its beginning or in the
middle. As in Kafka a sole voter serves the rest. One of several voters refuses to start, since the
others may have the missing batches, and an observer fetches again from there on.

A damaged newest snapshot is renamed if the log, alone or with an older snapshot, contains all that
it covered. Otherwise the node refuses to start.

The voter set is part of the log (KIP-853): it is in the last Voters record, committed or not, and
truncation reverts it. A snapshot begins with the voter set in force at its end.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from metalog.image.snapshot import VersionedRecord
from metalog.quorum.batches import (
    MAX_BATCH_BYTES,
    Batch,
    build_kraft_batch,
    build_metadata_batch,
    read_batches,
    read_control_batches,
    voter_set,
)
from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.core.voters import VoterSet
from metalog.quorum.log_holes import LogHoles
from metalog.quorum.snapshot_folder import SnapshotFolder
from metalog.quorum.snapshots import (
    DAMAGED_SUFFIX,
    FIRST_SNAPSHOT,
    SUFFIX,
    DamagedSnapshot,
    remove_leftovers,
    whole_snapshots,
)
from metalog.quorum.state_file import QuorumStateFile
from metalog.quorum.voter_history import VoterHistory
from protocol.batch.header import CorruptBatch, iter_batches, iter_checked
from protocol.control import VotersRecord
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.ids import METADATA_TOPIC_ID
from protocol.schema import Buffer, ControlRecord
from runtime.clock import Clock
from runtime.errors import StartupRefused
from storage.files.port import Files
from storage.log.append import AppendInfo
from storage.log.config import UNLIMITED, LogConfig
from storage.log.errors import CorruptLog, LogFailed
from storage.log.log import Log
from storage.log.producers import Origin

METADATA_TOPIC = "__cluster_metadata"
DIRECTORY_NAME = f"{METADATA_TOPIC}-0"
_SCAN_BYTES = 1 << 20
_LOG_SUFFIX = ".log"
REMEDY = (
    "a controller that lost acknowledged records must not vote: restore the files of "
    "its __cluster_metadata-0, or, if all other controllers are running and have "
    "caught up, start it with an empty directory"
)


class MetadataLogConfig(NamedTuple):
    """`metadata.log.*` and `metadata.max.retention.*`; -1 means without limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int = 100 << 20
    retention_ms: int = 7 * 24 * 3_600_000
    max_bytes_between_snapshots: int = 20 << 20
    max_snapshot_interval_ms: int = 3_600_000

    def storage(self, *, refuse_rot: bool = False) -> LogConfig:
        """Return the storage settings: segments are removed only when a snapshot covers them."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            max_message_bytes=MAX_BATCH_BYTES,
            retention_bytes=UNLIMITED,
            retention_ms=UNLIMITED,
            refuse_rot=refuse_rot,
        )


class MetadataLog:
    """The log, its snapshots and the quorum-state file. The core reads it as a `LogView`."""

    def __init__(
        self, files: Files, directory: str, log: Log, config: MetadataLogConfig, voters: VoterSet
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self._log = log
        self.snapshots = SnapshotFolder(files, directory)
        self.state_file = QuorumStateFile(files, directory)
        self.problems: list[str] = []
        """Problems found when the log was opened."""
        self.holes = LogHoles()
        self.voter_history = VoterHistory(voters)

    @classmethod
    def open(
        cls,
        files: Files,
        log_dir: str,
        clock: Clock,
        config: MetadataLogConfig,
        voters: VoterSet,
        *,
        votes: bool = True,
    ) -> MetadataLog:
        """Open or create the metadata log below `log_dir` and make its content durable.

        Args:
            voters: those of `controller.quorum.voters`; a set in the log or snapshot replaces them.
            votes: this node may be a voter, so it must not lose records that it may have
                acknowledged
                (M6). A log that the disk has corrupted is refused; an observer fetches it again.

        Raises:
            StartupRefused: the files cannot be those of a metadata log.
        """
        directory = posixpath.join(log_dir, DIRECTORY_NAME)
        files.mkdirs(directory)
        remove_leftovers(files, directory)
        snapshots, damaged = whole_snapshots(files, directory)
        latest = snapshots[-1] if snapshots else FIRST_SNAPSHOT
        try:
            log = Log.open(
                files,
                directory,
                config.storage(refuse_rot=votes),
                clock,
                recovery_point=latest.offset,
                log_start_offset=_start_offset(files, directory, snapshots, damaged),
                topic_id=METADATA_TOPIC_ID,
            )
        except CorruptLog as error:
            raise StartupRefused(f"cannot read the metadata log: {error}. {REMEDY}") from error
        if damaged:
            _require_covered(log, damaged)
            for problem in damaged:
                path = problem.path
                files.rename(path, path.removesuffix(SUFFIX) + DAMAGED_SUFFIX)
        opened = cls(files, directory, log, config, voters)
        opened.problems += [f"{one.why}; its records are in the log" for one in damaged]
        for snapshot_id in opened.snapshots.ids:
            if snapshot_id.offset < log.log_start_offset:
                opened.snapshots.remove(snapshot_id)  # left by a cleaning that was interrupted
        if log.log_end_offset < latest.offset:
            log.truncate_fully_and_start_at(latest.offset)
        opened._reload_voters()
        opened._judge_hole(votes=votes)
        log.update_high_watermark(latest.offset)
        log.durability.flush_blocking()
        # A killed process may have left directory entries that are not durable. A vote may be among
        # them, which must not be lost once it has been acted upon.
        files.fsync_dir(directory)
        return opened

    def close(self) -> None:
        self._log.close()

    # --- LogView ------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def start_epoch(self) -> int:
        start = self.start_offset
        return next((s.epoch for s in self.snapshots.ids if s.offset == start), 0)

    @property
    def last_epoch(self) -> int:
        return max(self._log.latest_epoch, self.start_epoch)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots.latest

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the end of the largest epoch not above `epoch`; the log start for one older than
        the log."""
        if epoch >= self.last_epoch:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        found_epoch, end_offset = self._log.history.end_offset_for(epoch)
        if found_epoch < 0 or end_offset <= self.start_offset:
            return OffsetAndEpoch(self.start_offset, self.start_epoch)
        return OffsetAndEpoch(end_offset, found_epoch)

    # --- the voter set ------------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        """The latest set, its record committed or not."""
        return self.voter_history.voters

    @property
    def voters_offset(self) -> int:
        """Offset of the record that contains `voters`; -1 if it is not in this log."""
        return self.voter_history.offset

    @property
    def kraft_version(self) -> int:
        return self.voter_history.kraft_version

    def _reload_voters(self) -> None:
        offset, latest = self.start_offset, self.latest_snapshot
        if latest is None:
            self.voter_history.begin_at(0, None, 0)
        else:
            snapshot = self.snapshots.open(latest)
            offset = latest.offset
            self.voter_history.begin_at(offset, snapshot.voters, snapshot.kraft_version)
        self.holes.clear()
        for data in self._scan(offset):
            offset = self.holes.note(data, offset)
            self.voter_history.note(data)

    def _judge_hole(self, *, votes: bool) -> None:
        """Handle the first hole in the offsets, see the module docstring. Raises StartupRefused."""
        if self.holes.first is None:
            return
        first, end = self.holes.first
        path = self._log.segments.holding(end)[0].log.path
        why = (
            f"{path} has no batch for offsets {first} to {end - 1}: the next batch begins at {end}"
        )
        if not votes:
            self._log.truncate_to(first)
            self._reload_voters()
            self.problems.append(f"{why}; the following records are fetched again")
        elif len(self.voters.ids) > 1:
            raise StartupRefused(f"{why}. {REMEDY}")
        else:
            self.problems.append(f"{why}; the missing records are lost, the others are served")

    def _scan(self, offset: int) -> Iterator[bytes]:
        while offset < self.end_offset:
            data = self.read(offset, _SCAN_BYTES)
            yield data
            offset = _end_of(data, offset)

    # --- records ------------------------------------------------------------------------------

    def append_records(
        self, records: Sequence[VersionedRecord], *, epoch: int, timestamp_ms: int
    ) -> Batch:
        """Append (record, version) pairs as one batch, as the leader. Returns: the batch.

        Nothing is appended if it raises.

        Raises:
            ApiError: RECORD_LIST_TOO_LARGE, the batch exceeds `MAX_BATCH_BYTES`.
            EncodeError: a version cannot carry its record.
            LogFailed: the disk failed.
        """
        data = build_metadata_batch(
            records, self.end_offset, epoch=epoch, timestamp_ms=timestamp_ms
        )
        if len(data) > MAX_BATCH_BYTES:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(records)} metadata records make a batch of {len(data)} bytes, "
                f"limit {MAX_BATCH_BYTES}",
            )
        info = self._append(data, epoch, timestamp_ms)
        return Batch(
            info.first_offset,
            info.last_offset,
            epoch,
            timestamp_ms,
            len(data),
            tuple(record for record, _ in records),
        )

    def append_control(
        self, records: Sequence[ControlRecord], *, epoch: int, timestamp_ms: int
    ) -> tuple[Batch, bool]:
        """Append one control batch as the leader. Returns: the batch, and whether the voters
        changed."""
        data = build_kraft_batch(records, self.end_offset, epoch=epoch, timestamp_ms=timestamp_ms)
        info = self._append(data, epoch, timestamp_ms)
        batch = Batch(
            info.first_offset,
            info.last_offset,
            epoch,
            timestamp_ms,
            len(data),
            control=tuple(records),
        )
        return batch, self.voter_history.note(data)

    def _append(self, data: bytes, epoch: int, timestamp_ms: int) -> AppendInfo:
        return self._log.append_as_leader(
            memoryview(bytearray(data)), epoch, timestamp_ms, Origin.RAFT_LEADER
        )

    def check_fetched(self, data: Buffer) -> None:
        """Check that `append_fetched` can append a leader's batches; call it before they count as
        received.

        Metadata records are not decoded: they matter once a majority has committed them.

        Raises:
            ProtocolError: the batches are invalid.
        """
        try:
            self._log.appender.check_fetched(data)
            for batch in read_control_batches(data):
                for record in batch.control:
                    if isinstance(record, VotersRecord):
                        voter_set(record)
        except (ApiError, CorruptLog, ValueError) as error:
            raise ProtocolError(f"fetched metadata batches: {error}") from error

    def append_fetched(self, data: Buffer) -> bool:
        """Append batches as the leader sent them. Returns: True if they changed the voters.

        Raises:
            CorruptLog, LogFailed: the batches are broken, or the disk failed.
        """
        end_offset = self.end_offset
        if self._log.append_as_follower(data) is None:
            return False
        self.holes.note(data, end_offset)
        return self.voter_history.note(data)

    def truncate_to(self, end_offset: int) -> bool:
        """Truncate the log. Returns: True if that reverted a change of the voter set.

        Raises:
            LogFailed: the disk failed.
            CorruptLog: records before the truncation point are damaged on disk.
        """
        try:
            self._log.truncate_to(end_offset)
        except CorruptLog as error:
            raise self._rotten(end_offset, error) from error
        self.holes.revert_to(end_offset)
        return self.voter_history.revert_to(end_offset)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Read whole batches from `offset` on (the last one may be cut), at least one if there is
        any.

        Raises:
            OffsetOutOfRange: the log does not have the offset.
            LogFailed: the disk failed.
            CorruptLog: the records are damaged on disk.
        """
        return self._read(offset, max_bytes, self.end_offset)

    def _read(self, offset: int, max_bytes: int, max_offset: int) -> bytes:
        begin = offset
        try:
            data = self._log.read(offset, max_bytes, max_offset=max_offset)
            for header, _ in iter_checked(data):
                offset = header.next_offset
        except CorruptBatch as error:
            raise self._rotten(offset, error) from error
        except LogFailed as error:
            if isinstance(error.cause, CorruptLog):
                raise self._rotten(offset, error.cause) from error
            raise
        if data and offset == begin:
            raise self._rotten(offset, "no complete batch begins here")
        return data

    def _rotten(self, offset: int, why: object) -> CorruptLog:
        path = self._log.segments.holding(offset)[0].log.path
        return CorruptLog(f"{path}, at offset {offset}: {why}. The disk lost data")

    def read_committed(self, offset: int, max_bytes: int) -> Iterator[Batch]:
        """Yield decoded whole batches from `offset` up to the high watermark. Raises as `read`
        does."""
        return read_batches(self._read(offset, max_bytes, self._log.high_watermark))

    def update_high_watermark(self, offset: int) -> None:
        self._log.update_high_watermark(offset)

    async def flush(self) -> int:
        """Make appended records durable. Returns: the end of the durable log. Raises LogFailed."""
        return await self._log.flush()

    # --- snapshots ----------------------------------------------------------------------------

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Start the log again at the end of a snapshot that a leader sent (KIP-630)."""
        self.snapshots.add(snapshot_id)
        self._log.truncate_fully_and_start_at(snapshot_id.offset)
        self._log.update_high_watermark(snapshot_id.offset)
        self._reload_voters()

    def clean(self, now_ms: int) -> list[OffsetAndEpoch]:
        """Drop the oldest snapshots, and the log up to the next one, as retention requires.

        The latest snapshot always stays. Returns: the removed snapshots.
        """
        removed: list[OffsetAndEpoch] = []
        while len(self.snapshots.ids) > 1 and self._expired(now_ms):
            oldest, following = self.snapshots.ids[:2]
            self._log.advance_log_start(following.offset)
            self._log.retention(now_ms)
            self.snapshots.remove(oldest)
            removed.append(oldest)
        return removed

    def _expired(self, now_ms: int) -> bool:
        config = self.config
        limit = config.retention_bytes
        if limit >= 0 and self._log.size_bytes + self.snapshots.size_bytes > limit:
            return True
        if config.retention_ms < 0:
            return False
        return now_ms - self.snapshots.time_ms(self.snapshots.ids[0]) > config.retention_ms


def _end_of(data: bytes, offset: int) -> int:
    """Return the offset after the last whole batch in `data`, which begins at `offset`."""
    for header, _ in iter_batches(data):
        offset = header.next_offset
    return offset


def _require_covered(log: Log, damaged: Sequence[DamagedSnapshot]) -> None:
    """Raise StartupRefused unless the log reaches as far as the damaged snapshots."""
    newest = damaged[0]
    if newest.id == FIRST_SNAPSHOT or damaged[-1].id == FIRST_SNAPSHOT:
        raise StartupRefused(
            f"{damaged[-1].why}. It contains the first voters and the first records of the "
            "cluster's metadata: restore the file, or format the directory again"
        )
    if log.log_end_offset < newest.id.offset:
        raise StartupRefused(
            f"{newest.why}. The metadata log ends at offset {log.log_end_offset}, "
            f"below the end of that snapshot, {newest.id.offset}: restore the file"
        )


def _start_offset(
    files: Files,
    directory: str,
    snapshots: Sequence[OffsetAndEpoch],
    damaged: Sequence[DamagedSnapshot],
) -> int:
    """Return the log start: 0, or the end of the first snapshot within the range of the segments.

    Raises:
        StartupRefused: the beginning is missing and no snapshot covers it.
    """
    bases = [
        int(name.removesuffix(_LOG_SUFFIX))
        for name in files.listdir(directory)
        if name.endswith(_LOG_SUFFIX) and name.removesuffix(_LOG_SUFFIX).isdigit()
    ]
    first = min(bases, default=0)
    if first == 0:
        return 0
    start = next((s.offset for s in snapshots if s.offset >= first), None)
    if start is None and damaged:
        raise StartupRefused(
            f"{damaged[-1].why}. The metadata log begins at offset {first} and no "
            "other snapshot covers the offsets before it: restore the file"
        )
    if start is None:
        raise StartupRefused(
            f"the metadata log in {directory} begins at offset {first} and no "
            "snapshot covers the offsets before it"
        )
    return start
