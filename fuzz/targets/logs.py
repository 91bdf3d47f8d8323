"""A partition's log opened over damaged files.

Input: one byte of flags, two bytes that choose the file, then the file's new content. The flags
choose whether the shutdown was clean, whether batches get the CRC of their content, and whether
indexes are missing. The recovered log must be consistent: all of it can be read, and a new batch
can be appended and read. After a clean shutdown neither Kraftbox nor Kafka checks the log, so that
there only unexpected exceptions are findings.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fuzz.target import Finding
from fuzz.targets.snapshots import repair
from protocol.batch.header import iter_batches
from protocol.batch.records import Producer, Record, build_batch
from protocol.errors import ApiError, ProtocolError
from runtime.clock import ManualClock
from runtime.log import captured
from storage.files import MemoryFiles
from storage.log.config import LogConfig
from storage.log.errors import CorruptLog
from storage.log.log import Log
from storage.log.producers import Origin

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=100)

_CLEAN, _REPAIR, _NO_INDEXES = 0x01, 0x02, 0x04


def batch(count: int, producer: Producer | None = None) -> bytes:
    records = [Record(timestamp=NOW_MS + at, key=b"k", value=b"v" * 20) for at in range(count)]
    return build_batch(records, producer=producer or Producer())


class Logs:
    def __init__(self) -> None:
        files = MemoryFiles()
        log = _open(files, clean=False)
        for n in range(30):
            producer = Producer(7, 0, n * 2) if n % 3 == 0 else None
            log.append_as_leader(batch(2, producer), n // 10, NOW_MS, Origin.RAFT_LEADER)
        log.close()
        self._tree = {name: files.read(f"{FOLDER}/{name}") for name in files.listdir(FOLDER)}
        self._names = sorted(self._tree)

    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        out = []
        for at, name in enumerate(self._names):
            for flags in (0, _CLEAN, _REPAIR, _CLEAN | _REPAIR, _NO_INDEXES):
                out.append(bytes((flags, 0, at)) + self._tree[name])
        return out

    def run(self, data: bytes) -> None:
        if len(data) < 3:
            return
        flags = data[0]
        damaged = self._names[int.from_bytes(data[1:3], "big") % len(self._names)]
        content = bytearray(data[3:])
        if flags & _REPAIR and damaged.endswith(".log"):
            repair(content)
        files = MemoryFiles()
        files.mkdirs(FOLDER)
        for name, whole in self._tree.items():
            if flags & _NO_INDEXES and name.endswith(("index", ".snapshot")):
                continue
            file = files.open(f"{FOLDER}/{name}", create=True)
            file.append(content if name == damaged else whole)
            file.close()
        with captured():
            try:
                log = _open(files, clean=bool(flags & _CLEAN))
            except CorruptLog:
                return
            check(log)

    def close(self) -> None:
        pass


def _open(files: MemoryFiles, *, clean: bool) -> Log:
    return Log.open(files, FOLDER, CONFIG, ManualClock(NOW_MS), clean_shutdown=clean)


def check(log: Log) -> None:
    """Read the whole log, append a batch, read it back, and close the log."""
    if not log.log_start_offset <= log.local_log_start_offset <= log.log_end_offset:
        raise Finding(
            f"offsets {log.log_start_offset} {log.local_log_start_offset} {log.log_end_offset}"
        )
    read_all(log)
    end = log.log_end_offset
    try:
        epoch = min(max(log.latest_epoch, 9), 2**31 - 1)
        log.append_as_leader(batch(3), epoch, NOW_MS, Origin.RAFT_LEADER)
    except (ApiError, CorruptLog):
        # The log ends at the highest possible offset.
        log.close()
        return
    try:
        data = log.read(end, 10_000, max_offset=log.log_end_offset)
    except ApiError:
        # After a clean shutdown nothing was checked at the start: the read reveals the damage.
        if not log.recovery_report.clean:
            raise
        return
    found = [header.base_offset for header, _ in iter_batches(data)]
    if found != [end] and not log.recovery_report.clean:
        raise Finding(f"cannot read the batch appended at {end}")
    log.close()


def read_all(log: Log) -> None:
    offset = log.local_log_start_offset
    for _ in range(1000):
        if offset >= log.log_end_offset:
            return
        try:
            data = log.read(offset, 4096, max_offset=log.log_end_offset)
            headers = [header for header, _ in iter_batches(data)]
        except (ApiError, ProtocolError, CorruptLog):
            if log.recovery_report.clean:
                return
            raise
        if not headers or headers[-1].last_offset < offset:
            if log.recovery_report.clean:
                return
            raise Finding(f"cannot read at offset {offset}, log end {log.log_end_offset}")
        offset = headers[-1].last_offset + 1
    raise Finding("reading does not end")


def make() -> Logs:
    return Logs()
