"""All logs of a directory: start, stop, checkpoints, deletion, retention, disk errors."""

from __future__ import annotations

import asyncio
import errno
import posixpath
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from protocol.batch.header import MAGIC_POSITION, iter_batches
from protocol.batch.records import Producer
from protocol.ids import TopicId
from runtime.clock import ManualClock
from runtime.config import NodeConfig
from runtime.slices import SLICE_MS
from storage.files import LossyFiles, MemoryFiles, RealFiles
from storage.log.checkpoints import RECOVERY_POINT_CHECKPOINT, encode_offsets
from storage.log.config import LogConfig
from storage.log.errors import BadLogDirectory, LogFailed
from storage.log.log import Log
from storage.log.manager import LogManager
from storage.log.manager_settings import LogManagerSettings
from storage.log.producers import ProducerState
from testkit.loop_holds import ToilClock, ToilingFiles, loop_holds
from testkit.memory.logs import T0, append, batch, contents, facts, fill

CONFIG = LogConfig(segment_bytes=400)
ID, OTHER_ID = TopicId(b"\x01" * 16), TopicId(b"\x02" * 16)


class World:
    def __init__(self, files=None, config=CONFIG):
        self.files = files or MemoryFiles()
        self.files.mkdirs("/data")
        self.clock = ManualClock(T0)
        self.config = config
        self.failures = []

    def start(self, **options) -> LogManager:
        manager = LogManager(
            self.files,
            "/data",
            clock=self.clock,
            rng=random.Random(4),
            config_for=lambda topic: self.config,
            on_failure=lambda log, error: self.failures.append(log),
            **options,
        )
        manager.load()
        return manager

    def names(self, suffix=""):
        return [name for name in self.files.listdir("/data") if name.endswith(suffix)]


@pytest.fixture
def world():
    return World()


async def maintain(manager: LogManager) -> None:
    """Run one round of maintenance in turn, without the removal of deleted logs."""
    await manager.chores.flush_scheduled()
    await manager.chores.checkpoint_scheduled()
    await manager.chores.tidy_scheduled()


def create(manager, topic="topic", partition=0, topic_id=ID):
    return manager.get_or_create(topic, partition, topic_id, CONFIG)


