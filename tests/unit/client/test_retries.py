"""Retries of the client, and the error that it raises in the end."""

from __future__ import annotations

import asyncio

import pytest

from client import retries
from client.errors import LeaderMoved, Refused
from client.retries import retrying
from protocol.errors import ApiError, ErrorCode, ProtocolError


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Count backoff times without waiting for them."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(retries.asyncio, "sleep", sleep)
    return found


def attempts(*outcomes: Exception | str):
    waiting = list(outcomes)

    async def attempt(left_ms: float) -> str:
        assert left_ms > 0
        outcome = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return attempt


async def test_retrying_transient_error_repeats_after_backoff(pauses: list[float]) -> None:
    refused = Refused("t-0", ErrorCode.NOT_ENOUGH_REPLICAS)
    attempt = attempts(refused, ConnectionResetError(), TimeoutError(), "done")
    assert await retrying(10_000.0, attempt) == "done"
    assert pauses == [0.05] * 3


async def test_a_newer_leader_is_tried_at_once(pauses: list[float]) -> None:
    moved = LeaderMoved(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert await retrying(10_000.0, attempts(moved, moved, "done")) == "done"
    assert pauses == []


@pytest.mark.parametrize(
    "error", [ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION), ProtocolError("what")]
)
async def test_retrying_permanent_error_is_raised_at_once(
    error: Exception, pauses: list[float]
) -> None:
    with pytest.raises(type(error)):
        await retrying(10_000.0, attempts(error, "done"))
    assert pauses == []


@pytest.mark.parametrize(
    "error",
    [
        ApiError(ErrorCode.LEADER_NOT_AVAILABLE),
        LeaderMoved(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ConnectionRefusedError(),
    ],
)
async def test_the_last_error_is_raised_when_the_time_is_over(error: Exception) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(type(error)):
        await retrying(20.0, attempts(error))
    assert loop.time() - begun < 5.0


async def test_retrying_uses_predicate_of_caller(pauses: list[float]) -> None:
    absent = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(ApiError):
        await retrying(10_000.0, attempts(absent, "done"), lambda _: False)
    odd = ApiError(ErrorCode.INVALID_REPLICATION_FACTOR)
    assert await retrying(10_000.0, attempts(odd, "done"), lambda _: True) == "done"


async def test_retrying_attempt_cut_by_the_timeout_raises_the_refusal_before() -> None:
    """The broker's reason helps the caller; that the last attempt had no time left does not."""
    refusal, calls = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), 0

    async def attempt(left_ms: float) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise refusal
        await asyncio.sleep(left_ms / 1000.0)
        raise ConnectionResetError("not answered in time")

    with pytest.raises(ApiError) as caught:
        await retrying(400.0, attempt)
    assert caught.value is refusal and calls == 2
