"""Loading of a log from its directory, with recovery if the last shutdown was not clean.

After a clean shutdown the files are trusted: the last segment is walked from its last index entry
to find the log end, and nothing else is read. Otherwise the segments above the recovery point are
read in full (CRC of every batch). The log ends at the first bytes that are not a valid next batch;
later segments are removed, and indexes are rebuilt.

Other leftovers of a crash, and their handling:

* `.deleted`, `.cleaned`, `.tmp`: unfinished work, removed. `.swap`: compaction had committed; the
  segments it replaces are removed and the swap is finished, unless a `.cleaned` file at or below it
  shows that the swap was not complete.
* Indexes without a .log: removed. A missing index: rebuilt when first needed.
* A segment that reaches into the next one: its truncation did not survive, but later writes did; it
  is truncated again.
* A hole between a segment that lost its tail and the next one: the later segments are removed.
  Compacted logs have legal holes, so lost records cannot be detected there.
* A hole below the recovery point of a tiered log: local retention's removals reached the disk out
  of order. It is known only later whether a log is tiered or compacted. So loading reports the
  hole, and the log removes the segments before it.
* leader-epoch-checkpoint missing, broken, or contradicting the batches: rebuilt from the batches;
  its entries for offsets below the first local one (a tiered log) stay.
* An unfinished bootstrap: everything is removed, and the log begins from scratch, at 0.
* Producer snapshots above the recovery point: removed, and written again where segments begin. A
  broken one: removed; an older one is used and the batches after it are replayed.

Deletions come before truncations and are made durable first, from the end backwards. So a crash in
the middle of a recovery leaves a log that recovers to the same result.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from protocol.batch.header import BatchHeader
from runtime.marks import mark
from storage.files import Files
from storage.log import segment as names
from storage.log.bootstrap import MARKER, marker_path
from storage.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_epochs,
)
from storage.log.config import LogConfig
from storage.log.epochs import EpochCache
from storage.log.errors import CorruptLog
from storage.log.indexes import AbortedTxn
from storage.log.producer_snapshots import ProducerSnapshots
from storage.log.producers import ProducerStates, end_marker
from storage.log.rot import has_rotted
from storage.log.scan import BatchScan
from storage.log.segment import Segment, file_name

OFFSET_DIGITS = 20
_BY_OFFSET = frozenset({*names.SEGMENT_SUFFIXES, names.SNAPSHOT_SUFFIX})
_LEFTOVERS = frozenset({names.DELETED_SUFFIX, names.CLEANED_SUFFIX, ".tmp"})
MAX_INT64 = 2**63 - 1


@dataclass(slots=True)
class RecoveryReport:
    """Findings and actions of loading; the owner logs them."""

    clean: bool = True
    recovered_segments: int = 0
    recovered_from: int | None = None
    """Base offset of the first segment that was read in full."""
    truncated_bytes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LoadedLog:
    """The state with which a Log begins."""

    segments: list[Segment]
    epochs: EpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    report: RecoveryReport
    behind_hole: int | None
    """Base offset of the first segment after the last hole below the recovery point, in a log that
    may be tiered; None: there is no hole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """The log to load, and how far to trust its files."""

    files: Files
    directory: str
    config: LogConfig
    now_ms: int
    recovery_point: int
    log_start_offset: int
    clean: bool
    producer_id_expiration_ms: int