async def test_a_clean_restart_finds_everything_as_it_was(world):
    manager = world.start()
    before = {}
    for topic in ("a", "b-c", "__consumer_offsets"):
        for partition in (0, 11):
            log = create(manager, topic, partition)
            fill(log, 3 + partition, epoch=2, size=50)
            log.update_high_watermark(2)
            before[(topic, partition)] = facts(log)
    manager.logs[("a", 0)].advance_log_start(2)
    before[("a", 0)] = facts(manager.logs[("a", 0)])
    assert await manager.close(broker_epoch=42)
    assert world.files.read("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'

    again = world.start()
    assert again.report.clean and again.report.problems == []
    assert again.previous_broker_epoch == 42
    assert {key: facts(log) for key, log in again.logs.items()} == before
    assert {log.high_watermark for log in again.logs.values()} == {2}
    assert {log.topic_id for log in again.logs.values()} == {ID}
    assert "/data/.kafka_cleanshutdown" not in world.names()


async def test_the_marker_is_gone_before_the_first_log_is_opened(world):
    manager = world.start()
    create(manager)
    await manager.close(7)
    steps = world.start.__self__  # keep the world alive while the generator is suspended
    half = LogManager(
        steps.files, "/data", clock=steps.clock, rng=random.Random(1), config_for=lambda t: CONFIG
    )
    next(half.load_steps())
    third = world.start()
    assert not third.report.clean
    assert third.previous_broker_epoch == -1


def loading(world) -> LogManager:
    return LogManager(
        world.files, "/data", clock=world.clock, rng=random.Random(1), config_for=lambda t: CONFIG
    )


@pytest.mark.parametrize("epoch", [42, -1])
async def test_a_manager_of_no_registered_broker_gives_its_marker_back(world, epoch):
    """P11: the controllers judge the last shutdown by it at the next start, clean or not."""
    manager = world.start()
    fill(create(manager), 3, size=50)
    await manager.close(epoch)
    for _ in range(2):
        manager = world.start()
        assert manager.report.clean and manager.previous_broker_epoch == epoch
        assert await manager.close()


@pytest.mark.parametrize("opened", [0, 1, 2, 3])
@pytest.mark.parametrize("clean", [True, False])
async def test_a_start_that_ends_while_it_loads_leaves_the_last_shutdown_as_it_was(
    world, clean, opened
):
    """P11: opened and unopened logs are judged as before at the next start, and all checkpoints
    stay."""
    manager = world.start()
    logs = {topic: create(manager, topic) for topic in ("a", "b", "c")}
    for log in logs.values():
        fill(log, 6, size=50)
        log.update_high_watermark(4)
        await log.flush()
    logs["c"].advance_log_start(2)
    before = {topic: facts(log) for topic, log in logs.items()}
    await manager.checkpoints.save_recovery_points()
    await manager.checkpoints.save_high_watermarks()
    await manager.checkpoints.save_log_starts()
    if clean:
        assert await manager.close(42)
    names = [name for name in world.names() if name.endswith("checkpoint")]
    checkpoints = {name: world.files.read(f"/data/{name}") for name in names}

    half = loading(world)
    steps = half.load_steps()
    for _ in range(opened):
        next(steps)
    assert half.loading == (opened > 0)
    if opened:
        assert await half.close() == clean
    assert {name: world.files.read(f"/data/{name}") for name in names} == checkpoints

    again = world.start()
    assert (again.report.clean, again.previous_broker_epoch) == (
        (True, 42) if clean else (False, -1)
    )
    assert again.report.recovered == (0 if clean else 3)
    assert {topic: facts(log) for (topic, _), log in again.logs.items()} == before


async def test_a_log_that_cannot_be_opened_does_not_make_the_last_shutdown_unclean():
    """P11: a disk error ends the start; once the file can be read, the next start is a clean
    one."""
    refused = []

    class Refusing(MemoryFiles):
        def listdir(self, path):
            if refused and path.endswith("b-0"):
                raise OSError(errno.EIO, "broken")
            return super().listdir(path)

    world = World(Refusing())
    manager = world.start()
    for topic in ("a", "b", "c"):
        fill(create(manager, topic), 3, size=50)
    assert await manager.close(42)
    refused.append(True)
    half = loading(world)
    with pytest.raises(OSError, match="broken"):
        half.load()
    assert set(half.logs) == {("a", 0)}
    assert await half.close()
    refused.clear()
    again = world.start()
    assert (again.report.clean, again.report.recovered) == (True, 0)
    assert again.previous_broker_epoch == 42


async def test_a_log_that_lost_its_end_is_not_forgotten_when_the_start_ends_early(world):
    """P11: records that the marker guarantees are missing, and stay so."""
    manager = world.start()
    for topic in ("a", "b"):
        fill(create(manager, topic), 10, size=50)
    path = manager.logs["a", 0].segments.active.log.path
    assert await manager.close(42)
    last = next(reversed(list(iter_batches(world.files.read(path)))))[1]
    world.files.open(path).pwrite(b"\x00", last + MAGIC_POSITION)
    half = loading(world)
    next(half.load_steps())
    await half.close()
    again = world.start()
    assert again.previous_broker_epoch == -1
    assert again.logs["a", 0].log_end_offset < again.logs["b", 0].log_end_offset == 10


async def test_an_unclean_restart_uses_the_recovery_points(world):
    manager = world.start()
    log = create(manager)
    fill(log, 10, size=50)
    await log.flush()
    await manager.checkpoints.save_recovery_points()
    again = world.start()
    assert not again.report.clean
    assert again.logs[("topic", 0)].recovery_report.recovered_segments == 1
    assert facts(again.logs[("topic", 0)]) == facts(log)


async def test_checkpoints_are_kafkas_files(world):
    manager = world.start()
    log = create(manager)
    fill(log, 5, size=50)
    await log.flush()
    log.update_high_watermark(4)
    log.advance_log_start(3)
    await manager.checkpoints.save_recovery_points()
    await manager.checkpoints.save_high_watermarks()
    await manager.checkpoints.save_log_starts()
    assert world.files.read("/data/recovery-point-offset-checkpoint") == b"0\n1\ntopic 0 5\n"
    assert world.files.read("/data/replication-offset-checkpoint") == b"0\n1\ntopic 0 4\n"
    assert world.files.read("/data/log-start-offset-checkpoint") == b"0\n1\ntopic 0 3\n"
    assert log.bounds.saved_log_start == 3


@pytest.mark.parametrize("tiered", [False, True])
def test_only_tiered_logs_are_all_in_the_checkpoint_of_log_starts(world, tiered):
    """A start opens all logs as if they were tiered, until the metadata shows which ones are."""
    create(world.start())
    world.config = LogConfig(remote_storage_enable=True)
    manager = world.start()
    assert manager.checkpoints.log_starts() == {("topic", 0): 0}
    manager.logs[("topic", 0)].configure(LogConfig(remote_storage_enable=tiered))
    assert manager.checkpoints.log_starts() == ({("topic", 0): 0} if tiered else {})


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ],
)
@pytest.mark.parametrize("clean", [True, False])
async def test_broken_checkpoints_are_reported_and_survived(world, name, clean):
    manager = world.start()
    log = create(manager)
    fill(log, 5)
    if clean:
        await manager.close()
    else:
        await manager.checkpoints.save_recovery_points()
    world.files.write_atomic(f"/data/{name}", b"0\n7\nhalf")
    again = world.start()
    assert any(name in problem for problem in again.report.problems)
    assert contents(again.logs[("topic", 0)]) == contents(log)


async def test_truncation_lowers_the_checkpoint(world):
    manager = world.start()
    log = create(manager)
    fill(log, 6)
    await log.flush()
    await maintain(manager)
    await manager.checkpoints.save_recovery_points()
    log.truncate_to(2)
    await maintain(manager)
    assert world.files.read("/data/recovery-point-offset-checkpoint") == b"0\n1\ntopic 0 2\n"


# Making and deleting -------------------------------------------------------------------------


