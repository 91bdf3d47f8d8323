"""A crash at every file operation of a workload with compaction.

The newest durable record of each key remains, no truncated record returns, and the next round
succeeds. As in `storage/log/test_crash`, but the log is compacted and keys repeat. Rounds run next
to appends, rolls and truncations, which happen while a round waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
from collections.abc import Callable

import pytest

from protocol.batch.header import iter_batches
from protocol.batch.records import Producer
from protocol.ids import TopicId
from storage.files import Files, LossyFiles, MemoryFiles
from storage.log.producers import ProducerStates
from storage.log.recovery import replay_producers
from testkit.memory.cleaning import Cleaning
from testkit.memory.power_cut import after_power_cut

OpHook = Callable[[str, str], None]
TOPIC_ID = TopicId(b"\x09" * 16)
HORIZON_MS = 1_000
KEYS = 6
ACTIONS = (
    *["append"] * 8,
    *["roll", "clean"] * 3,
    *["clean_meanwhile", "flush", "pause", "truncate", "restart"],
)
SEEDS = [(1, 40), (2, 60)]


class Life:
    """A workload, and the records that a reader may expect after its crash."""

    def __init__(self, backing: MemoryFiles, on_op: OpHook, seed: int) -> None:
        self.files = LossyFiles(backing, on_op=on_op, before_work=lambda: asyncio.sleep(0))
        self.rng = random.Random(seed)
        self.written: dict[int, tuple[str, str | None]] = {}
        self.durable_end = 0
        self.cut: set[str] = set()
        """Keys of truncated records: the records that they had replaced may be gone, too."""
        self.ripe: dict[int, int] = {}
        """Tombstones by offset, with the earliest time of their removal."""
        self.sequences: dict[int, int] = {}
        self.epoch = 0
        self.count = 0

    def as_it_is(self) -> Life:
        """Return a copy: the expectations for a crash at this moment."""
        then = copy.copy(self)
        then.rng = copy.copy(self.rng)
        then.written, then.cut = dict(self.written), set(self.cut)
        then.ripe, then.sequences = dict(self.ripe), dict(self.sequences)
        return then

    def open(self) -> Cleaning:
        cleaning = Cleaning(
            self.files,
            segment_bytes=500,
            index_interval_bytes=80,
            delete_retention_ms=HORIZON_MS,
        )
        cleaning.log.update_high_watermark(cleaning.log.log_end_offset)
        return cleaning

    async def run(self, steps: int) -> None:
        at = self.open()
        for _ in range(steps):
            action = self.rng.choice(ACTIONS)
            if action == "restart":
                await self.end(at)
                clock = at.clock
                at = self.open()
                at.clock.advance(int(clock.now_ms() - at.clock.now_ms()))
            elif action in ("append", "roll", "truncate"):
                getattr(self, action)(at)
                await at.cleaner.checkpoint()  # as `run` does after a truncation
            else:
                await getattr(self, action)(at)
        await self.end(at)

    async def end(self, at: Cleaning) -> None:
        assert await at.manager.close()
        self.durable_end = at.log.log_end_offset

    def append(self, at: Cleaning) -> None:
        producer_id = self.rng.choice([-1, 1, 2])
        records = []
        for _ in range(self.rng.randint(1, 3)):
            self.count += 1
            value = None if self.rng.random() < 0.2 else f"{self.count}"
            records.append((f"k{self.rng.randrange(KEYS)}", value))
        producer = Producer()
        if producer_id > 0:
            sequence = self.sequences.get(producer_id, 0)
            producer = Producer(producer_id, self.epoch, sequence)
            self.sequences[producer_id] = sequence + len(records)
        first = at.append(*records, producer=producer, epoch=self.epoch)
        for offset, record in enumerate(records, first):
            self.written[offset] = record
            if record[1] is None:
                self.ripe[offset] = at.clock.now_ms() + HORIZON_MS

    def roll(self, at: Cleaning) -> None:
        at.log.roll()

    def truncate(self, at: Cleaning) -> None:
        """Truncate to a new leader's log: by a few records, or by most of the cleaned ones."""
        log = at.log
        depth = self.rng.choice([2, 5, 20])
        target = max(log.log_start_offset, log.log_end_offset - depth)
        # A batch of three records is truncated as a whole.
        self.durable_end = min(self.durable_end, target - 2)
        for offset in [offset for offset in self.written if offset >= target - 2]:
            self.cut.add(self.written[offset][0])
        log.truncate_to(target)
        for offset in [offset for offset in self.written if offset >= log.log_end_offset]:
            del self.written[offset]
        log.update_high_watermark(log.log_end_offset)
        self.epoch += 1
        self.sequences.clear()

    async def clean(self, at: Cleaning) -> None:
        await at.clean()
        self.durable_end = max(self.durable_end, at.log.recovery_point)

    async def clean_meanwhile(self, at: Cleaning) -> None:
        """Run a round with another operation at one of its waits."""
        at.roll()
        round_ = asyncio.ensure_future(at.clean())
        try:
            for _ in range(self.rng.randrange(12)):
                await asyncio.sleep(0)
            getattr(self, self.rng.choice(["append", "roll", "truncate"]))(at)
            await round_
        finally:
            round_.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await round_

    async def flush(self, at: Cleaning) -> None:
        await at.log.flush()
        await at.manager.checkpoints.save_recovery_points()
        await at.manager.remove_discarded()
        self.durable_end = max(self.durable_end, at.log.recovery_point)

    async def pause(self, at: Cleaning) -> None:
        at.clock.advance(self.rng.choice([1, HORIZON_MS]))