def load_log(request: LoadRequest) -> LoadedLog:
    """Load or recover the log in `request.directory` (which exists; an empty one is a new log).

    Raises:
        CorruptLog: files that neither a Kraftbox nor a Kafka log can have; refused rot.
        OSError: the disk refused.
    """
    report = RecoveryReport(clean=request.clean)
    files, directory = request.files, request.directory
    if files.exists(marker_path(directory)):
        mark("log.bootstrap-unfinished")
        report.problems.append("a bootstrap was not finished: the log begins anew")
        _begin_anew(files, directory)
        request = replace(request, log_start_offset=0, recovery_point=0)
    found = _tidy(files, directory, _by_suffix(files.listdir(directory)))
    segments = [
        Segment(files, directory, base, request.config, request.now_ms) for base in found.logs
    ]
    for segment in segments:
        if segment.base_offset not in found.with_aborts:
            segment.txn_index.note_missing()
    transitions: list[tuple[int, int]] = []
    if segments:
        end = _find_end(request, segments, report, transitions)
    else:
        end = request.log_start_offset
    start = request.log_start_offset
    if not request.config.remote_storage_enable and segments:
        start = max(start, segments[0].base_offset)
    if segments and end < start:
        report.problems.append(f"log end {end} is below log start {start}: the log begins anew")
        _delete_from_end(files, directory, segments, 0, report)
        end = start
    if not segments:
        segments.append(Segment.create(files, directory, end, request.config, request.now_ms))
        if end:
            # The file name defines the log start, and soon no checkpoint will have it.
            files.fsync_dir(directory)
    epochs = _load_epochs(request, segments, report, transitions, end)
    # In an empty log, the epoch that begins at its end is the only history that is left.
    local = max(start, segments[0].base_offset)
    epochs.truncate_from_end(end + 1 if end == local else end)
    epochs.truncate_from_start(start, end)
    producers = ProducerStates(request.producer_id_expiration_ms)
    snapshots = ProducerSnapshots(files, directory, found.snapshots)
    # Batches that were read from scratch are replayed from scratch: their transaction index is
    # empty, and a snapshot from there may describe a lost tail.
    _tidy_snapshots(snapshots, segments, end if report.clean else report.recovered_from or 0)
    load_producers(
        snapshots,
        producers,
        segments,
        end,
        request.now_ms,
        report.problems,
        log_start_offset=start,
    )
    behind_hole = None if report.clean else _find_hole(request, segments, report)
    return LoadedLog(segments, epochs, producers, snapshots, start, end, report, behind_hole)


def _begin_anew(files: Files, directory: str) -> None:
    """Remove everything but the topic id; the marker goes last, after the removals are durable."""
    for name in files.listdir(directory):
        if name not in (PARTITION_METADATA, MARKER):
            files.unlink(posixpath.join(directory, name))
    files.fsync_dir(directory)
    files.unlink(marker_path(directory))
    files.fsync_dir(directory)


# Names ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    logs: list[int]
    snapshots: list[int]
    orphans: list[str]
    leftovers: list[str]
    swaps: list[str]
    with_aborts: frozenset[int]
    """Base offsets of the transaction indexes."""


def _by_suffix(listing: Sequence[str]) -> _Found:
    found = _Found([], [], [], [], [], frozenset())
    bases: dict[str, list[int]] = {}
    for name in listing:
        stem, dot, rest = name.rpartition(".")
        suffix = dot + rest
        if suffix in _BY_OFFSET:
            bases.setdefault(suffix, []).append(_base_offset(name, stem))
        elif suffix in _LEFTOVERS:
            found.leftovers.append(name)
        elif suffix == names.SWAP_SUFFIX:
            found.swaps.append(name)
    found.logs = sorted(bases.get(names.LOG_SUFFIX, []))
    found.snapshots = sorted(bases.get(names.SNAPSHOT_SUFFIX, []))
    found.with_aborts = frozenset(bases.get(names.TXN_INDEX_SUFFIX, []))
    known = set(found.logs)
    for suffix in names.INDEX_SUFFIXES:
        found.orphans += [
            file_name(base, suffix) for base in bases.get(suffix, []) if base not in known
        ]
    return found


def _base_offset(name: str, stem: str) -> int:
    if len(stem) != OFFSET_DIGITS or not stem.isascii() or not stem.isdigit():
        raise CorruptLog(f"{name!r} is not the name of a segment file")
    offset = int(stem)
    if offset > MAX_INT64:
        raise CorruptLog(f"{name!r}: the offset is out of range")
    return offset


def _tidy(files: Files, directory: str, found: _Found) -> _Found:
    """Finish or undo what a crash interrupted. Returns the files that exist afterwards."""
    if not (found.leftovers or found.swaps or found.orphans):
        return found
    swaps = _drop_void_swaps(files, directory, found)
    for name in found.leftovers:
        files.unlink(posixpath.join(directory, name))
    # Rename the .log of a swap first: while it is a .swap, files with plain names are old.
    swaps.sort(key=lambda name: not name.endswith(names.LOG_SUFFIX + names.SWAP_SUFFIX))
    for name in swaps:
        path = posixpath.join(directory, name)
        target = path[: -len(names.SWAP_SUFFIX)]
        if target.endswith(names.LOG_SUFFIX):
            _remove_replaced(files, path, _swap_base(name), found)
        files.rename(path, target)
    files.fsync_dir(directory)
    again = _by_suffix(files.listdir(directory))
    for name in again.orphans:
        files.unlink(posixpath.join(directory, name))
    return again