def test_get_or_create(world):
    manager = world.start()
    log = create(manager)
    assert create(manager) is log is manager.get("topic", 0)
    assert manager.get("topic", 1) is None
    assert log.topic_id == ID
    assert world.names() == ["topic-0"]
    for topic, partition in (("../x", 0), ("", 0), ("..", 0), ("t", -1)):
        with pytest.raises(ValueError):
            create(manager, topic, partition)


async def test_a_deleted_log_is_renamed_now_and_removed_later(world):
    manager = world.start()
    log = create(manager)
    fill(log, 3)
    assert manager.delete("topic", 0)
    assert not manager.delete("topic", 0)
    assert manager.get("topic", 0) is None
    assert len(world.names("-delete")) == 1 and world.names("topic-0") == []
    assert create(manager).log_end_offset == 0
    await manager.remove_discarded()
    assert len(world.names("-delete")) == 1
    world.clock.advance(60_000)
    await manager.remove_discarded()
    assert world.names() == ["topic-0"]
    with pytest.raises(LogFailed):
        log.read(0, 100, max_offset=3)
    assert await log.flush() == 0


async def test_leftovers_of_a_deletion_are_removed_after_a_restart(world):
    manager = world.start()
    fill(create(manager), 3)
    manager.delete("topic", 0)
    again = world.start()
    assert len(again) == 0
    assert await again.remove_discarded() == 1
    assert world.names() == []


async def test_a_rename_is_durable_before_what_was_deleted_goes():
    """Otherwise a power cut may leave a folder under a live log's name, without half of its
    files."""
    world = World(files=(files := Witness()))
    manager = world.start()
    fill(create(manager), 3)
    manager.delete("topic", 0)
    await manager.remove_discarded()
    assert files.seen == [("fsync_dir", "/data")]
    await manager.remove_discarded()
    assert len(files.seen) == 1, "nothing new to make durable"
    create(manager)
    manager.delete("topic", 0)
    await manager.remove_discarded(at_once=True)
    assert [kind for kind, _ in files.seen[1:]] == ["fsync_dir", "rmtree", "rmtree"]


