"""The segments of a log: which of its offsets are near the end."""

from __future__ import annotations

from storage.files import MemoryFiles
from storage.log import segments
from storage.log.config import LogConfig


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