def _swap_base(name: str) -> int:
    """Return the base offset of `<base>.<suffix>.swap` or `<base>.<suffix>.cleaned`."""
    return _base_offset(name, name.partition(".")[0])


def _drop_void_swaps(files: Files, directory: str, found: _Found) -> list[str]:
    """Remove the swaps that were incomplete at the crash. Returns the others.

    The cleaner renames files to `.swap` from the last segment of a group to its first. So a
    remaining `.cleaned` file shows that the swaps from there on are incomplete, and that no old
    file was touched yet.
    """
    unfinished = min(
        (_swap_base(name) for name in found.leftovers if name.endswith(names.CLEANED_SUFFIX)),
        default=MAX_INT64,
    )
    void = [name for name in found.swaps if _swap_base(name) >= unfinished]
    for name in void:
        files.unlink(posixpath.join(directory, name))
    if void:
        # Durable before the .cleaned files, which are the evidence, are removed.
        files.fsync_dir(directory)
    return [name for name in found.swaps if name not in void]


def _remove_replaced(files: Files, swap_path: str, base: int, found: _Found) -> None:
    """Remove the segments whose offsets the swap file of `base` covers, and their orphaned
    indexes."""
    swap = files.open(swap_path)
    last = base
    for header, _ in BatchScan(swap, 0, swap.size()):
        last = header.last_offset
    swap.close()
    orphans = {_swap_base(name) for name in found.orphans}
    for old in sorted(orphans.union(found.logs)):
        if not base <= old <= last:
            continue
        for suffix in (*names.INDEX_SUFFIXES, names.LOG_SUFFIX):
            old_path = posixpath.join(posixpath.dirname(swap_path), file_name(old, suffix))
            if files.exists(old_path):
                files.unlink(old_path)


# Segments ------------------------------------------------------------------------------------


def _find_end(
    request: LoadRequest,
    segments: list[Segment],
    report: RecoveryReport,
    transitions: list[tuple[int, int]],
) -> int:
    """Return the log end offset, after truncating what cannot stay."""
    if request.clean:
        active = segments[-1]
        try:
            last = active.find_last_batch()
            return last.next_offset if last is not None else active.base_offset
        except CorruptLog as error:
            # The marker claims a clean shutdown, but the bytes do not match: trust the bytes.
            mark("log.marked-clean-is-not")
            report.problems.append(str(error))
            active.discard_handles()
    report.clean = False
    return _recover(request, segments, report, transitions)


def _recover(
    request: LoadRequest,
    segments: list[Segment],
    report: RecoveryReport,
    transitions: list[tuple[int, int]],
) -> int:
    """Read the segments above the recovery point in full. Returns the resulting log end."""
    end = segments[0].base_offset
    at = 0
    while at < len(segments):
        segment = segments[at]
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        if following is not None and following <= request.recovery_point:
            end = following
            at += 1
            continue
        if at and _is_hole(request, segment, end):
            mark("log.recovery-hole")
            report.problems.append(f"offsets {end} to {segment.base_offset} are missing")
            _delete_from_end(request.files, request.directory, segments, at, report)
            break
        at += 1
        scan = _read_anew(segment, following, report, transitions)
        end = scan.next_offset
        if scan.problem is None:
            continue
        if request.config.refuse_rot and not scan.overlapped:
            _require_torn(segment, scan)
        mark("log.recovery-cuts")
        if end < request.recovery_point:
            report.problems.append(
                f"offsets {end} to {request.recovery_point} had been flushed and are lost here"
            )
        if not scan.overlapped:
            _delete_from_end(request.files, request.directory, segments, at, report)
        report.truncated_bytes += segment.size_bytes - scan.position
        segment.cut_at(scan.position)
    return end


