"""`kraftbox consume` with positions outside a log."""

from __future__ import annotations

import asyncio

import pytest

from client.consumer import PositionReset
from client.offsets import offsets_at
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.records import consume, say_reset
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
