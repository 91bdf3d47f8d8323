"""One segment: a .log file, its indexes, and lookups in them.

A closed segment costs nothing until it is read: files open at first use. Indexes are checked then,
and a missing or impossible index is rebuilt from the .log at once. So is one that points a reader
to a batch that it cannot mean. Only the last segment of a log is writable: `Log` writes the bytes
and calls `note` to update size, timestamps and indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from protocol.batch.header import (
    HEADER,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    crc_ok,
    parse_header,
)
from storage.files import File, Files
from storage.log.config import LogConfig
from storage.log.errors import CorruptLog
from storage.log.indexes import CorruptIndex, OffsetIndex, TimeIndex, TxnIndex
from storage.log.scan import BatchScan

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)

MAX_RELATIVE = 2**31 - 1


def file_name(offset: int, suffix: str) -> str:
    """Return the name of a segment's or snapshot's file."""
    return f"{offset:020d}{suffix}"


class Segment:
    """The batches from `base_offset` up to the next segment's base offset."""

    __slots__ = (
        "_beyond_indexes", "_config", "_doubts_times", "_files", "_first_timestamp_ms", "_found",
        "_indexes_ready", "_log", "_max_timestamp", "_since_index_bytes", "_size", "_suffix",
        "base_offset", "created_ms", "index_full", "offset_index", "prefix", "time_index",
        "txn_index",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        created_ms: int,
        suffix: str = "",
    ) -> None:
        """Create the object without opening files.

        `suffix` is appended to every file name while the segment is not part of a log yet.
        """
        self.base_offset = base_offset
        self.prefix = f"{directory}/{base_offset:020d}"
        self.created_ms = created_ms
        self._files = files
        self._config = config
        self._suffix = suffix
        self._log: File | None = None
        self._size = -1
        self._since_index_bytes = 0
        self._max_timestamp: tuple[int, int] | None = None
        self._first_timestamp_ms: int | None = None
        self._doubts_times = False
        self._indexes_ready = False
        # Several fetches of older data in a row usually request the same offset.
        self._found: tuple[BatchHeader, int] | None = None
        # Rebuilt indexes did not help: the .log is damaged.
        self._beyond_indexes = False
        self.index_full = False
        """True if an open index has no room for more entries."""
        limit = config.segment_index_bytes
        self.offset_index = OffsetIndex(files, self._path(INDEX_SUFFIX), base_offset, limit)
        self.time_index = TimeIndex(files, self._path(TIME_INDEX_SUFFIX), base_offset, limit)
        self.txn_index = TxnIndex(files, self._path(TXN_INDEX_SUFFIX))

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        created_ms: int,
        suffix: str = "",
    ) -> Segment:
        """Create a new, empty segment; existing content of its files is dropped."""
        segment = cls(files, directory, base_offset, config, created_ms, suffix)
        segment._log = files.open(segment._path(LOG_SUFFIX), create=True)
        if segment._log.size():
            segment._log.truncate(0)
        segment._size = 0
        segment.offset_index.create()
        segment.time_index.create()
        segment.txn_index.reset()
        segment._indexes_ready = True
        segment._max_timestamp = (NO_TIMESTAMP, base_offset)
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.prefix})"

    # Files -----------------------------------------------------------------------------------

    def _path(self, suffix: str) -> str:
        return self.prefix + suffix + self._suffix

    @property
    def log(self) -> File:
        if self._log is None:
            self._log = self._files.open(self._path(LOG_SUFFIX))
        return self._log

    @property
    def size_bytes(self) -> int:
        if self._size < 0:
            self._size = self._files.size(self._path(LOG_SUFFIX))
        return self._size

    def open_files(self) -> list[File]:
        """Return every open file of this segment that may contain unflushed bytes."""
        files = [
            self._log, self.offset_index.file, self.time_index.file, self.txn_index.file,
        ]  # fmt: skip
        return [file for file in files if file is not None]

    def ensure_indexes(self) -> None:
        """Open the indexes; rebuild missing or impossible ones.

        Raises OSError; then no index is open.
        """
        if self._indexes_ready:
            return
        try:
            self.offset_index.load()
            self.time_index.load()
            if self.offset_index.last()[1] > self.size_bytes:
                raise CorruptIndex(f"{self.offset_index.path}: points behind the segment")
            self._indexes_ready = True
            self._look_for_room()
        except (FileNotFoundError, CorruptIndex):
            self.rebuild(check_crc=False)
        except OSError:
            self._close_indexes()
            raise

    def _close_indexes(self) -> None:
        """Close the index files without writing anything."""
        self.offset_index.close_file()
        self.time_index.close_file()
        self._indexes_ready = self._beyond_indexes = self.index_full = False

    def close(self) -> None:
        """Write the indexes and close all files; the next use opens them again."""
        if self._indexes_ready:
            self.offset_index.close()
            self.time_index.close()
        self.txn_index.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        self._indexes_ready = self._beyond_indexes = self.index_full = False

    def discard_handles(self) -> None:
        """Close all files without writing indexes: the segment is about to be removed."""
        self._close_indexes()
        self.txn_index.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def paths(self) -> list[str]:
        """Return the segment's existing files, the .log last: without it the others are orphans."""
        candidates = [self._path(suffix) for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX)]
        return [path for path in candidates if self._files.exists(path)]

    def delete(self) -> None:
        """Close and remove the files."""
        self.discard_handles()
        for path in self.paths():
            self._files.unlink(path)

    def rename_deleted(self) -> list[str]:
        """Rename the files to `.deleted`. Returns their new paths, to be removed later."""
        self.discard_handles()
        renamed = []
        for path in self.paths():
            self._files.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
        return renamed

    # Writing ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Load the state that `note` needs, so that it opens no file after the batch is written."""
        if self._max_timestamp is None:
            self._max_timestamp = self.max_timestamp()
        if not self._indexes_ready:
            self.ensure_indexes()

    def note(self, last_offset: int, position: int, size_bytes: int, max_timestamp: int) -> None:
        """Record one batch that was written at `position`; requires a call of `prepare` before."""
        highest = self._max_timestamp
        assert highest is not None
        if max_timestamp > highest[0]:
            self._max_timestamp = highest = (max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp_ms = max_timestamp
        if self._since_index_bytes > self._config.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*highest)
            self._since_index_bytes = 0
            self._look_for_room()
        self._since_index_bytes += size_bytes
        self._size = position + size_bytes

    def seal(self) -> None:
        """Add the last entry of the time index, and write both indexes to their files."""
        self.ensure_indexes()
        timestamp_ms, offset = self.max_timestamp()
        if timestamp_ms >= 0:
            self.time_index.maybe_append(timestamp_ms, offset, final=True)
            self._look_for_room()
        self.offset_index.write_out()
        self.time_index.write_out()

    def _look_for_room(self) -> None:
        # Cached: read at every append, changed by few of them.
        self.index_full = self.offset_index.is_full or self.time_index.is_full

    def fits_relative(self, offset: int) -> bool:
        """Return whether the indexes can express this offset."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE

    # Timestamps ------------------------------------------------------------------------------

    def max_timestamp(self) -> tuple[int, int]:
        """Return (highest timestamp, last offset of the first batch that has it); (-1, base) if
        none.

        If a batch cannot be read, the result covers those before it and is not cached: the disk may
        read the batch correctly next time.
        """
        if self._max_timestamp is None:
            best, position = (NO_TIMESTAMP, self.base_offset), 0
            if not self._doubts_times:
                best, position = self._time_entry(self.time_index.last)
            scan = BatchScan(self.log, position, self.size_bytes)
            for header, _ in scan:
                # An offset that no index can express is damage that no reader has found yet.
                if header.max_timestamp > best[0] and self.fits_relative(header.last_offset):
                    best = (header.max_timestamp, header.last_offset)
            if scan.problem is not None:
                return best
            self._max_timestamp = best
        return self._max_timestamp

    def doubt_times(self) -> None:
        """Discard the highest timestamp after it proved wrong.

        `max_timestamp` then reads all batches, not only those after the last index entry.
        """
        self._max_timestamp = None
        self._doubts_times = True

    def first_timestamp_ms(self) -> int:
        """Return the highest timestamp of the first batch, for rolling by time; -1 if empty."""
        if self._first_timestamp_ms is None:
            first = self.first_header()
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp_ms = first.max_timestamp
        return self._first_timestamp_ms

    def first_header(self) -> BatchHeader | None:
        if self.size_bytes < HEADER_BYTES:
            return None
        return parse_header(self.log.pread(HEADER_BYTES, 0))

    def largest_timestamp_ms(self) -> int:
        """Return the highest record timestamp, or else the file's; for retention."""
        timestamp_ms, _ = self.max_timestamp()
        if timestamp_ms >= 0:
            return timestamp_ms
        return self._files.modified_ms(self._path(LOG_SUFFIX))

    # Finding ---------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[BatchHeader, int] | None:
        """Return the first batch that ends at or after `offset`, and its position; None: not here.

        Raises CorruptLog if the file becomes unreadable before that.
        """
        last = self._found
        if (
            last is not None
            and last[0].base_offset <= offset <= last[0].last_offset
            and self._reads_as(*last)
        ):
            return last
        self.ensure_indexes()
        found, problem = self._search(offset)
        if problem is not None and self._indexes_mislead(offset):
            found, problem = self._search(offset)
            self._beyond_indexes = problem is not None
        if problem is not None:
            raise CorruptLog(f"{self.prefix}{LOG_SUFFIX} {problem}")
        self._found = found
        return found

    def _reads_as(self, header: BatchHeader, position: int) -> bool:
        """Return whether the bytes at `position` still read as `header`.

        A header that was misread once would otherwise direct every lookup of an offset that the
        batch does not contain to this batch.
        """
        data = self.log.pread(HEADER_BYTES, position)
        return len(data) == HEADER_BYTES and HEADER.unpack(data) == header.fields()

    def reach(self, position: int, offset: int) -> int:
        """Return the position of the first batch that reaches `offset`, from a batch boundary on.

        Used when `find` returns a limit before that boundary: a damaged batch on the way may claim
        a higher last offset than it has. Raises CorruptLog if the batch at `position` itself is
        damaged.
        """
        scan = BatchScan(self.log, position, self.size_bytes)
        for header, at in scan:
            if header.last_offset >= offset:
                if at == position and not crc_ok(scan.batch(header), 0, header.size_bytes):
                    scan.problem = f"wrong CRC of the batch at offset {header.base_offset}"
                    break
                return at
        if scan.problem is not None:
            raise CorruptLog(f"{self.prefix}{LOG_SUFFIX} at {scan.position}: {scan.problem}")
        return self.size_bytes

    def _search(self, offset: int) -> tuple[tuple[BatchHeader, int] | None, str | None]:
        """Return the result of `find`, and the reason why it may be wrong.

        Index entries never lie above the offset that was looked up. So a batch that begins above
        the offset at the indexed position, or no batch there, indicates a damaged index.
        """
        _, start = self.offset_index.lookup(offset)
        if start < 0:
            return None, f"at {start}, where its index points"
        scan = BatchScan(self.log, start, self.size_bytes)
        for header, at in scan:
            if header.last_offset >= offset:
                if at == start and start and header.base_offset > offset:
                    return None, f"at {at}: offset {offset} is not where its index points"
                return (header, at), None
        if scan.problem is not None:
            return None, f"at {scan.position}: {scan.problem}"
        if scan.position == start and start:
            return None, f"ends at {self.size_bytes}, its index points to {start}"
        return None, None

    def _indexes_mislead(self, offset: int) -> bool:
        """Look for `offset` without the indexes, and rebuild them if the batches are readable.

        Returns whether the indexes were rebuilt. A disk may damage them at any time. Only if a
        rebuild did not help, or the batches cannot be read, no further attempt is made.
        """
        if self._beyond_indexes:
            return False
        scan = BatchScan(self.log, 0, self.size_bytes)
        for header, _ in scan:
            if header.last_offset >= offset:
                break
        self._beyond_indexes = scan.problem is not None
        if not self._beyond_indexes:
            self.rebuild(check_crc=False)
        return not self._beyond_indexes

    def _time_entry(self, lookup: Callable[[], tuple[int, int]]) -> tuple[tuple[int, int], int]:
        """Return the time index entry that `lookup` finds, and the position of its batch.

        Returns (-1, base offset) and 0 if there is no such batch.
        """
        self.ensure_indexes()
        entry = lookup()
        position = self._position_of(entry)
        if position is None and self._indexes_mislead(entry[1]):
            entry = lookup()
            position = self._position_of(entry)
            self._beyond_indexes = position is None
        return (entry, position) if position is not None else ((NO_TIMESTAMP, self.base_offset), 0)

    def _position_of(self, entry: tuple[int, int]) -> int | None:
        """Return the position of the batch with this offset; None if its timestamp is another."""
        timestamp_ms, offset = entry
        if timestamp_ms < 0:
            return 0
        found, _ = self._search(offset)
        return found[1] if found is not None and found[0].max_timestamp == timestamp_ms else None

    def find_last_batch(self) -> BatchHeader | None:
        """Return the last whole batch.

        Raises CorruptLog if other bytes follow it, if the index points behind the end of the file,
        and if an offset is too far from the segment's base.
        """
        self.ensure_indexes()
        _, position = self.offset_index.last()
        if position >= self.size_bytes > 0:
            raise CorruptLog(f"{self.prefix}{LOG_SUFFIX} is shorter than its index says")
        last = None
        scan = BatchScan(self.log, position, self.size_bytes)
        for header, _ in scan:
            last = header
            if self._max_timestamp is not None and header.max_timestamp > self._max_timestamp[0]:
                self._max_timestamp = (header.max_timestamp, header.last_offset)
        if scan.problem is None and last is not None and not self.fits_relative(last.last_offset):
            scan.problem = f"offset {last.last_offset} is too far from the segment's base"
        if scan.problem is not None:
            raise CorruptLog(f"{self.prefix}{LOG_SUFFIX} at {scan.position}: {scan.problem}")
        return last

    def batches_from_timestamp(
        self, timestamp_ms: int, start_offset: int
    ) -> Iterator[tuple[BatchHeader, int]]:
        """Yield batches that include the first record with this timestamp or a later one.

        Only records from `start_offset` on count; earlier batches may come first.
        """
        (_, offset), position = self._time_entry(lambda: self.time_index.lookup(timestamp_ms))
        if offset < start_offset:
            found = self.find(start_offset)
            if found is None:
                return
            position = found[1]
        yield from BatchScan(self.log, position, self.size_bytes)

    def headers(self, position: int = 0) -> BatchScan:
        """Iterate over the batches from a position that is a batch boundary."""
        return BatchScan(self.log, position, self.size_bytes)

    # Cutting and rebuilding ------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains `offset` and all after it. Returns the next free offset.

        That is `offset`, or the base offset of the batch if it began below.
        """
        found = self.find(offset)
        if found is None:
            return offset
        header, position = found
        self.offset_index.truncate_to(header.base_offset)
        self.time_index.truncate_to(header.base_offset)
        self.txn_index.truncate_to(header.base_offset)
        self._look_for_room()
        self.log.truncate(position)
        self._size = position
        self._found = None
        self._since_index_bytes = 0
        self._max_timestamp = None
        if position == 0:
            self._first_timestamp_ms = None
        return min(offset, header.base_offset)

    def rebuild(
        self,
        *,
        check_crc: bool,
        end_offset: int | None = None,
        visit: Callable[[BatchHeader], None] | None = None,
    ) -> BatchScan:
        """Read the segment and rebuild its indexes. Returns the finished scan.

        Args:
            check_crc: for recovery; the caller then truncates the .log where the scan ended.
            end_offset: where the next segment begins.
            visit: called with each batch that the scan accepts.

        After an OSError, the indexes are closed, and size and highest timestamp are unknown again.
        """
        try:
            return self._rebuild(check_crc, end_offset, visit)
        except OSError:
            self._close_indexes()
            self._size, self._max_timestamp = -1, None
            raise

    def _rebuild(
        self,
        check_crc: bool,
        end_offset: int | None,
        visit: Callable[[BatchHeader], None] | None,
    ) -> BatchScan:
        self._close_indexes()
        self.offset_index.create()
        self.time_index.create()
        self._indexes_ready = True
        self.index_full = False
        self._since_index_bytes = 0
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        size = self.size_bytes
        scan = BatchScan(
            self.log,
            0,
            size,
            check_crc=check_crc,
            next_offset=self.base_offset,
            end_offset=end_offset,
        )
        for header, position in scan:
            if not self.fits_relative(header.last_offset):
                scan.problem = f"offset {header.last_offset} is too far from the segment's base"
                break
            self.note(header.last_offset, position, header.size_bytes, header.max_timestamp)
            if visit is not None:
                visit(header)
        self._size = size
        self.seal()
        return scan

    def cut_at(self, position: int) -> None:
        """Truncate the .log at `position`; the indexes must not point beyond it."""
        self._found = None
        self.log.truncate(position)
        self._size = position
