"""Partition changes that differ from their neighbour in the log by nothing but the partition.

A broker that is fenced changes thousands of partitions, in a handful of ways, and the controller
writes and every other node reads them one after the other. The partition id is the first field of
such a record and has a fixed size: what stands around it is encoded, or decoded, once for all of a
row. Decoded records of a row share their lists, which nobody changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

from metalog.image.snapshot import VersionedRecord
from protocol.metadata import PartitionChangeRecord, decode_record, encode_record

_ID_AT: Final = 3
"""Behind the versions of frame and record and the record's type, each a byte."""
_ID_END: Final = _ID_AT + 4
_rest = attrgetter(
    "unknown_tags", *(f.name for f in PartitionChangeRecord.FIELDS if f.name != "partition_id")
)


def encoded(records: Iterable[VersionedRecord]) -> Iterator[bytes]:
    """Each record in its version, as `encode_record` encodes it. Raises what that raises."""
    last: Any = None
    head = tail = b""
    for record, version in records:
        if type(record) is not PartitionChangeRecord:
            yield encode_record(record, version)
            continue
        rest = version, _rest(record)
        if rest == last and 0 <= record.partition_id < 1 << 31:
            yield head + record.partition_id.to_bytes(4, "big") + tail
            continue
        value = encode_record(record, version)
        last, head, tail = rest, value[:_ID_AT], value[_ID_END:]
        yield value


def decoded(values: Iterable[bytes]) -> Iterator[Any]:
    """Each record, as `decode_record` decodes it. Raises what that raises."""
    known: PartitionChangeRecord | None = None
    head = tail = b""
    for value in values:
        if known is not None and value[_ID_END:] == tail and value[:_ID_AT] == head:
            partition_id = int.from_bytes(value[_ID_AT:_ID_END], "big", signed=True)
            yield known.replace(partition_id=partition_id)
            continue
        record, _ = decode_record(value)
        if type(record) is PartitionChangeRecord:
            known, head, tail = record, value[:_ID_AT], value[_ID_END:]
        yield record