def _read_anew(
    segment: Segment,
    following: int | None,
    report: RecoveryReport,
    transitions: list[tuple[int, int]],
) -> BatchScan:
    segment.txn_index.reset()
    scan = segment.rebuild(
        check_crc=True, end_offset=following, visit=_note_transitions(transitions)
    )
    report.recovered_segments += 1
    if report.recovered_from is None:
        report.recovered_from = segment.base_offset
    if scan.problem is not None:
        report.problems.append(f"{segment.prefix} at {scan.position}: {scan.problem}")
    return scan


def _require_torn(segment: Segment, scan: BatchScan) -> None:
    """Check that the rest of a segment can be a torn write. Raises CorruptLog if it has rotted."""
    rest = segment.log.pread(segment.size_bytes - scan.position, scan.position)
    if has_rotted(rest, scan.next_offset):
        raise CorruptLog(
            f"{segment.log.path} at position {scan.position}, offset {scan.next_offset}: "
            f"{scan.problem}. No crash leaves that: the disk lost data"
        )


def _is_hole(request: LoadRequest, segment: Segment, end: int) -> bool:
    """Return whether records are lost before `segment`.

    A gap larger than a segment can span is not a hole: a follower received no records for these
    offsets and began another segment (`Log.append_as_follower`).
    """
    return (
        not request.config.compacted
        and end < segment.base_offset <= end + names.MAX_RELATIVE
        and segment.base_offset > request.recovery_point
    )


def _find_hole(
    request: LoadRequest, segments: Sequence[Segment], report: RecoveryReport
) -> int | None:
    """Return the base offset of the first segment after the last hole below the recovery point,
    which `_recover` does not examine."""
    found = None
    if not request.config.remote_storage_enable:
        return found
    for segment, following in pairwise(segments):
        if following.base_offset > request.recovery_point:
            break
        try:
            last = segment.find_last_batch()
        except CorruptLog as error:
            report.problems.append(str(error))  # a reader of this segment gets an error
            continue
        if (segment.base_offset if last is None else last.next_offset) < following.base_offset:
            found = following.base_offset
    return found


def _note_transitions(transitions: list[tuple[int, int]]) -> Callable[[BatchHeader], None]:
    def visit(header: BatchHeader) -> None:
        if not transitions or transitions[-1][0] != header.leader_epoch:
            transitions.append((header.leader_epoch, header.base_offset))

    return visit


def _delete_from_end(
    files: Files, directory: str, segments: list[Segment], keep: int, report: RecoveryReport
) -> None:
    if len(segments) <= keep:
        return
    while len(segments) > keep:
        segment = segments.pop()
        report.truncated_bytes += segment.size_bytes
        segment.delete()
    files.fsync_dir(directory)


# Leader epochs -------------------------------------------------------------------------------


def _load_epochs(
    request: LoadRequest,
    segments: list[Segment],
    report: RecoveryReport,
    transitions: list[tuple[int, int]],
    end: int,
) -> EpochCache:
    path = posixpath.join(request.directory, LEADER_EPOCH_CHECKPOINT)
    try:
        cache = EpochCache(decode_epochs(request.files.read(path)))
    except FileNotFoundError:
        cache = None
    except CorruptCheckpoint as error:
        report.problems.append(f"{LEADER_EPOCH_CHECKPOINT}: {error}")
        cache = None
    if cache is not None and report.clean and (len(cache) or segments[0].first_header() is None):
        return cache
    if cache is not None and _agrees(cache, segments, transitions, end):
        return cache
    rebuilt = rebuild_epochs(segments)
    if cache is not None and request.config.remote_storage_enable:
        rebuilt.prepend(cache.entries)
    return rebuilt