async def verify(backing: Files, life: Life) -> None:
    """Restart the machine and check the log."""
    life.files = LossyFiles(backing)
    at = life.open()
    found = at.records()
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    for offset, key, value in found:
        if offset < life.durable_end:
            assert life.written[offset] == (key, value)
    # Later records may belong to a history that was truncated without a flush.
    life.written = {at: life.written[at] for at in life.written if at < life.durable_end}
    life.written |= {offset: (key, value) for offset, key, value in found}
    check_newest(life, {offset for offset, _, _ in found})
    check_derived_state(life, at)
    assert not at.names(".swap") and not at.names(".cleaned")
    life.sequences.clear()
    life.epoch += 1
    life.append(at)
    assert await at.roll_and_clean()
    found = at.records()
    assert len({key for _, key, _ in found}) == len(found), "one record a key is left"
    check_newest(life, {offset for offset, _, _ in found})
    check_derived_state(life, at)


def check_newest(life: Life, kept: set[int]) -> None:
    newest: dict[str, int] = {}
    for offset, (key, _) in life.written.items():
        if offset < life.durable_end:
            newest[key] = max(offset, newest.get(key, -1))
    for key, offset in newest.items():
        later = any(life.written[other][0] == key for other in kept if other > offset)
        gone_by_right = key in life.cut or offset in life.ripe
        assert offset in kept or later or gone_by_right, f"{key} at {offset} is gone"


def check_derived_state(life: Life, at: Cleaning) -> None:
    """Assert that indexes point at batches, and that rebuilt producer state equals the known one.

    After a truncation it may be older: batches later than those of a producer are gone, too.
    """
    log = at.log
    for segment in log.segments:
        segment.ensure_indexes()
        bounds = {pos: h.last_offset for h, pos in iter_batches(segment.log.pread(1 << 20, 0))}
        for offset, position in segment.offset_index.entries():
            assert bounds[position] == offset
        for timestamp_ms, offset in segment.time_index.entries():
            assert timestamp_ms >= 0 and offset in bounds.values()
    producers = ProducerStates(log.producers.expiration_ms)
    first = log.segments.first_base_offset
    replay_producers(producers, list(log.segments), first, log.log_end_offset)
    for state in log.producers:
        if not life.cut:
            again = producers.get(state.producer_id)
            assert again is not None
            assert (again.epoch, again.last_sequence, again.last_offset) == (
                state.epoch,
                state.last_sequence,
                state.last_offset,
            )


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize(("seed", "steps"), SEEDS)
async def test_a_crash_at_every_operation_keeps_the_newest_records(
    seed: int, steps: int, torn: bool
) -> None:
    crashed: list[tuple[Files, Life]] = []

    def crash_here(kind: str, path: str) -> None:
        tear = random.Random(len(crashed) + 1) if torn else None
        crashed.append((after_power_cut(life.files, tear), life.as_it_is()))

    life = Life(MemoryFiles(), crash_here, seed)
    await life.run(steps)
    assert len(crashed) > steps
    for operation, (left, then) in enumerate(crashed, 1):
        try:
            await verify(left, then)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, operation {operation}") from error
