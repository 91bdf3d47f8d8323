"""Positions in a topic as arguments, and their offsets."""

from __future__ import annotations

import pytest

from client.errors import OffsetOutOfRange
from kraftbox.cli.groups import nearest, shifted
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.positions import (
    END,
    Kind,
    Position,
    duration_ms,
    parse_position,
    resolve,
    time_ms,
)
from testkit.memory.cluster import batch, cluster, connected

NOON_MS = 1_777_636_800_000
PARTITIONS = [("t", 0)]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        (str(NOON_MS), NOON_MS),
        ("2026-05-01T12:00:00", NOON_MS),
        ("2026-05-01T14:00:00+02:00", NOON_MS),
        ("2026-05-01T12:00:00.5Z", NOON_MS + 500),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert time_ms(text) == ms


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)])
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "1", "1w", "-1s", "1 h"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("100", Position(Kind.OFFSET, 100)),
        ("end", END),
        ("beginning", Position(Kind.BEGINNING)),
        ("-5", Position(Kind.BEFORE_END, 5)),
        ("@2026-05-01T12:00:00", Position(Kind.TIME, NOON_MS)),
    ],
)
def test_positions(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "-", "-x", "@", "@noon", "1.5", "latest"])
def test_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected OFFSET|expected epoch"):
        parse_position(text)


@pytest.mark.parametrize(
    ("text", "offset"), [("2", 2), ("3", 3), ("end", 3), ("beginning", 0), ("-2", 1), ("-9", 0)]
)
async def test_position_resolves_to_offset(text: str, offset: int) -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a", b"b", b"c"))
        assert await resolve(client, PARTITIONS, parse_position(text)) == {("t", 0): offset}


async def test_an_offset_that_is_not_there_is_refused() -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a"))
        with pytest.raises(OffsetOutOfRange, match="offset 2 is out of range"):
            await resolve(client, PARTITIONS, Position(Kind.OFFSET, 2))


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (-4, 0), (9, 2)])
async def test_position_outside_log_moves_to_nearest_offset_with_a_warning(
    asked: int, given: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(1) as world, connected(world) as client:
        await client.produce("t", 0, batch(b"a", b"b"))
        assert await nearest(client, {("t", 0): asked}) == {("t", 0): given}
    told = f"kraftbox: t-0 has no offset {asked}: using the nearest, {given}\n"
    assert capsys.readouterr().err == ("" if asked == given else told)


def test_a_shift_begins_where_the_group_is() -> None:
    assert shifted([("t", 0)], {("t", 0): 7, ("u", 0): 1}, -3) == {("t", 0): 4}
    with pytest.raises(CommandFailed, match="--shift-by needs a committed offset; none for t-1"):
        shifted([("t", 1)], {("t", 0): 7}, 1)
