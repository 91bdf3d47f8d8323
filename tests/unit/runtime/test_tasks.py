import asyncio

import pytest

from runtime.errors import InvariantViolated
from runtime.log import captured
from runtime.tasks import Supervisor


async def fail(error: Exception) -> None:
    raise error


async def test_a_crash_is_reported_once():
    reported: list[tuple[str, BaseException]] = []
    supervisor = Supervisor(lambda name, error: reported.append((name, error)))
    first = supervisor.spawn("one", fail(ValueError("a")))
    second = supervisor.spawn("two", fail(ValueError("b")))
    await asyncio.wait([first, second])
    assert [(name, str(error)) for name, error in reported] == [("one", "a")]
    assert supervisor.failure is not None
    assert len(supervisor) == 0


async def test_a_quiet_task_stops_the_node_only_for_a_broken_invariant():
    reported: list[str] = []
    supervisor = Supervisor(lambda name, error: reported.append(name))
    quiet = supervisor.spawn("request", fail(ValueError("a")), fatal=False)
    await asyncio.wait([quiet])
    assert reported == []
    broken = supervisor.spawn("request", fail(InvariantViolated("x")), fatal=False)
    await asyncio.wait([broken])
    assert reported == ["request"]


async def test_close_waits_for_cleanup_and_for_tasks_started_during_it():
    ended: list[str] = []
    supervisor = Supervisor()

    async def late() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("late")

    async def early() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            supervisor.spawn("late", late())
            await asyncio.sleep(0)
            ended.append("early")

    supervisor.spawn("early", early())
    await asyncio.sleep(0)
    await supervisor.close()
    assert "early" in ended
    assert len(supervisor) == 0


async def test_references_are_held():
    supervisor = Supervisor()
    task = supervisor.spawn("t", asyncio.sleep(0, 5))
    assert len(supervisor) == 1
    assert await task == 5


@pytest.mark.parametrize("fatal", [True, False])
async def test_cancelled_tasks_are_not_failures(fatal):
    supervisor = Supervisor(lambda name, error: pytest.fail("not fatal"))
    task = supervisor.spawn("t", asyncio.Event().wait(), fatal=fatal)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert supervisor.failure is None


def test_survived_errors_are_counted_and_logged_at_powers_of_two():
    supervisor = Supervisor(lambda name, error: pytest.fail("not fatal"))
    with captured() as lines:
        for _ in range(9):
            supervisor.survive("batch", ValueError("a"), b"\x01" * 100, topic="t")
    assert supervisor.survived == {"batch": 9}
    assert [line["count"] for line in lines] == [1, 2, 4, 8]
    assert (lines[0]["head"], lines[0]["bytes"], lines[0]["topic"]) == ("01" * 64, 100, "t")
    (family,) = supervisor.collect()
    assert family.samples == [({"work": "request"}, 0), ({"work": "batch"}, 9)]


def test_a_broken_invariant_is_not_survived():
    reported: list[str] = []
    supervisor = Supervisor(lambda name, error: reported.append(name))
    supervisor.survive("batch", InvariantViolated("x"))
    assert reported == ["batch"]


async def test_close_ends_if_task_ended_before_its_callbacks_ran():
    """From Python 3.12 on, `gather` of ended tasks runs no callback."""
    supervisor = Supervisor()
    ended = asyncio.get_running_loop().create_future()
    task = supervisor.spawn("one", asyncio.wait_for(ended, None))
    await asyncio.sleep(0)
    task.cancel()
    while not task.done():
        task.get_loop().call_soon(lambda: None)
        await asyncio.sleep(0)
    supervisor._tasks[task] = None  # the callback that removes it has not run yet
    task.add_done_callback(supervisor._quiet_done)
    async with asyncio.timeout(5):
        await supervisor.close()
    assert len(supervisor) == 0