class Witness(MemoryFiles):
    """Files that record directory flushes and removals."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def fsync_dir(self, path):
        self.seen.append(("fsync_dir", path))

    def rmtree(self, path):
        self.seen.append(("rmtree", path))
        super().rmtree(path)


async def test_a_removal_that_hangs_holds_up_no_other_chore():
    world = World(files=(files := HeldRemovals()), config=LogConfig(flush_ms=1000))
    manager = world.start(settings=LogManagerSettings(high_watermark_checkpoint_interval_ms=1000))
    log = manager.get_or_create("live", 0, ID, world.config)
    for number in range(20):
        create(manager, f"gone-{number}")
        manager.delete(f"gone-{number}", 0)
    fill(log, 2)
    chores = manager.chores.jobs()
    for chore in chores.values():
        await chore()
    world.clock.advance(60_000)
    removal = asyncio.ensure_future(chores.pop("removal")())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert files.held == 2, "removals leave workers to the others"
    for chore in chores.values():
        await asyncio.wait_for(chore(), 5)
    assert log.recovery_point == 2
    assert world.names("replication-offset-checkpoint")
    files.go.set()
    assert await removal == 20
    assert world.names("-delete") == []


class HeldRemovals(MemoryFiles):
    """Workers whose removals wait until the test releases them."""

    def __init__(self):
        super().__init__()
        self.go = asyncio.Event()
        self.held = 0

    async def run(self, function, *args):
        if function.__name__ == "_remove":
            self.held += 1
            await self.go.wait()
        return function(*args)


def test_a_namesake_with_another_id_makes_room(world):
    manager = world.start()
    fill(create(manager), 3)
    log = create(manager, topic_id=OTHER_ID)
    assert (log.log_end_offset, log.topic_id) == (0, OTHER_ID)
    assert len(world.names("-delete")) == 1


async def test_stray_log_is_renamed_and_ignored_by_the_next_start(world):
    manager = world.start()
    fill(create(manager, "mine"), 2)
    fill(create(manager, "stray", 3, OTHER_ID), 2)
    strays = manager.find_strays(lambda topic, partition, topic_id: topic_id == ID)
    assert [(log.topic, log.partition) for log in strays] == [("stray", 3)]
    path = manager.set_aside("stray", 3)
    assert path is not None and path.endswith("-stray") and world.files.isdir(path)
    assert manager.set_aside("stray", 3) is None
    again = world.start()
    assert list(again.logs) == [("mine", 0)]
    assert again.strays == [path]


@pytest.mark.parametrize("left", [None, b"", b"\0" * 40])
async def test_p4_a_log_that_lost_its_topic_id_is_nobodys(world, left):
    """P4: a power cut may keep the batches of an unflushed log, but not its partition.metadata.

    Such a log was mistaken for that of a re-created topic, and its batches became the first records
    of that replica (seed 4298). An empty log has no records that could be another topic's.
    """
    manager = world.start()
    fill(create(manager), 3)
    create(manager, "empty")
    await manager.close(broker_epoch=42)
    for topic in ("topic", "empty"):
        path = f"/data/{topic}-0/partition.metadata"
        world.files.unlink(path)
        if left is not None:
            world.files.open(path, create=True).append(left)

    again = world.start()
    assert again.previous_broker_epoch == -1, "it may lack what others count on (P11)"
    strays = again.find_strays(lambda topic, partition, topic_id: True)
    assert [(log.topic, log.partition) for log in strays] == [("topic", 0)]
    log = create(again, topic_id=OTHER_ID)
    assert (log.log_end_offset, log.topic_id) == (0, OTHER_ID)
    assert len(world.names("-stray")) == 1, "whoever wants its records finds them"
    empty = create(again, "empty", topic_id=OTHER_ID)
    assert empty is again.get("empty", 0) and empty.topic_id == OTHER_ID
    assert world.names("-stray") == [posixpath.basename(path) for path in again.strays]


# Foreign content -----------------------------------------------------------------------------


def test_manager_leaves_foreign_files_in_the_log_directory(world):
    world.files.mkdirs("/data/__cluster_metadata-0")
    world.files.touch("/data/bootstrap.checkpoint")
    world.files.touch("/data/.lock")
    manager = world.start()
    assert len(manager) == 0
    assert world.names() == [".lock", "__cluster_metadata-0", "bootstrap.checkpoint"]


def test_a_future_folder_is_reported(world):
    world.files.mkdirs(f"/data/t-0.{'0' * 32}-future")
    assert "not supported" in world.start().report.problems[0]


@pytest.mark.parametrize("name", ["lost+found", "..-0", "some where-0", "topic-x", "topic"])
def test_a_strange_folder_stops_the_start(world, name):
    world.files.mkdirs(f"/data/{name}")
    with pytest.raises(BadLogDirectory, match="holds a folder that is no partition's"):
        world.start()


# Periodic work -------------------------------------------------------------------------------


async def test_rolled_logs_are_flushed(world):
    manager = world.start()
    rolled, small = create(manager, "rolled"), create(manager, "small")
    fill(rolled, 10, size=50)
    fill(small, 2)
    await manager.chores.flush_due()
    assert (rolled.recovery_point, small.recovery_point) == (10, 0)


async def test_ten_thousand_rolled_logs_are_found_without_a_search_for_each():
    """`in` on a list compared each of them with all others, which blocked the loop for a second."""
    manager = World().start()
    compared = 0

    class Rolled:
        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return self is other

        def __hash__(self):
            return id(self)

        config = None

        @property
        def durability(self):
            return self

        def is_due(self, config, now_ms):
            return False

        async def flush(self):
            return 0

    logs = [Rolled() for _ in range(10_000)]
    manager.logs = dict(enumerate(logs))
    manager.chores.to_flush = dict.fromkeys(logs)
    await manager.chores.flush_due()
    assert compared < 100
    assert manager.chores.to_flush == {}


async def test_logs_that_are_due_are_flushed_together():
    """One after the other, each with its own flush, they would occupy a slow disk for minutes."""
    world = World(files=(files := CountedFlushes()), config=LogConfig(flush_ms=0))
    manager = world.start()
    for number in range(100):
        fill(manager.get_or_create("t", number, ID, world.config), 1)
    await manager.chores.flush_due()
    assert files.together_max > 50
    assert {log.recovery_point for log in manager.logs.values()} == {1}


class CountedFlushes(MemoryFiles):
    def __init__(self):
        super().__init__()
        self.under_way = self.together_max = 0

    async def flush(self, files):
        self.under_way += 1
        self.together_max = max(self.together_max, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1


async def test_flushes_are_timed():
    world = World(files=(files := SlowFlushes()))
    files.clock = world.clock
    manager = world.start()
    log = create(manager)
    for _ in range(3):
        fill(log, 1)
        await log.flush()
    await log.flush()  # there is nothing to do
    (family,) = manager.collect()
    assert family.name == "kafka_log_logflushstats_logflushrateandtimems"
    *quantiles, (_, count) = family.samples
    assert {value for _, value in quantiles} == {7.0}
    assert count == 3


class SlowFlushes(MemoryFiles):
    """Files whose flush takes seven milliseconds."""

    clock: ManualClock

    async def flush(self, files):
        self.clock.advance(7)
        await super().flush(files)


async def test_idle_partitions_epochs_are_saved_at_leisure(world):
    manager = world.start()
    logs = [create(manager, "t", number) for number in range(40)]
    for log in logs:
        log.history.lead(3)
    await manager.chores.save_epochs_scheduled()
    assert {log.epochs.dirty for log in logs} == {False}
    assert world.files.read("/data/t-39/leader-epoch-checkpoint") == b"0\n1\n3 0\n"
    logs[0].history.lead(4)
    await manager.chores.save_epochs_scheduled()
    world.clock.advance(60_000)
    assert logs[0].epochs.dirty
    await manager.chores.save_epochs_scheduled()
    await manager.chores.save_epochs_scheduled()
    world.clock.advance(60_000)
    await manager.chores.save_epochs_scheduled()
    assert not logs[0].epochs.dirty


def test_another_time_to_forget_producers_holds_for_open_logs_and_new_ones(world):
    manager = world.start()
    log = create(manager, "a")
    append(log, batch(producer=Producer(7, 0, 0)))
    world.clock.advance(60_000)
    assert sum(manager.chores.expiry_steps()) == 0
    manager.reconfigure(LogManagerSettings(producer_id_expiration_ms=60_000))
    other = create(manager, "b")
    assert log.producers.expiration_ms == other.producers.expiration_ms == 60_000
    assert sum(manager.chores.expiry_steps()) == 1


async def test_flush_ms():
    world = World(config=LogConfig(flush_ms=1000))
    manager = world.start()
    log = manager.get_or_create("t", 0, ID, world.config)
    fill(log, 2)
    await maintain(manager)
    world.clock.advance(999)
    await maintain(manager)
    assert log.recovery_point == 0
    world.clock.advance(1001)
    await maintain(manager)
    assert log.recovery_point == 2


async def test_maintenance_applies_retention_by_the_clock():
    world = World(config=LogConfig(segment_bytes=400, retention_ms=1000))
    manager = world.start(settings=LogManagerSettings(retention_check_interval_ms=5000))
    logs = [manager.get_or_create("t", p, ID, world.config) for p in range(3)]
    for log in logs:
        fill(log, 5, size=50)
        log.update_high_watermark(5)
    await maintain(manager)
    world.clock.advance(4999)
    await maintain(manager)
    assert {log.log_start_offset for log in logs} == {0}
    world.clock.advance(1)
    await maintain(manager)
    assert {log.log_start_offset for log in logs} == {5}
    assert any(name.endswith(".deleted") for name in world.files.listdir("/data/t-0"))
    world.clock.advance(60_000)
    await manager.remove_discarded()
    assert not any(name.endswith(".deleted") for name in world.files.listdir("/data/t-0"))


async def test_no_chore_holds_the_loop_for_long():
    """Work of thousands of logs, segments and producers is counted (see `loop_holds`)."""
    clock = ToilClock(T0)
    world = World(files=ToilingFiles(clock), config=LogConfig(segment_bytes=400, retention_ms=1000))
    world.clock = clock
    manager = world.start()
    for number in range(300):
        create(manager, "gone", number)
    log = manager.get_or_create("t", 0, ID, world.config)
    fill(log, 500, size=200)
    log.update_high_watermark(500)
    for producer_id in range(5_000):
        log.producers._producers[producer_id] = state = ToilingState(producer_id)
        state.clock, state.last_timestamp_ms = clock, T0
    for chore in manager.chores.jobs().values():
        await chore()
    for number in range(300):
        manager.delete("gone", number)
    clock.advance(24 * 3_600_000)
    async with loop_holds(clock) as holds:
        for chore in manager.chores.jobs().values():
            await chore()
    assert log.log_start_offset == 500 and len(log.producers) == 0
    assert world.names("-delete") == []
    assert holds.longest_ms < 3 * SLICE_MS


async def test_checkpoints_are_encoded_in_a_worker(monkeypatch):
    clock = ToilClock(T0)
    files = ToilingFiles(clock)
    world = World(files=files)
    world.clock = clock
    manager = world.start()
    for number in range(100):
        create(manager, "t", number)

    def encode_slowly(offsets):
        if not files.working:
            clock.toil(0.1 * len(offsets))
        return encode_offsets(offsets)

    monkeypatch.setattr("storage.log.offset_checkpoint.encode_offsets", encode_slowly)
    async with loop_holds(clock) as holds:
        await manager.checkpoints.save_high_watermarks()
        await manager.checkpoints.save_recovery_points()
    assert holds.longest_ms < SLICE_MS
    assert len(manager.checkpoints.read(RECOVERY_POINT_CHECKPOINT)) == 100


class ToilingState(ProducerState):
    """A producer's state whose idle check counts as work."""

    clock: ToilClock

    @property
    def txn_first_offset(self):
        self.clock.toil(0.004)
        return None

    @txn_first_offset.setter
    def txn_first_offset(self, value):
        return


