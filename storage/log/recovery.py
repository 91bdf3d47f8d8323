"""Loading of a log from its directory, with recovery where the last shutdown was not clean.

After a clean shutdown the files are believed: the last segment is walked from its last index entry
to find the log end, and nothing else is read. After anything else the segments above the recovery
point are read in full (CRC of every batch); the first bytes that are no valid next batch end the
log there, later segments go, indexes are written anew.

What else a crash can leave behind, and what becomes of it:

* `.deleted`, `.cleaned`, `.tmp`: unfinished work, removed. `.swap`: compaction had decided; the
  segments it replaces are removed and the swap finished, unless a `.cleaned` file from there on
  shows that the swap was not complete.
* Indexes without a .log: removed. A missing index: rebuilt when first needed.
* A segment that reaches into the next one: its cut (a truncation) did not survive, but what was
  written afterwards did; cut again.
* A hole between a segment that lost its tail and the next one: the later segments go (compacted
  logs have legal holes, so there it cannot be told).
* A hole below the recovery point of a tiered log: local retention's removals reached the disk out
  of order. Whether a log is tiered or compacted is known later, so the hole is told of, and the log
  removes what lies before it.
* leader-epoch-checkpoint missing, broken, or contradicting the batches: rebuilt from the batches;
  what it says of offsets below the first local one (a tiered log) stays.
* A bootstrap that was not finished: everything goes, and the log begins anew, at 0.
* Producer snapshots behind the recovery point: removed, and taken anew where segments begin. A
  broken one: removed, an older one is used and the batches after it are replayed.

Deletions come before cuts and are made durable first, from the end backwards, so that a crash in
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
    """What loading found and did; the owner logs it."""

    clean: bool = True
    recovered_segments: int = 0
    recovered_from: int | None = None
    """Base offset of the first segment that was read in full."""
    truncated_bytes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LoadedLog:
    """Everything a Log begins with."""

    segments: list[Segment]
    epochs: EpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    report: RecoveryReport
    behind_hole: int | None
    """Where the first segment behind the last hole below the recovery point begins, in what may be
    a tiered log; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What to load and how far to trust it."""

    files: Files
    directory: str
    config: LogConfig
    now_ms: int
    recovery_point: int
    log_start_offset: int
    clean: bool
    producer_id_expiration_ms: int


def load_log(request: LoadRequest) -> LoadedLog:
    """Load or recover the log in `request.directory` (which exists; empty is a new log).

    Raises CorruptLog for files that no log of ours or Kafka's can have, OSError.
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
            # Its name tells where the log starts, and soon no checkpoint will.
            files.fsync_dir(directory)
    epochs = _load_epochs(request, segments, report, transitions, end)
    # In an empty log the epoch that is to begin at its end is all that is known of its history.
    local = max(start, segments[0].base_offset)
    epochs.truncate_from_end(end + 1 if end == local else end)
    epochs.truncate_from_start(start, end)
    producers = ProducerStates(request.producer_id_expiration_ms)
    snapshots = ProducerSnapshots(files, directory, found.snapshots)
    # What was read anew is replayed anew: its transaction index is empty, and a snapshot from
    # there may describe a tail that was lost.
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
    """Remove everything but the topic's id; the marker goes when the rest is gone for good."""
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


def _by_suffix(listing: Sequence[str]) -> _Found:
    found = _Found([], [], [], [], [])
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
    """Finish or undo what a crash interrupted; returns what is there afterwards."""
    if not (found.leftovers or found.swaps or found.orphans):
        return found
    swaps = _drop_void_swaps(files, directory, found)
    for name in found.leftovers:
        files.unlink(posixpath.join(directory, name))
    # The .log of a swap goes first: as long as it is there, files with the plain names are old.
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
    """Base offset of `<base>.<suffix>.swap` and `<base>.<suffix>.cleaned`."""
    return _base_offset(name, name.partition(".")[0])


