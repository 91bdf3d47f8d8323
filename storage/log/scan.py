"""Iteration over the batches of a segment file.

`BatchScan` yields (header, position). It stops without an exception at the first bytes that cannot
be the next batch: recovery needs the end of the valid part. The file is read in windows; without
CRC checks, the bodies of large batches are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.batch.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    BatchHeader,
    crc_ok,
)
from storage.files import File

HEADER_WINDOW_BYTES = 16 << 10
BODY_WINDOW_BYTES = 1 << 20


class BatchScan:
    """One pass over [start, end) of a file.

    Args:
        check_crc: read every byte and verify each batch.
        next_offset: no batch may begin below it, nor below the end of the previous batch.
        end_offset: no batch may reach it (the next segment begins there); None for no limit.

    After the pass, `position` is the end of the last whole batch. `problem` is the reason why the
    pass ended before `end` (None: it did not). `overlapped` is true if `end_offset` was the reason.
    """

    __slots__ = (
        "_data",
        "_data_at",
        "_file",
        "check_crc",
        "end",
        "end_offset",
        "next_offset",
        "overlapped",
        "position",
        "problem",
    )

    def __init__(
        self,
        file: File,
        start: int,
        end: int,
        *,
        check_crc: bool = False,
        next_offset: int = 0,
        end_offset: int | None = None,
    ) -> None:
        self._file = file
        self._data = b""
        self._data_at = start
        self.position = start
        self.end = end
        self.check_crc = check_crc
        self.next_offset = next_offset
        self.end_offset = end_offset
        self.problem: str | None = None
        self.overlapped = False

    def __iter__(self) -> Iterator[tuple[BatchHeader, int]]:
        unpack = HEADER.unpack_from
        while self.position < self.end:
            position = self.position
            if not self._window(position, HEADER_BYTES):
                self.problem = f"{self.end - position} bytes are no batch header"
                return
            header = BatchHeader(*unpack(self._data, position - self._data_at))
            self.problem = self._judge(header, position)
            if self.problem is not None:
                return
            yield header, position
            self.position = position + header.size_bytes
            self.next_offset = header.next_offset

    def batch(self, header: BatchHeader) -> bytes:
        """Return all bytes of the batch that was just yielded."""
        at, size = self.position - self._data_at, header.size_bytes
        if at + size <= len(self._data):
            return self._data[at : at + size]
        return self._file.pread(size, self.position)

    def _judge(self, header: BatchHeader, position: int) -> str | None:
        if header.magic != MAGIC or header.batch_length < LENGTH_MIN:
            return f"no batch: length {header.batch_length}, magic {header.magic}"
        if position + header.size_bytes > self.end:
            return f"a cut batch: {header.size_bytes} bytes announced, {self.end - position} left"
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            return f"offset {header.base_offset} where {self.next_offset} or later is expected"
        if self.end_offset is not None and header.next_offset > self.end_offset:
            self.overlapped = True
            return f"offset {header.last_offset} where the next segment begins at {self.end_offset}"
        if self.check_crc:
            self._window(position, header.size_bytes)
            if not crc_ok(self._data, position - self._data_at, header.size_bytes):
                return f"wrong CRC of the batch at offset {header.base_offset}"
        return None

    def _window(self, position: int, size: int) -> bool:
        """Load `size` bytes from `position` into memory; return False if the file ends before."""
        if position + size > self.end:
            return False
        at = position - self._data_at
        if at < 0 or at + size > len(self._data):
            window = BODY_WINDOW_BYTES if self.check_crc else HEADER_WINDOW_BYTES
            self._data = self._file.pread(min(max(size, window), self.end - position), position)
            self._data_at = position
            return len(self._data) >= size
        return True