def test_retention_of_all(world):
    world.config = LogConfig(segment_bytes=400, retention_bytes=0)
    manager = world.start()
    log = manager.get_or_create("t", 0, ID, world.config)
    fill(log, 5, size=50)
    log.update_high_watermark(5)
    assert sum(manager.chores.retention_steps([*manager.logs])) > 1
    assert sum(manager.chores.expiry_steps()) == 0


@pytest.mark.parametrize("copied", [True, False])
async def test_s4_tiered_log_starts_after_a_crash_at_an_offset_that_still_exists(world, copied):
    world.config = LogConfig(
        segment_bytes=400,
        retention_bytes=0,
        remote_storage_enable=True,
        remote_log_copy_disable=not copied,
    )
    manager = world.start()
    log = manager.get_or_create("t", 0, ID, world.config)
    fill(log, 10, size=50)
    await log.flush()
    log.update_high_watermark(10)
    if copied:
        log.advance_log_start(7)  # DeleteRecords
    await manager.chores.tidy_scheduled()
    world.clock.advance(manager.settings.retention_check_interval_ms)
    await manager.chores.tidy_scheduled()
    assert log.segments.first_base_offset > 0, "in the same round"
    again = world.start().logs[("t", 0)]
    assert again.segments.first_base_offset <= again.log_start_offset == log.log_start_offset


