"""Waits of the test API: what they report, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from client.leaders import Leader
from client.producer import NotProduced
from kraftbox.cli.output import CommandFailed
from kraftbox.testing import ClusterError, answers, running
from kraftbox.testing.running import wait_for
from testkit.memory.cluster import cluster, connected


def test_wait_names_what_it_waits_for_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After 2 s, a line on standard error names the awaited condition."""
    monkeypatch.setattr(running, "NOTICE_S", 0.0)
    monkeypatch.setattr(running, "POLL_S", 0.0)
    found = iter([None, None, 7])
    assert wait_for(lambda: next(found), "a leader of t-0") == 7
    assert capsys.readouterr().err == "kraftbox: waiting for a leader of t-0\n"
    assert wait_for(lambda: 7, "nothing") == 7
    assert capsys.readouterr().err == ""


def test_wait_ends_at_its_timeout_with_the_last_error() -> None:
    def refused() -> None:
        raise ClusterError("no broker is running")

    with pytest.raises(ClusterError, match="no broker is running"):
        wait_for(refused, "a leader", 0.0)
    with pytest.raises(ClusterError, match="^a leader: not within 0 s$"):
        wait_for(lambda: None, "a leader", 0.0)
    with pytest.raises(ClusterError, match="^unknown topic t$"):
        wait_for(lambda: None, "unknown topic t", 0.0, told=False)


async def test_produce_names_leaderless_partition_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line and the error name the partition; the caller's timeout ends the wait."""
    monkeypatch.setattr(answers, "NOTICE_S", 0.0)
    sent: list[asyncio.Future[None]] = []

    class Producer:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        async def __aenter__(self) -> Producer:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        def send(self, *_: object) -> asyncio.Future[None]:
            future = asyncio.get_running_loop().create_future()
            error = NotProduced(TimeoutError("expired"), certain=True)
            asyncio.get_running_loop().call_later(0.05, future.set_exception, error)
            sent.append(future)
            return future

    monkeypatch.setattr(answers, "IdempotentProducer", Producer)
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 1
        rows = [[None, b"x", [], 1, None]]
        question = {"topic": "t", "records": rows, "turn": 0, "timeout_ms": 50.0}
        with pytest.raises(CommandFailed, match="^t-1: expired$"):
            await answers.produce(client, question)
        assert client.cache.leaders["t", 1] == Leader(-1, 5)
    assert capsys.readouterr().err == "kraftbox: waiting for a leader of t-1\n"
    assert len(sent) == 1
