"""A crash at every file operation of a workload: no flushed record is lost, none is invented.

A workload (appends of idempotent producers in rising epochs, rolls, flushes, checkpoints,
truncations, retention, deletes, restarts) runs over `LossyFiles`, which drops unflushed data. It is
stopped at its n-th file operation, for every n, and the machine is started again.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest

from protocol.batch.header import iter_batches
from protocol.batch.records import Producer
from protocol.ids import TopicId
from runtime.clock import ManualClock
from storage.files import Files, LossyFiles, MemoryFiles
from storage.log.config import LogConfig
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.producers import ProducerStates
from storage.log.recovery import rebuild_epochs, replay_producers
from testkit.memory.logs import T0, batch, contents
from testkit.memory.power_cut import PowerCut, after_power_cut

OpHook = Callable[[str, str], None]
TOPIC_ID = TopicId(b"\x09" * 16)
CONFIG = LogConfig(
    segment_bytes=400, index_interval_bytes=80, retention_bytes=1500, file_delete_delay_ms=0
)

ACTIONS = (
    *["append"] * 8,
    *["flush", "checkpoint"] * 2,
    *["elect", "truncate", "retention", "restart"],
)

# (seed, steps) of runs that once found a bug, and one that did not.
SEEDS = [(1, 40), (2, 60), (19, 90), (25, 90)]


class Countdown:
    def __init__(self, operations: int):
        self.left = operations
        self.done = 0

    def __call__(self, kind: str, path: str) -> None:
        self.done += 1
        self.left -= 1
        if self.left == 0:
            raise PowerCut(f"{kind} {path}")


class Life:
    """A workload, and the guarantees given while it ran."""

    def __init__(self, backing: MemoryFiles, on_op: OpHook, seed: int):
        self.files = LossyFiles(backing, on_op=on_op)
        self.rng = random.Random(seed)
        self.clock = ManualClock(T0)
        self.values: dict[int, bytes] = {}
        self.durable_end = 0
        self.leader_epoch = 0
        self.sequences = {1: 0, 2: 0}
        self.count = 0

    def manager(self) -> LogManager:
        return LogManager(
            self.files,
            "/data",
            clock=self.clock,
            rng=random.Random(1),
            config_for=lambda topic: CONFIG,
        )

    async def run(self, steps: int) -> None:
        manager, log = self.begin()
        for _ in range(steps):
            action = self.rng.choice(ACTIONS)
            if action == "restart":
                await self.end(manager, log)
                manager, log = self.begin()
            else:
                await getattr(self, action)(manager, log)
        await self.end(manager, log)

    def begin(self) -> tuple[LogManager, Log]:
        self.files.mkdirs("/data")
        manager = self.manager()
        manager.load()
        return manager, manager.get_or_create("topic", 0, TOPIC_ID, CONFIG)

    async def end(self, manager: LogManager, log: Log) -> None:
        assert await manager.close(5)
        self.durable_end = log.log_end_offset

    async def append(self, manager: LogManager, log: Log) -> None:
        producer_id = self.rng.choice([1, 2])
        count = self.rng.randint(1, 3)
        self.count += 1
        data = batch(
            count,
            size=self.rng.choice([5, 60]),
            timestamp=T0 + self.count,
            producer=Producer(producer_id, self.leader_epoch, self.sequences[producer_id]),
            tag=f"{self.count}-",
        )
        info = log.append_as_leader(data, self.leader_epoch, T0)
        self.sequences[producer_id] += count
        for at in range(count):
            self.values[info.first_offset + at] = b"%d-%d" % (self.count, at)

    async def flush(self, manager: LogManager, log: Log) -> None:
        await log.flush()
        self.durable_end = log.log_end_offset

    async def checkpoint(self, manager: LogManager, log: Log) -> None:
        log.update_high_watermark(log.log_end_offset)
        await manager.chores.save_epochs()
        await manager.checkpoints.save_recovery_points()
        await manager.checkpoints.save_high_watermarks()
        await manager.checkpoints.save_log_starts()

    async def elect(self, manager: LogManager, log: Log) -> None:
        """Begin a new leader epoch with new producer epochs, so that no step must continue their
        sequences."""
        self.leader_epoch += 1
        self.sequences = {1: 0, 2: 0}
        log.history.lead(self.leader_epoch)

    async def truncate(self, manager: LogManager, log: Log) -> None:
        if log.log_end_offset - log.log_start_offset < 8:
            return
        target = log.log_end_offset - self.rng.randint(1, 4)
        # A batch of three records is removed as a whole.
        self.durable_end = min(self.durable_end, target - 2)
        log.truncate_to(target)
        await self.elect(manager, log)

    async def retention(self, manager: LogManager, log: Log) -> None:
        log.update_high_watermark(log.log_end_offset)
        log.retention(T0)
        await manager.remove_discarded()


def verify(backing: Files, life: Life) -> None:
    """Restart the machine and check the log."""
    life.files = LossyFiles(backing)
    manager, log = life.begin()
    assert log.log_end_offset >= life.durable_end
    found = contents(log)
    assert [offset for offset, _ in found] == list(range(log.log_start_offset, log.log_end_offset))
    for offset, value in found:
        if offset < life.durable_end:
            assert value.strip() == life.values[offset]
    check_derived_state(log)
    info = log.append_as_leader(batch(3, tag="after"), life.leader_epoch + 1, T0)
    assert info.first_offset == (found[-1][0] + 1 if found else log.log_start_offset)


def check_derived_state(log: Log) -> None:
    """Assert that epochs, producers and indexes match the batches in the log."""
    rebuilt = rebuild_epochs(list(log.segments))
    rebuilt.truncate_from_start(log.log_start_offset, log.log_end_offset)
    # An empty log may know an epoch that was to begin at its end.
    known = [entry for entry in log.epochs.entries if entry.start_offset < log.log_end_offset]
    assert known == rebuilt.entries
    assert known == log.epochs.entries or log.log_end_offset == log.log_start_offset
    producers = ProducerStates(log.producers.expiration_ms)
    first = log.segments.first_base_offset
    replay_producers(producers, list(log.segments), first, log.log_end_offset)
    for state in producers:
        kept = log.producers.get(state.producer_id)
        assert kept is not None
        assert (kept.epoch, kept.last_sequence, kept.last_offset) == (
            state.epoch,
            state.last_sequence,
            state.last_offset,
        )
    for segment in log.segments:
        segment.ensure_indexes()
        bounds = {pos: h.last_offset for h, pos in iter_batches(segment.log.pread(1 << 20, 0))}
        for offset, position in segment.offset_index.entries():
            assert bounds[position] == offset


async def total_operations(seed: int, steps: int) -> int:
    countdown = Countdown(-1)
    life = Life(MemoryFiles(), countdown, seed)
    await life.run(steps)
    return countdown.done


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize(("seed", "steps"), SEEDS)
async def test_a_crash_at_every_operation_loses_nothing_flushed(seed, steps, torn):
    checked = 0

    def crash_here(kind: str, path: str) -> None:
        nonlocal checked
        checked += 1
        left = after_power_cut(life.files, random.Random(checked) if torn else None)
        try:
            verify(left, copy.copy(life))
        except AssertionError as error:
            raise PowerCut(f"seed {seed}, operation {checked}: {kind} {path}") from error

    life = Life(MemoryFiles(), crash_here, seed)
    await life.run(steps)
    assert checked > steps


async def test_a_crash_during_recovery_recovers_to_the_same():
    seed, steps = 5, 40
    backing = MemoryFiles()
    life = Life(backing, Countdown(await total_operations(seed, steps) - 10), seed)
    with pytest.raises(PowerCut):
        await life.run(steps)
    life.files.crash(random.Random(3))
    operations = 1
    while True:
        life.files = LossyFiles(backing, on_op=Countdown(operations))
        try:
            life.begin()
            break
        except PowerCut:
            life.files.crash(random.Random(operations))
            operations += 1
    assert operations >= 3
    life.files.crash()
    verify(backing, life)