async def test_an_unchanged_checkpoint_is_not_written_again(world):
    manager = world.start()
    create(manager)
    await manager.checkpoints.save_high_watermarks()
    world.files.unlink("/data/replication-offset-checkpoint")
    await manager.checkpoints.save_high_watermarks()
    assert "replication-offset-checkpoint" not in world.names()


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_power_cut_that_undoes_a_truncation_shows_nothing_that_was_cut(flushed):
    """P4: another leader's record was committed at the truncated offsets."""
    world = World(LossyFiles(MemoryFiles()))
    manager = world.start()
    log = create(manager)
    fill(log, 9)
    await log.flush()
    log.update_high_watermark(4)
    log.truncate_to(6)
    log.truncate_to(8)
    fill(log, 3, epoch=1)
    log.update_high_watermark(9)
    if flushed:
        await log.flush()
    assert log.bounds.durable_high_watermark == (9 if flushed else 6)
    await manager.checkpoints.save_high_watermarks()
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    log = world.start().logs[("topic", 0)]
    assert (log.log_end_offset, log.high_watermark) == (9, 9 if flushed else 6)
    assert log.epochs.epoch_at(6) == (1 if flushed else 0)


@pytest.mark.parametrize("flushed", [False, True])
async def test_p4_unflushed_truncation_of_a_killed_process_may_be_undone(flushed):
    """P4, seed 600: the disk has no trace of the truncation for the next process."""
    world = World(LossyFiles(MemoryFiles()))
    log = create(world.start())
    fill(log, 9)
    await log.flush()
    log.truncate_to(6)
    fill(log, 3, epoch=1)
    manager = world.start()  # the page cache has all of it
    log = manager.logs[("topic", 0)]
    assert (log.log_end_offset, log.epochs.epoch_at(6)) == (9, 1)
    log.update_high_watermark(9)
    if flushed:
        await manager.chores.flush_due()
    await manager.checkpoints.save_high_watermarks()
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    log = world.start().logs[("topic", 0)]
    assert log.log_end_offset == 9
    assert (log.epochs.epoch_at(6), log.high_watermark) == ((1, 9) if flushed else (0, 0))


async def test_the_topic_id_that_a_killed_process_has_written_is_flushed_with_the_log():
    """P18: without the topic id the records are not durable, even if they were flushed."""
    world = World(LossyFiles(MemoryFiles()))
    fill(create(world.start()), 3)
    log = world.start().logs[("topic", 0)]  # the page cache has all of it
    assert log.topic_id == ID
    assert await log.flush() == 3
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    again = world.start()
    log = again.logs[("topic", 0)]
    assert (log.topic_id, log.log_end_offset) == (ID, 3)
    assert again.find_strays(lambda topic, partition, topic_id: True) == []


async def test_a_cut_is_on_the_disk_with_the_next_round_of_flushes(world):
    manager = world.start()
    log = create(manager)
    fill(log, 9)
    log.truncate_to(6)
    await manager.chores.flush_due()
    assert not log.bounds.cut_unflushed


async def test_a_new_log_does_not_inherit_the_checkpoints_of_its_namesake():
    """A topic is deleted and created again, and the machine fails before the next checkpoint."""
    world = World(LossyFiles(MemoryFiles()))
    manager = world.start()
    old = create(manager)
    fill(old, 9, size=50)
    await old.flush()
    old.update_high_watermark(9)
    old.advance_log_start(5)
    for write in (
        manager.checkpoints.save_recovery_points,
        manager.checkpoints.save_log_starts,
        manager.checkpoints.save_high_watermarks,
    ):
        await write()
    assert manager.delete("topic", 0)
    new = create(manager, topic_id=OTHER_ID)
    fill(new, 2, size=50)
    await new.flush()
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    log = world.start().logs[("topic", 0)]
    assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (OTHER_ID, 0, 2)
    assert log.recovery_report.recovered_segments == 1
    assert log.high_watermark == 0


def held_world() -> tuple[World, asyncio.Event, asyncio.Event]:
    """Return a world with waiting workers, the event that releases them, and one set when a worker
    waits."""
    gate, waiting = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        waiting.set()
        await gate.wait()

    return World(LossyFiles(MemoryFiles(), before_work=hold)), gate, waiting


def fill_and_begin_at(log: Log, offset: int) -> None:
    """Write nine batches to the disk, and move the log start to `offset`."""
    fill(log, 9, size=50)
    log.durability.flush_blocking()
    log.update_high_watermark(9)
    log.advance_log_start(offset)


async def test_a_checkpoint_under_way_does_not_bring_a_namesake_back():
    world, gate, waiting = held_world()
    manager = world.start()
    old = create(manager)
    fill(old, 9, size=50)
    old.update_high_watermark(9)
    old.advance_log_start(5)
    writing = asyncio.ensure_future(manager.checkpoints.save_log_starts())
    await waiting.wait()
    manager.delete("topic", 0)
    create(manager, topic_id=OTHER_ID)
    gate.set()
    await writing
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    assert world.start().logs[("topic", 0)].log_start_offset == 0


