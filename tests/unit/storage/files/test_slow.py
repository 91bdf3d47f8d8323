"""The slow disk: waiting times of operations, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from storage.files import MemoryFiles, SlowFiles

FLUSH_MS, READ_MS = 1000.0, 100.0


class Disk(SlowFiles):
    def __init__(self) -> None:
        self.blocked: list[float] = []
        super().__init__(
            MemoryFiles(), flush_ms=FLUSH_MS, read_ms=READ_MS, block=self.blocked.append
        )
        self.mkdirs("/d")


async def timed(work: Awaitable[object]) -> float:
    """Return how many seconds an operation takes."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await work
    return round(loop.time() - begun, 3)


def on_virtual_time(scenario: Callable[[Disk], Awaitable[None]]) -> None:
    loop = VirtualLoop(Network(random.Random(1)))

    async def run() -> None:
        await scenario(Disk())

    loop.run_world(run())
    assert loop.failures == []
    loop.close()


def test_slow_disk_appends_and_reads_take_no_time() -> None:
    async def scenario(disk: Disk) -> None:
        async def use() -> None:
            file = disk.open("/d/a", create=True)
            file.append(b"abc")
            assert file.pread(3, 0) == b"abc"

        assert await timed(use()) == 0.0
        assert disk.blocked == []

    on_virtual_time(scenario)


def test_slow_disk_flushes_requested_during_a_flush_share_the_next() -> None:
    async def scenario(disk: Disk) -> None:
        files = [disk.open(f"/d/{name}", create=True) for name in "abcd"]
        first = asyncio.ensure_future(timed(disk.flush(files[:1])))
        await asyncio.sleep(0.25)
        later = [asyncio.ensure_future(timed(disk.flush([file]))) for file in files]
        assert await first == 1.0
        assert await asyncio.gather(*later) == [1.75] * 4

    on_virtual_time(scenario)


def test_slow_disk_cancelled_flush_does_not_block_other_flushes() -> None:
    async def scenario(disk: Disk) -> None:
        file = disk.open("/d/a", create=True)
        running = asyncio.ensure_future(disk.flush([file]))
        await asyncio.sleep(0.5)
        leads = asyncio.ensure_future(disk.flush([file]))
        await asyncio.sleep(0)
        shares = asyncio.ensure_future(timed(disk.flush([file])))
        await asyncio.sleep(0.1)
        for task in (running, leads):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert await shares == 1.1

    on_virtual_time(scenario)


def test_cold_reads_and_calls_of_a_worker_take_their_time() -> None:
    async def scenario(disk: Disk) -> None:
        file = disk.open("/d/a", create=True)
        file.append(b"abc")
        assert await timed(disk.pread(file, 3, 0)) == 0.1
        assert await timed(disk.run(disk.write_atomic, "/d/b", b"x")) == 1.0
        assert await timed(disk.run(disk.fsync_dir, "/d")) == 1.0
        assert await timed(disk.run(disk.read, "/d/b")) == 0.1
        assert await timed(disk.run(len, b"abc")) == 0.0
        assert disk.blocked == []

    on_virtual_time(scenario)


def test_a_blocking_call_blocks() -> None:
    async def scenario(disk: Disk) -> None:
        file = disk.open("/d/a", create=True)
        disk.fsync(file)
        disk.fsync_dir("/d")
        disk.write_atomic("/d/b", b"x")
        assert disk.read("/d/b") == b"x"
        assert disk.blocked == [1.0, 1.0, 1.0, 0.1]

    on_virtual_time(scenario)
