"""A stream that follows a log which grows, is rolled, or loses old segments or its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.decoding.batches import Batch, Damage
from audit.reading.following import LogChanged, ReadPosition, between, end_of
from audit.reading.logs import read_listing
from audit.reading.segments import walk
from testkit.records.metadata_logs import LogBuilder


class Growing:
    """A log on disk, and a stream that has read part of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builder = LogBuilder().begin()
        self.builder.topic()
        self.place: ReadPosition | None = None
        self.read: list[int] = []

    def write(self, *segments: int, torn: int = 0) -> None:
        """Write all batches, in segments that begin with these batches, without the last `torn`
        bytes."""
        starts = [0, *segments]
        for at, begin in enumerate(starts):
            end = starts[at + 1] if at + 1 < len(starts) else None
            data = b"".join(self.builder.batches[begin:end])
            data = data[: len(data) - torn] if end is None else data
            self.segment(begin).write_bytes(data)

    def segment(self, batch: int) -> Path:
        base = self.builder.base_offsets[batch] if batch else 0
        return self.folder / f"{base:020d}.log"

    def grow(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.builder.add(self.builder.change(isr=[2, 3], leader=2))
            self.builder.add(self.builder.change(isr=[1, 2, 3], leader=1))

    def catch_up(self) -> list[Damage]:
        """Read new batches as one micro-batch; the position passes through JSON, as in a
        checkpoint."""
        log = read_listing(self.folder)
        end = end_of(log, self.place)
        damage: list[Damage] = []
        for part in between(log, self.place, end):
            for found in walk(part.path, part.start, part.end):
                if isinstance(found, Batch):
                    self.read.append(found.header.base_offset)
                else:
                    damage.append(found)
        self.place = json.loads(json.dumps(end))
        return damage

    def all_read_once(self) -> bool:
        return self.read == self.builder.base_offsets


@pytest.fixture
def log(tmp_path: Path) -> Growing:
    made = Growing(tmp_path)
    made.write()
    made.catch_up()
    assert made.all_read_once()
    return made


def test_a_torn_batch_is_read_when_it_is_whole(log: Growing) -> None:
    log.grow()
    log.write(torn=10)
    log.catch_up()
    assert log.read == log.builder.base_offsets[:-1]
    log.write()
    log.catch_up()
    assert log.all_read_once()


def test_a_new_segment_and_what_the_old_one_got_before(log: Growing) -> None:
    log.grow(2)
    log.write(len(log.builder.batches) - 2)
    log.catch_up()
    assert log.all_read_once()


def test_a_new_segment_that_is_empty_yet(log: Growing) -> None:
    log.grow()
    rolled = len(log.builder.batches)
    log.write()
    (log.folder / f"{log.builder.offset:020d}.log").touch()
    log.catch_up()
    assert log.all_read_once()
    log.grow()
    log.write(rolled)
    log.catch_up()
    assert log.all_read_once()


def test_old_segments_go_when_a_snapshot_has_them(log: Growing) -> None:
    log.grow()
    rolled = len(log.builder.batches)
    log.write()
    log.catch_up()
    log.builder.snapshot()
    log.grow()
    log.write(rolled)
    log.segment(0).unlink()
    for name, content in log.builder.snapshots.items():
        (log.folder / name).write_bytes(content)
    log.catch_up()
    assert log.all_read_once()


def test_following_raises_when_unread_segments_were_removed(log: Growing) -> None:
    log.grow(2)
    log.write(len(log.builder.batches) - 1)
    log.segment(0).unlink()
    with pytest.raises(LogChanged, match=r"begins at offset \d+ now.*only in a snapshot"):
        log.catch_up()


def test_following_raises_when_the_log_was_truncated(log: Growing) -> None:
    log.grow()
    log.write()
    log.catch_up()
    del log.builder.batches[-1], log.builder.base_offsets[-1]
    log.write()
    with pytest.raises(LogChanged, match="the log was truncated there"):
        log.catch_up()


def test_following_raises_when_the_log_was_truncated_and_grew_again(log: Growing) -> None:
    log.grow()
    log.write()
    log.catch_up()
    del log.builder.batches[-1], log.builder.base_offsets[-1]
    log.builder.offset -= 1
    log.builder.epoch += 1
    log.grow(2)
    log.write()
    with pytest.raises(LogChanged, match="the log was truncated there"):
        log.catch_up()


def test_following_raises_when_the_last_segment_was_removed(log: Growing) -> None:
    log.grow()
    last = len(log.builder.batches) - 1
    log.write(last)
    log.catch_up()
    log.segment(last).unlink()
    with pytest.raises(LogChanged, match="no longer has the segment"):
        log.catch_up()


def test_damage_is_passed_when_whole_batches_follow(log: Growing) -> None:
    """A damaged last batch may be one that is still being written."""
    log.grow()
    whole = log.builder.batches[-1]
    log.builder.batches[-1] = whole[:-1] + bytes([whole[-1] ^ 1])
    log.write()
    log.catch_up()
    assert log.read == log.builder.base_offsets[:-1]
    log.grow()
    log.write()
    log.catch_up()
    assert log.all_read_once()
