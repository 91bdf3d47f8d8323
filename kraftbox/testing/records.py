"""Records as arguments of `KafkaCluster.produce` and results of `consume`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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


Value: TypeAlias = bytes | str | dict[str, Any] | list[Any] | Record | None
"""A record's value; a dict or a list is written as JSON."""


def as_rows(
    values: Iterable[Value],
    *,
    key: bytes | str | None = None,
    headers: Headers | Mapping[str, bytes | str | None] = (),
    partition: int | None = None,
) -> list[list[Any]]:
    """Return the helper's rows: key, value, headers, partition, timestamp.

    `key`, `headers` and `partition` are for values that are not a Record, `partition` also for a
    Record without one. Raises TypeError.
    """
    usual = Record(None, _bytes("key", key), _headers(headers), partition)
    return [_row(value, usual) for value in values]


def _row(value: Value, usual: Record) -> list[Any]:
    if isinstance(value, Record):
        record = value if value.partition is not None else replace(value, partition=usual.partition)
    elif isinstance(value, dict | list):
        record = replace(usual, value=json.dumps(value, separators=(",", ":")).encode())
    elif value is None or isinstance(value, bytes | str):
        record = replace(usual, value=_bytes("value", value))
    else:
        raise TypeError(f"a record must be bytes, str, None, dict, list or a Record, not {value!r}")
    rows = [[name, _bytes(name, each)] for name, each in record.headers]
    own, text = _bytes("key", record.key), _bytes("value", record.value)
    return [own, text, rows, record.partition, record.timestamp_ms]


def _bytes(what: str, value: bytes | str | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{what}: must be bytes, str or None, not {value!r}")


def _headers(headers: Headers | Mapping[str, bytes | str | None]) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _bytes(f"header {name}", value)) for name, value in pairs)


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
