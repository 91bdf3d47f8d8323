"""The segments of a log: offsets near its end, and unreadable indexes."""

from __future__ import annotations

import errno

import pytest

from storage.files import LossyFiles, MemoryFiles
from storage.log import segments
from storage.log.config import LogConfig
from storage.log.segment import INDEX_SUFFIX
from testkit.memory.logs import T0, append, batch, fill, make_log


def test_a_log_knows_which_offsets_are_recent(monkeypatch):
    monkeypatch.setattr(segments, "RECENT_BYTES", 20_000)
    monkeypatch.setattr(segments, "_RECENT_STEP_BYTES", 0)
    files = MemoryFiles()
    files.mkdirs("/d/t-0")
    held = segments.Segments(files, "/d/t-0", [])
    active = held.begin(100, LogConfig(), 0)
    assert held.is_recent(100)
    for at in range(400):
        position = active.log.append(bytes(1000))
        active.note(100 + at, position, 1000, 5)
    assert not held.is_recent(99)
    assert not held.is_recent(470)
    assert held.is_recent(482)
    held.note_boundary(300, 200_000)
    assert held.is_recent(300), "a position that is remembered was near the end a moment ago"


def refusing(kinds: set[str]) -> tuple[LossyFiles, set[str]]:
    """Return a disk whose files with one of these suffixes cannot be read."""

    def on_read(path: str) -> None:
        if any(path.endswith(kind) for kind in kinds):
            raise OSError(errno.EIO, "broken", path)

    files = LossyFiles(MemoryFiles())
    files.on_read = on_read
    return files, kinds


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_indexes_that_cannot_be_read_are_not_left_open(kind):
    """P26: each attempt opened both again, and lost the files opened before (seed 2991)."""
    files, kinds = refusing(set())
    log = make_log(files, index_interval_bytes=100)
    fill(log, 20, size=50)
    log.roll()
    log.durability.flush_blocking()
    first = log.segments[0]
    first.close()
    first._max_timestamp = None
    before = len(files.opened)
    kinds.add(kind)
    for _ in range(3):
        with pytest.raises(OSError):
            first.max_timestamp()
    assert len(files.opened) == before
    kinds.clear()
    assert first.max_timestamp() == (T0, 0)
    first.close()
    assert len(files.opened) == before


@pytest.mark.parametrize("is_missing", [True, False])
def test_index_rebuild_that_fails_halfway_is_discarded(is_missing):
    """Records behind that half were not served any more.

    The highest timestamp of half the batches would also have expired the rest too early.
    """
    files, kinds = refusing(set())
    log = make_log(files, index_interval_bytes=100)
    for at in range(600):
        append(log, batch(timestamp=T0 + at, size=50))
    log.roll()
    log.durability.flush_blocking()
    first = log.segments[0]
    entries = first.offset_index.entries()
    first.close()
    first._max_timestamp = None
    if is_missing:
        files.unlink(first.prefix + INDEX_SUFFIX)
    reads = []

    def on_read(path: str) -> None:
        reads.append(path)
        if len(reads) == 2:
            raise OSError(errno.EIO, "broken", path)

    files.on_read = on_read
    before = len(files.opened)
    with pytest.raises(OSError):
        if is_missing:
            first.max_timestamp()
        else:
            first.rebuild(check_crc=False)
    assert len(reads) == 2
    assert first.size_bytes == first.log.size()
    assert first.max_timestamp() == (T0 + 599, 599)
    assert first.find(300)[0].base_offset == 300
    assert first.offset_index.entries() == entries
    first.close()
    assert len(files.opened) <= before
