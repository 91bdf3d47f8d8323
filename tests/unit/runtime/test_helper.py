"""The helper process: tasks, failures, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from runtime.helper import NICENESS, HelperFailed, HelperProcess, HelperStopped


def count_to(limit: int) -> Iterator[int]:
    yield from range(limit)


def tell_about_itself(_: None) -> Iterator[object]:
    print("whoever prints must not break the frames")
    yield os.getpid()
    yield os.nice(0)
    yield signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def break_down(message: str) -> Iterator[int]:
    yield 1
    raise LookupError(message)


def die(_: None) -> Iterator[int]:
    yield 1
    os.kill(os.getpid(), signal.SIGKILL)


def never_end(_: None) -> Iterator[int]:
    yield os.getpid()
    while True:
        signal.pause()


async def results(helper: HelperProcess, task, argument) -> list:
    return [item async for item in helper.run(task, argument)]


@pytest.fixture
async def helper():
    one = HelperProcess()
    yield one
    await one.close()


async def test_a_task_yields_its_results_and_the_process_stays(helper):
    assert helper.pid is None
    assert await results(helper, count_to, 1000) == list(range(1000))
    first = helper.pid
    assert await results(helper, count_to, 3) == [0, 1, 2]
    assert helper.pid == first and helper.starts == 1


async def test_helper_is_a_process_of_lower_priority(helper):
    pid, niceness, deaf = await results(helper, tell_about_itself, None)
    assert pid == helper.pid != os.getpid()
    assert niceness >= min(19, os.nice(0) + NICENESS)
    assert deaf, "Ctrl-C is for the parent"


async def test_a_failure_of_the_task_reaches_the_caller(helper):
    with pytest.raises(HelperFailed, match="LookupError: of no use"):
        await results(helper, break_down, "of no use")
    assert helper.pid is None
    assert await results(helper, count_to, 1) == [0]


async def test_the_death_of_the_process_reaches_the_caller(helper):
    with pytest.raises(HelperFailed, match="ended"):
        await results(helper, die, None)
    assert await results(helper, count_to, 1) == [0]
    assert helper.starts == 2


async def test_stopping_ends_a_running_task(helper):
    with pytest.raises(HelperStopped):
        async with aclosing(helper.run(never_end, None)) as running:
            async for _ in running:
                helper.stop()
    assert helper.pid is None


async def test_helper_task_without_reader_ends_with_its_process(helper):
    async with aclosing(helper.run(never_end, None)) as running:
        pid = await anext(running)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_closing_twice_is_harmless(helper):
    await results(helper, count_to, 1)
    await helper.close()
    await helper.close()
    helper.stop()


@pytest.mark.slow
async def test_helper_ends_with_its_parent():
    """The parent is killed in the middle of a task."""
    program = (
        "import asyncio\n"
        "from runtime.helper import HelperProcess\n"
        "from tests.unit.runtime.test_helper import never_end\n"
        "async def main():\n"
        "    async for pid in HelperProcess().run(never_end, None):\n"
        "        print(pid, flush=True)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None and parent.stderr is not None
    assert int(await parent.stdout.readline()) != parent.pid
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(20):
        # Parent and helper share it: it ends with the last of them.
        await parent.stderr.read()