def _agrees(
    cache: EpochCache,
    segments: Sequence[Segment],
    transitions: Sequence[tuple[int, int]],
    end: int,
) -> bool:
    """Return whether the cache matches the batches; epochs missing at its end are added.

    Cached epochs may lag behind the batches (the file is written before the recovery point moves,
    not with each append). They are ahead if the file reached the disk and the truncation before it
    did not: then the log still has the truncated batches, and nothing of the new epoch.
    """
    firsts = []
    for segment in segments:
        header = segment.first_header()
        if header is not None:
            firsts.append((header.leader_epoch, header.base_offset))
    seen = sorted({*firsts, *transitions}, key=lambda pair: pair[1])
    for epoch, offset in seen:
        if epoch < 0:
            continue
        if epoch > cache.latest_epoch:
            # Only if recovery has read every batch is it known that the epoch begins here.
            if (epoch, offset) not in transitions:
                return False
            cache.assign(epoch, offset)
        if cache.epoch_at(offset) != epoch:
            return False
    read_from = transitions[0][1] if transitions else end
    return all(entry in seen for entry in cache.entries if read_from < entry.start_offset < end)


def rebuild_epochs(segments: Sequence[Segment]) -> EpochCache:
    """Rebuild the epoch cache from the batches."""
    cache = EpochCache()
    firsts = [segment.first_header() for segment in segments]
    for at, (segment, first) in enumerate(zip(segments, firsts, strict=True)):
        if first is None:
            continue
        cache.assign(first.leader_epoch, first.base_offset)
        following = next((later for later in firsts[at + 1 :] if later is not None), None)
        if following is not None and following.leader_epoch == first.leader_epoch:
            continue  # epochs never decrease, so there is no other one in between
        for header, _ in segment.headers():
            if header.leader_epoch > cache.latest_epoch:
                cache.assign(header.leader_epoch, header.base_offset)
    cache.changes += 1  # the file's content differs in any case
    return cache


# Producers -----------------------------------------------------------------------------------


def _tidy_snapshots(
    snapshots: ProducerSnapshots, segments: Sequence[Segment], trusted: int
) -> None:
    """Keep the snapshots at segment starts and the newest one up to `trusted`; remove the rest."""
    snapshots.remove_above(trusted)
    bases = {segment.base_offset for segment in segments}
    for offset in snapshots.offsets[:-1]:
        if offset not in bases:
            snapshots.remove(offset)


def load_producers(
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
    segments: Sequence[Segment],
    end: int,
    now_ms: int,
    problems: list[str],
    *,
    log_start_offset: int,
) -> None:
    """Set the producer state at `end` from the newest usable snapshot and the batches after it.

    Missing snapshots at segment starts on the way are written again: retention removes the older
    ones with their segments, and the copy of a segment in a remote store needs the one at its end.
    None is written if batches are missing before the first one read: the state lacks its beginning.
    """
    start = snapshots.load_latest(producers, now_ms, problems)
    first = segments[0].base_offset
    whole = start >= first or (start < 0 and log_start_offset >= first)

    def reached(offset: int) -> None:
        if whole and offset > first:
            snapshots.take(offset, producers)

    replay_producers(producers, segments, start, end, reached)


def producers_at(
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
    segments: Sequence[Segment],
    offset: int,
    now_ms: int,
) -> None:
    """Set the producer state at `offset`, which may lie below the log end.

    Raises CorruptLog, OSError.
    """
    start = snapshots.load_up_to(offset, producers, now_ms)
    replay_producers(producers, segments, start, offset)


def replay_producers(
    producers: ProducerStates,
    segments: Sequence[Segment],
    start: int,
    end: int,
    reached: Callable[[int], None] = lambda offset: None,
) -> None:
    """Apply the batches in [start, end) to the state, and complete the transaction indexes.

    `reached` is called with the base offset of each segment that begins after `start`, before its
    batches are applied.
    """
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else end
        if start < segment.base_offset <= end:
            reached(segment.base_offset)
        if following <= start or segment.base_offset >= end:
            continue
        known = {(txn.producer_id, txn.last_offset) for txn in segment.txn_index.entries()}
        position = 0
        if start > segment.base_offset:
            found = segment.find(start)
            if found is None:
                continue
            position = found[1]
        scan = segment.headers(position)
        for header, _ in scan:
            if header.producer_id < 0 or header.base_offset < start:
                continue
            marker = end_marker(scan.batch(header), 0, header) if header.is_control else None
            completed = producers.apply(header, header.base_offset, marker)
            if completed is None or not completed.aborted:
                continue
            if (completed.producer_id, completed.last_offset) not in known:
                segment.txn_index.append(
                    AbortedTxn(*completed[:3], producers.last_stable_offset_after(completed))
                )
