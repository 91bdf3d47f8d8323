"""The note that a log is being rebuilt survives whatever happens before it is taken back."""

from __future__ import annotations

from runtime.clock import ManualClock
from storage.files import MemoryFiles
from storage.log.config import LogConfig
from storage.log.log import Log


def opened(files: MemoryFiles) -> Log:
    return Log.open(files, "/data/t-0", LogConfig(), ManualClock())


def test_the_note_is_there_until_it_is_taken_back() -> None:
    files = MemoryFiles()
    files.mkdirs("/data")
    log = opened(files)
    assert not log.bootstrap.incomplete
    log.bootstrap.begin(log.directory)
    log.close(clean=False)
    again = opened(files)
    assert again.bootstrap.incomplete
    again.bootstrap.end(again.directory)
    again.bootstrap.end(again.directory)
    again.close()
    assert not opened(files).bootstrap.incomplete
