"""Records as arguments of `KafkaCluster.produce` and results of `consume`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """A record; `value` None is a tombstone.

    `partition`, `offset` and `timestamp_ms` (since 1970) are None until they are assigned. The hash
    of the key selects the partition, as in Kafka's clients; records without a key go to the
    partitions in turn. The log assigns the offset, and the clock the timestamp.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None


def as_rows(values: Iterable[bytes | str | Record | None]) -> list[list[Any]]:
    """Return the helper's rows: key, value, headers, partition, timestamp. Raises TypeError."""
    return [_row(value) for value in values]


def _row(value: bytes | str | Record | None) -> list[Any]:
    if isinstance(value, str):
        value = value.encode()
    if value is None or isinstance(value, bytes):
        value = Record(value)
    if not isinstance(value, Record):
        raise TypeError(f"a record must be bytes, str, None or a Record, not {value!r}")
    headers = [[name, each] for name, each in value.headers]
    return [value.key, value.value, headers, value.partition, value.timestamp_ms]


def from_rows(rows: Iterable[Sequence[Any]]) -> list[Record]:
    """Return the records of the helper's answer."""
    return [
        Record(value, key, tuple((name, each) for name, each in headers), partition, offset, at_ms)
        for key, value, headers, partition, offset, at_ms in rows
    ]


def sized(rows: Sequence[list[Any]], bytes_max: int) -> Iterable[list[list[Any]]]:
    """Yield the rows in groups that fit into a frame.

    A row that is too large is a group of its own.
    """
    group: list[list[Any]] = []
    size = 0
    for row in rows:
        key, value, headers = row[:3]
        own = 64 + len(key or b"") + len(value or b"")
        own += sum(16 + len(name) + len(each or b"") for name, each in headers)
        if group and size + own > bytes_max:
            yield group
            group, size = [], 0
        group.append(row)
        size += own
    if group:
        yield group
