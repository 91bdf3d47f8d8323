import asyncio

from runtime.loop_lag import LoopLag


def values(lag: LoopLag) -> dict[str, float]:
    return {family.name: next(iter(family.samples))[1] for family in lag.collect()}


async def test_a_stall_shows_as_the_worst_once():
    lag = LoopLag(every_ms=60_000)
    loop = asyncio.get_running_loop()
    lag._tick(loop.time() - 0.03)
    lag._tick(loop.time() + 1.0)
    lag.stop()
    first = values(lag)
    assert first["kraftbox_loop_lag_worst_seconds"] >= 0.03
    assert first["kraftbox_loop_lag_seconds"] == 0
    assert values(lag)["kraftbox_loop_lag_worst_seconds"] == 0


async def test_of_a_lag_only_what_the_thread_used_is_its_own():
    cpu_s = [5.0]
    lag = LoopLag(every_ms=60_000, cpu_s=lambda: cpu_s[0])
    loop = asyncio.get_running_loop()
    lag.start()
    cpu_s[0] += 0.01
    lag._tick(loop.time() - 0.5)
    assert round(values(lag)["kraftbox_loop_lag_worst_cpu_seconds"], 6) == 0.01
    cpu_s[0] += 50.0
    lag._tick(loop.time() - 0.5)
    lag.stop()
    assert 0.5 <= values(lag)["kraftbox_loop_lag_worst_cpu_seconds"] < 50.0
    assert values(lag)["kraftbox_loop_lag_worst_cpu_seconds"] == 0


async def test_stopped_it_measures_nothing():
    lag = LoopLag(every_ms=1)
    lag.start()
    lag.stop()
    lag.stop()
    await asyncio.sleep(0.01)
    assert lag.worst_ms == 0


async def test_idle_is_the_time_without_work():
    loop = asyncio.get_running_loop()
    cpu_s = [5.0]
    lag = LoopLag(every_ms=30_000, cpu_s=lambda: cpu_s[0])
    assert lag.idle() == 1.0
    lag._loads.append((loop.time() - 10.0, 5.0))
    assert lag.idle() == 1.0
    cpu_s[0] = 500.0
    assert lag.idle() == 0.0
    assert values(lag)["kraftbox_loop_cpu_seconds_total"] == 500.0
