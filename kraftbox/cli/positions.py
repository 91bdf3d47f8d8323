"""Parsing of positions in a topic: times, durations, and the start of reading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from typing import NamedTuple

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.leaders import TopicPartition
from client.offsets import check_in_range, offsets_at

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")


def time_ms(text: str) -> int:
    """Parse a time, `1795274821505` or ISO 8601 (UTC without an offset), into epoch milliseconds.

    Raises ValueError.
    """
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"expected epoch milliseconds or ISO 8601 such as 2026-05-01T12:00:00, got {text!r}"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Parse `90s`, `15m`, `2h` or `1d` into milliseconds. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a duration such as 90s, 15m, 2h or 1d, got {text!r}")
    return int(found[1]) * _UNITS_MS[found[2]]


class Kind(Enum):
    """The unit of a position's number."""

    OFFSET = auto()
    BEFORE_END = auto()
    TIME = auto()
    BEGINNING = auto()


class Position(NamedTuple):
    """The start of reading: an offset, N records before the end, a time in ms, or the beginning."""

    kind: Kind
    number: int = 0


END = Position(Kind.BEFORE_END)


def parse_position(text: str) -> Position:
    """Parse `100`, `end`, `beginning`, `-5` (five before the end) or `@TIME`. Raises ValueError."""
    if text == "end":
        return END
    if text == "beginning":
        return Position(Kind.BEGINNING)
    if text.startswith("@"):
        return Position(Kind.TIME, time_ms(text[1:]))
    if text.isdecimal():
        return Position(Kind.OFFSET, int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Position(Kind.BEFORE_END, int(text[1:]))
    raise ValueError(f"expected OFFSET, end, beginning, -COUNT or @TIME, got {text!r}")


async def resolve(
    client: ClusterClient, partitions: Sequence[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition.

    A time after the last record means the end. If a partition has fewer records than requested,
    reading starts at its first record. Raises OffsetOutOfRange for an offset outside the log,
    Refused, OSError.
    """
    if position.kind is Kind.OFFSET:
        chosen = dict.fromkeys(partitions, position.number)
        await check_in_range(client, chosen)
        return chosen
    if position.kind is Kind.BEGINNING:
        return await offsets_at(client, partitions, EARLIEST)
    last = await offsets_at(client, partitions, LATEST)
    if position.kind is Kind.TIME:
        found = await offsets_at(client, partitions, position.number)
        return {key: found[key] if found[key] >= 0 else last[key] for key in partitions}
    if not position.number:
        return last
    first = await offsets_at(client, partitions, EARLIEST)
    return {key: max(first[key], last[key] - position.number) for key in partitions}
