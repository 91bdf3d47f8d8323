"""Fast encoding and decoding of consecutive partition changes that differ only by partition id.

A fenced broker changes thousands of partitions in a few ways; the controller writes them one after
the other, and every other node reads them so. The partition id is the first field of such a record
and has a fixed size. The bytes around it are encoded or decoded once per sequence. Decoded records
of a sequence share their lists, which must not be modified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

from metalog.image.snapshot import VersionedRecord
from protocol.metadata import PartitionChangeRecord, decode_record, encode_record

_ID_AT: Final = 3
"""After the frame version, the record type and the record version, one byte each."""
_ID_END: Final = _ID_AT + 4
_rest = attrgetter(
    "unknown_tags", *(f.name for f in PartitionChangeRecord.FIELDS if f.name != "partition_id")
)


def encoded(records: Iterable[VersionedRecord]) -> Iterator[bytes]:
    """Yield each record as `encode_record` encodes it, and raise the same errors."""
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
    """Yield each record as `decode_record` decodes it, and raise the same errors."""
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