async def test_s4_log_starts_are_durable_when_their_checkpoint_returns():
    """S4: this holds whatever else writes the same file at the same time."""
    world, gate, waiting = held_world()
    manager = world.start()
    for each in (create(manager), create(manager, "other")):
        fill_and_begin_at(each, 5)
    saving = asyncio.ensure_future(manager.checkpoints.save_log_starts())
    await waiting.wait()
    manager.delete("other", 0)
    create(manager, "other", topic_id=OTHER_ID)  # which removes the line of the old one
    gate.set()
    await saving
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    assert world.start().logs[("topic", 0)].log_start_offset == 5


@pytest.mark.parametrize("tiered", [False, True])
@pytest.mark.parametrize("under_way", [False, True])
async def test_a_log_that_begins_lower_than_before_is_not_emptied_by_the_old_start(
    tiered, under_way
):
    """P1, F20: after an unclean election a follower begins its log below its start on the disk.

    After a crash the old start was above the log's end, and all later records were dropped (seed
    1399).
    """
    world, gate, waiting = held_world()
    manager = world.start()
    log = create(manager)
    world.config = replace(log.config, remote_storage_enable=tiered)
    log.configure(world.config)
    fill_and_begin_at(log, 7)
    saving = asyncio.ensure_future(manager.checkpoints.save_log_starts())
    await waiting.wait()
    if not under_way:
        gate.set()
        await saving
    log.truncate_fully_and_start_at(2)
    fill(log, 3, size=50)
    log.durability.flush_blocking()
    if under_way:
        gate.set()
        await saving
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    again = world.start().logs[("topic", 0)]
    assert (again.log_start_offset, again.log_end_offset) == (2, 5)


async def test_s4_log_start_checkpoints_requested_during_a_write_share_the_next():
    world, gate, waiting = held_world()
    manager = world.start()
    log = create(manager)
    fill_and_begin_at(log, 4)
    written: list[int] = []
    write = manager.checkpoints.write

    async def counted(name: str, offsets: Mapping[tuple[str, int], int]) -> bool:
        written.append(offsets["topic", 0])
        return await write(name, offsets)

    manager.checkpoints.write = counted
    first = asyncio.ensure_future(manager.checkpoints.save_log_starts())
    await waiting.wait()
    log.advance_log_start(5)
    others = [asyncio.ensure_future(manager.checkpoints.save_log_starts()) for _ in range(5)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in others), "what is being written is older than they are"
    gate.set()
    await asyncio.gather(first, *others)
    assert written == [4, 5]
    assert log.bounds.saved_log_start == 5
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    assert world.start().logs[("topic", 0)].log_start_offset == 5


async def test_log_start_checkpoints_of_one_loop_iteration_check_all_logs_once():
    """Regression: two hundred logs that begin together were each checked two hundred times.

    There was nothing left to write.
    """
    manager = World().start()
    create(manager)
    looks = 0
    look = manager.checkpoints.log_starts

    def counted() -> Mapping[tuple[str, int], int]:
        nonlocal looks
        looks += 1
        return look()

    manager.checkpoints.log_starts = counted
    await asyncio.gather(*(manager.checkpoints.save_log_starts() for _ in range(5)))
    assert looks == 1


async def test_s4_failed_log_start_write_fails_only_its_own_caller():
    manager = World().start()
    log = create(manager)
    fill(log, 9, size=50)
    log.update_high_watermark(9)
    log.advance_log_start(5)
    write = manager.checkpoints.write

    async def fails(name: str, offsets: Mapping[tuple[str, int], int]) -> bool:
        manager.checkpoints.write = write
        raise OSError("disk")

    manager.checkpoints.write = fails
    found = await asyncio.gather(
        *(manager.checkpoints.save_log_starts() for _ in range(3)), return_exceptions=True
    )
    assert [type(one) for one in found] == [OSError, type(None), type(None)]
    assert log.bounds.saved_log_start == 5


TIERED = replace(CONFIG, remote_storage_enable=True)


async def _tiered_without_its_oldest(world: World, manager: LogManager) -> Log:
    """Return a log whose oldest segments were removed before tiering, and that the checkpoint
    lacks."""
    log = create(manager)
    fill(log, 9, size=50)
    await log.flush()
    log.update_high_watermark(9)
    log.configure(replace(CONFIG, retention_bytes=300))
    assert log.retention(T0)
    await manager.checkpoints.save_log_starts()
    assert ("topic", 0) not in manager.checkpoints.log_starts()
    world.config = TIERED
    log.configure(TIERED)
    return log


async def test_s4_the_start_of_a_log_that_becomes_tiered_is_saved_at_once():
    world = World(LossyFiles(MemoryFiles()))
    manager = world.start()
    start = (await _tiered_without_its_oldest(world, manager)).log_start_offset
    await manager.chores.checkpoint_scheduled()
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    assert world.start().logs[("topic", 0)].log_start_offset == start > 0


