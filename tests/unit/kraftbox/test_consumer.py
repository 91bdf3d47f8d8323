"""What `kraftbox consume` does when leaders move or die, against brokers that share one log."""

from __future__ import annotations

import asyncio

import pytest

from client.cluster_client import Leader
from kraftbox.cli import consumer as consumer_module
from kraftbox.cli.client import Client, run
from kraftbox.cli.consumer import Consumer, Received
from kraftbox.cli.offsets import end_offsets
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.records import consume
from protocol.errors import ApiError, ErrorCode
from tests.unit.client.test_cluster_client import batch, cluster, connected


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "RETRY_S", 0.001)


async def read(consumer: Consumer, count: int, polls_max: int = 20) -> list[bytes | None]:
    found: list[bytes | None] = []

    def sink(received: Received) -> bool:
        found.append(received.value)
        return len(found) < count

    for _ in range(polls_max):
        await consumer.poll(sink)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records after {polls_max} polls")


@pytest.mark.parametrize("hints", [True, False])
async def test_it_follows_the_leader(hints: bool) -> None:
    """KIP-951: where the refusal names the new leader, nobody is asked for metadata."""
    async with cluster() as world, connected(world) as client:
        world.hints = hints
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(Client(client))
        consumer.assign({("t", 0): 0})
        assert await read(consumer, 1) == [b"a"]
        asked = world.metadata_asked
        world.leader = Leader(1, 6)
        await client.produce("t", 0, batch(b"b"))
        after_produce = world.metadata_asked
        client.cache.leaders["t", 0] = Leader(0, 5)
        assert await read(consumer, 1) == [b"b"]
        assert client.cache.leaders["t", 0] == Leader(1, 6)
        assert (world.metadata_asked == after_produce) is hints
        assert (after_produce == asked) is hints


async def test_a_leader_that_dies_is_replaced() -> None:
    async with cluster(3) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(Client(client))
        consumer.assign({("t", 0): 0})
        assert await read(consumer, 1) == [b"a"]
        await world.servers[0].close(grace_ms=0)
        del world.servers[0]
        world.leader = Leader(2, 7)
        await client.produce("t", 0, batch(b"b"))
        assert await read(consumer, 1) == [b"b"]


async def test_it_gives_up_when_nobody_leads_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "PATIENCE_S", 0.0)
    async with cluster(2) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(Client(client))
        consumer.assign({("t", 0): 0})
        await read(consumer, 1)
        await world.servers[0].close(grace_ms=0)
        with pytest.raises((OSError, ApiError)):
            await read(consumer, 1)


async def test_errors_that_waiting_cannot_cure_end_it() -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(Client(client))
        consumer.assign({("t", 0): 0})
        world.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(CommandFailed, match="TOPIC_AUTHORIZATION_FAILED"):
            await read(consumer, 1)


async def test_a_broker_that_is_behind_is_asked_again() -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(Client(client))
        consumer.assign({("t", 0): 0})
        world.errors = [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE]
        assert await read(consumer, 1) == [b"a"]


@pytest.mark.parametrize("offset", [99, 2, 2**63])
async def test_an_offset_that_the_log_does_not_have_is_refused(
    offset: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        host, port = world.servers[0].address
        with pytest.raises(CommandFailed) as refused:
            await asyncio.to_thread(
                consume, ["t"], partition=0, offset=offset, timeout_ms=1, bootstrap=f"{host}:{port}"
            )
    assert str(refused.value) == f"t-0 has no offset {offset}: it begins at 0 and ends at 1"
    assert capsys.readouterr().out == ""


async def test_the_end_of_the_log_is_an_offset_to_wait_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        host, port = world.servers[0].address
        await asyncio.to_thread(
            consume, ["t"], partition=0, offset=1, timeout_ms=1, bootstrap=f"{host}:{port}"
        )
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("position", "goes_on"), [(99, 1), (-5, 0)])
async def test_a_position_that_is_gone_goes_on_at_the_nearest_end(
    position: int, goes_on: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        consumer = Consumer(Client(client))
        consumer.assign({("t", 0): position})
        world.errors = [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await consumer.poll(lambda _: True) == 0
        assert consumer.positions == {("t", 0): goes_on}
    assert f"t-0 has no offset {position} any more" in capsys.readouterr().err


async def test_a_number_that_no_request_can_hold_is_one_clear_line() -> None:
    async with cluster(1) as world:
        host, port = world.servers[0].address
        with pytest.raises(CommandFailed, match=r"timestamp: 9223372036854775808 \(allowed"):
            await asyncio.to_thread(
                run, f"{host}:{port}", lambda client: end_offsets(client, [("t", 0)], 2**63)
            )
