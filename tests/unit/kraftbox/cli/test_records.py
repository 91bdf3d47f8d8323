"""`kraftbox consume` and `produce`: positions outside a log, partitions without a leader."""

from __future__ import annotations

import asyncio

import pytest

from client.consumer import PositionReset
from client.leaders import Leader, LeaderCache
from client.offsets import offsets_at
from client.partitioner import keyless_partition
from kraftbox.cli import producer as producer_module
from kraftbox.cli import records
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.producer import Producer
from kraftbox.cli.record_text import Line
from kraftbox.cli.records import consume, say_reset
from kraftbox.cli.waiting import NAMED_MAX, noticed, say_waiting
from protocol.compression import Codec
from testkit.memory.cluster import batch, cluster, connected


@pytest.mark.parametrize("offset", [99, 2, 2**63])
async def test_an_offset_that_the_log_does_not_have_is_refused(
    offset: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        host, port = world.servers[0].address
        with pytest.raises(CommandFailed) as refused:
            await asyncio.to_thread(
                consume,
                ["t"],
                partition=0,
                offset=str(offset),
                timeout_ms=1,
                bootstrap=f"{host}:{port}",
            )
    assert str(refused.value) == f"t-0: offset {offset} is out of range (0 to 1)"
    assert capsys.readouterr().out == ""


async def test_the_end_of_the_log_is_an_offset_to_wait_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        host, port = world.servers[0].address
        await asyncio.to_thread(
            consume, ["t"], partition=0, offset="1", timeout_ms=1, bootstrap=f"{host}:{port}"
        )
    assert capsys.readouterr().out == ""


async def test_a_number_that_no_request_can_hold_is_one_clear_line() -> None:
    async with cluster(1) as world:
        host, port = world.servers[0].address
        with pytest.raises(CommandFailed, match=r"timestamp: 9223372036854775808 \(allowed"):
            await asyncio.to_thread(
                run, f"{host}:{port}", lambda client: offsets_at(client, [("t", 0)], 2**63)
            )


def test_reset_of_lost_position_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    say_reset(PositionReset("t", 0, 99, 3, 7, 7))
    assert capsys.readouterr().err == (
        "kraftbox: t-0: offset 99 is out of range (3 to 7); continuing at 7\n"
    )


@pytest.mark.parametrize("partition", [None, 0])
async def test_consume_reads_led_partitions_and_names_leaderless_one(
    partition: int | None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leaderless partition concerns only a command that reads it."""
    monkeypatch.setattr(records, "LEADERS_MS_MAX", 0)
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 1
        await client.produce("t", 0, batch(b"a"))
        host, port = world.servers[0].address
        reading = asyncio.to_thread(
            consume, ["t"], partition=partition, exit_at_end=True, bootstrap=f"{host}:{port}"
        )
        if partition is None:
            with pytest.raises(CommandFailed, match=r"^not read: t-1 \(no leader\)$"):
                await reading
        else:
            await reading
    out, err = capfd.readouterr()
    assert out == "a\n"
    assert err == ("kraftbox: reading t-0; no leader: t-1\n" if partition is None else "")


async def test_consume_without_limit_ends_at_its_timeout_despite_leaderless_partition(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 1
        await client.produce("t", 0, batch(b"a"))
        host, port = world.servers[0].address
        with pytest.raises(CommandFailed, match="not read: t-1"):
            await asyncio.to_thread(
                consume, ["t"], from_beginning=True, timeout_ms=100, bootstrap=f"{host}:{port}"
            )
    assert capfd.readouterr().out.startswith("a\n")


async def test_producer_passes_over_leaderless_partition_unless_it_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's producer, too, sends records without a key to partitions with a leader only."""
    monkeypatch.setattr(producer_module, "TIMEOUT_MS", 100)
    monkeypatch.setattr(producer_module, "NOTICE_S", 0.0)
    async with cluster(1) as world, connected(world) as client:
        world.leaderless = 2
        free = Producer(client, "t", Codec.NONE, 0, None)
        await free.start()
        for _ in range(3):
            await free.send([Line(None, b"x")])
        assert free.sent == 3
        capsys.readouterr()
        bound = Producer(client, "t", Codec.NONE, 0, 1)
        await bound.start()
        with pytest.raises(CommandFailed, match="^t-1: "):
            await bound.send([Line(None, b"x")])
    assert capsys.readouterr().err == "kraftbox: waiting for a leader of t-1\n"


def test_keyless_records_go_to_led_partitions_in_turn() -> None:
    cache = LeaderCache()
    assert [keyless_partition(cache, "t", 3, turn) for turn in range(4)] == [0, 1, 2, 0]
    cache.leaders |= {("t", 0): Leader(1, 0), ("t", 1): Leader(-1, 1), ("t", 2): Leader(2, 0)}
    assert [keyless_partition(cache, "t", 3, turn) for turn in range(4)] == [0, 2, 0, 2]


async def test_waiting_lines_name_partitions_and_broker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = [("t", index) for index in range(NAMED_MAX + 2)]
    say_waiting(many, -1)
    say_waiting([("t", 0)], 7)
    async with noticed("never shown"):
        pass
    assert capsys.readouterr().err == (
        "kraftbox: waiting for a leader of t-0, t-1, t-2, t-3, t-4 and 2 more\n"
        "kraftbox: waiting for broker 7, the leader of t-0\n"
    )