async def test_a_start_that_the_checkpoint_does_not_name_any_more_is_not_counted_on():
    """S4: the line was removed while the log was not tiered and its first segment had the same
    start."""
    manager = World().start()
    log = create(manager)
    fill(log, 9, size=50)
    log.update_high_watermark(9)
    first = log.segments[1].base_offset
    log.advance_log_start(first)
    await manager.checkpoints.save_log_starts()
    assert log.bounds.saved_log_start == first
    assert log.retention(T0)
    await manager.checkpoints.save_log_starts()
    assert log.bounds.saved_log_start == 0


# Disk errors ---------------------------------------------------------------------------------


async def test_a_failed_log_makes_the_shutdown_unclean():
    broken = []

    def hook(kind, path):
        if broken and kind == "append" and "bad-0" in path:
            raise OSError(errno.EIO, "broken")

    world = World(LossyFiles(MemoryFiles(), on_op=hook))
    manager = world.start()
    good, bad = create(manager, "good"), create(manager, "bad")
    fill(good, 2)
    fill(bad, 2)
    broken.append(True)
    with pytest.raises(LogFailed):
        append(bad, batch())
    fill(good, 1)
    assert world.failures == [bad]
    assert not await manager.close()
    assert ".kafka_cleanshutdown" not in world.names()
    broken.clear()
    world.files.crash()
    world.files = LossyFiles(world.files.backing)
    again = world.start()
    assert again.logs[("good", 0)].log_end_offset == 3


async def test_a_failed_flush_at_the_end_is_unclean_too():
    failing = []

    def hook(kind, path):
        if failing and kind == "fsync" and path.endswith(".log"):
            raise OSError(errno.EIO, "broken")

    world = World(LossyFiles(MemoryFiles(), on_op=hook))
    manager = world.start()
    fill(create(manager), 2)
    failing.append(True)
    assert not await manager.close()
    assert ".kafka_cleanshutdown" not in world.names()


@pytest.mark.parametrize(
    "refused",
    ["recovery-point", "replication-offset", "cleanshutdown", "topic-0", "/"],
)
async def test_a_disk_that_refuses_makes_the_shutdown_unclean_and_ends_it(refused):
    """The node continues with the rest of its shutdown."""
    failing = []

    def hook(kind, path):
        if failing and refused in path:
            raise OSError(errno.ENOSPC, "full")

    world = World(LossyFiles(MemoryFiles(), on_op=hook))
    manager = world.start()
    fill(create(manager), 2)
    failing.append(True)
    assert not await manager.close()
    assert ".kafka_cleanshutdown" not in world.names()


# Real files ----------------------------------------------------------------------------------


async def test_many_logs_with_few_descriptors(tmp_path):
    files = RealFiles(fd_budget=16)
    clock = ManualClock(T0)

    def start():
        manager = LogManager(
            files, str(tmp_path), clock=clock, rng=random.Random(1), config_for=lambda topic: CONFIG
        )
        manager.load()
        return manager

    manager = start()
    logs = [create(manager, "t", partition) for partition in range(50)]
    for turn in range(8):
        for log in logs:
            append(log, batch(2, size=40, tag=f"{turn}-"), turn // 4)
            assert files.open_descriptors <= 16
    expected = {log.partition: facts(log) for log in logs}
    assert await manager.close(3)
    again = start()
    assert again.report.clean
    assert {log.partition: facts(log) for log in again.logs.values()} == expected
    await again.close()
    files.close()


def settings_of(**props: str) -> LogManagerSettings:
    node = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "2@localhost:9093",
    }
    given = {name.replace("_", "."): text for name, text in props.items()}
    return LogManagerSettings.of(NodeConfig.parse({**node, **given}))


async def test_flush_scheduler_runs_at_the_configured_interval():
    """Kafka's default, never, is not used: a topic's flush.ms would have no effect."""
    assert settings_of().flush_scheduler_interval_ms == 1_000
    world = World(config=LogConfig(flush_ms=1000))
    manager = world.start(settings=settings_of(log_flush_scheduler_interval_ms="60000"))
    log = manager.get_or_create("t", 0, ID, world.config)
    fill(log, 2)
    await maintain(manager)
    world.clock.advance(30_000)
    await maintain(manager)
    assert log.recovery_point == 0
    world.clock.advance(30_000)
    await maintain(manager)
    assert log.recovery_point == 2


async def test_a_log_that_lost_its_end_after_a_clean_shutdown_makes_it_an_unclean_one(world):
    """P11, F20: the marker guarantees all records, but the disk has lost the last batch.

    The controllers must not treat this broker as if it had stopped with all its records.
    """
    manager = world.start()
    log, other = create(manager), create(manager, "other")
    for one in (log, other):
        fill(one, 10, size=50)
    assert await manager.close(broker_epoch=42)
    path = log.segments.active.log.path
    last = next(reversed(list(iter_batches(world.files.read(path)))))[1]
    world.files.open(path).pwrite(b"\x00", last + MAGIC_POSITION)

    again = world.start()
    assert again.report.clean and again.report.recovered == 1
    assert again.logs[("topic", 0)].log_end_offset < 10
    assert again.logs[("other", 0)].log_end_offset == 10
    assert again.previous_broker_epoch == -1