def _drop_void_swaps(files: Files, directory: str, found: _Found) -> list[str]:
    """Remove the swaps that were not complete when the crash came; returns the others.

    Files get `.swap` from the last segment of a group to its first, so one that is still `.cleaned`
    tells that the swaps from there on are not all there; and nothing old was touched yet.
    """
    unfinished = min(
        (_swap_base(name) for name in found.leftovers if name.endswith(names.CLEANED_SUFFIX)),
        default=MAX_INT64,
    )
    void = [name for name in found.swaps if _swap_base(name) >= unfinished]
    for name in void:
        files.unlink(posixpath.join(directory, name))
    if void:
        # Before the .cleaned files that say so are gone.
        files.fsync_dir(directory)
    return [name for name in found.swaps if name not in void]


def _remove_replaced(files: Files, swap_path: str, base: int, found: _Found) -> None:
    """Remove the segments whose offsets the swap file of `base` covers, and indexes left of any."""
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
    """The log end offset, after cutting what cannot stay."""
    if request.clean:
        active = segments[-1]
        try:
            last = active.find_last_batch()
            return last.next_offset if last is not None else active.base_offset
        except CorruptLog as error:
            # The marker said clean, the bytes say otherwise: trust the bytes.
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
    """Read the segments above the recovery point in full; returns where the log then ends."""
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
    """Raises CorruptLog where a scan ended at bytes that were right once."""
    rest = segment.log.pread(segment.size_bytes - scan.position, scan.position)
    if has_rotted(rest, scan.next_offset):
        raise CorruptLog(
            f"{segment.log.path} at position {scan.position}, offset {scan.next_offset}: "
            f"{scan.problem}. No crash leaves that: the disk did not keep what it had"
        )


def _is_hole(request: LoadRequest, segment: Segment, end: int) -> bool:
    """Whether records are lost before `segment`. What no segment could have had is none: a follower
    got nothing for so many offsets, and began another one (`Log.append_as_follower`)."""
    return (
        not request.config.compacted
        and end < segment.base_offset <= end + names.MAX_RELATIVE
        and segment.base_offset > request.recovery_point
    )


def _find_hole(
    request: LoadRequest, segments: Sequence[Segment], report: RecoveryReport
) -> int | None:
    """Base offset of the first segment behind the last hole below the recovery point, which
    `_recover` does not see."""
    found = None
    if not request.config.remote_storage_enable:
        return found
    for segment, following in pairwise(segments):
        if following.base_offset > request.recovery_point:
            break
        try:
            last = segment.find_last_batch()
        except CorruptLog as error:
            report.problems.append(str(error))  # whoever reads it is told
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
    """Whether the cache fits the batches that are there; epochs it lacks at its end are added.

    Cached epochs may be older than the batches (the file is written before the recovery point
    moves, not with each append). They are newer where the file reached the disk and the cut before
    it did not: then the log still has the batches that were cut, and nothing of the new epoch.
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
            # Only where recovery has read every batch is it known that the epoch begins here.
            if (epoch, offset) not in transitions:
                return False
            cache.assign(epoch, offset)
        if cache.epoch_at(offset) != epoch:
            return False
    read_from = transitions[0][1] if transitions else end
    return all(entry in seen for entry in cache.entries if read_from < entry.start_offset < end)


def rebuild_epochs(segments: Sequence[Segment]) -> EpochCache:
    """The epoch cache rebuilt from the batches."""
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
    cache.changes += 1  # whatever the file holds, it is not this
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
    """Producer state at `end`: the newest usable snapshot, and the batches after it.

    Snapshots at the segments' beginnings on the way are taken anew: retention takes the older ones
    with their segments, and a copy of a segment in a remote store needs the one behind it. Not
    where batches are missing before the first one read: the state lacks its beginning.
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
    """Producer state at `offset`, which may lie below the log's end. Raises CorruptLog, OSError."""
    start = snapshots.load_up_to(offset, producers, now_ms)
    replay_producers(producers, segments, start, offset)


def replay_producers(
    producers: ProducerStates,
    segments: Sequence[Segment],
    start: int,
    end: int,
    reached: Callable[[int], None] = lambda offset: None,
) -> None:
    """Apply the batches in [start, end) to the state, noting aborted transactions on the way.
    `reached` is told of each segment that begins behind `start`, before its batches."""
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
