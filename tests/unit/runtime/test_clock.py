import asyncio

from runtime.clock import LoopClock, ManualClock, SystemClock


def test_manual_clock_moves_only_by_calls():
    clock = ManualClock(now_ms=100, monotonic_ms=5.0)
    clock.advance(10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (110, 15.0)
    clock.jump(-60)
    assert (clock.now_ms(), clock.monotonic_ms()) == (50, 15.0)


def test_system_clock_units():
    clock = SystemClock()
    assert clock.now_ms() > 1_600_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()


async def test_loop_clock_follows_the_loop():
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop, epoch_ms=1000)
    before = clock.monotonic_ms()
    assert clock.now_ms() >= 1000
    clock.jump(5000)
    assert clock.now_ms() >= 6000 + int(before)
