"""Limits of a batch that is walked on the event loop."""

from __future__ import annotations

import pytest

from broker.replication.reading.walk_limits import (
    BYTES_MAX,
    COMPRESSED_BYTES_MAX,
    RECORDS_MAX,
    is_heavy,
)
from protocol.batch.header import BatchHeader, parse_header
from protocol.batch.records import Record, build_batch
from protocol.compression import Codec


def header(records: int, codec: Codec = Codec.NONE) -> BatchHeader:
    batch = build_batch([Record(value=b"")] * records, compression=codec)
    return parse_header(batch)


@pytest.mark.parametrize(
    ("records", "codec", "size_bytes", "heavy"),
    [
        (RECORDS_MAX, Codec.NONE, BYTES_MAX, False),
        (RECORDS_MAX + 1, Codec.NONE, 1, True),
        (1, Codec.NONE, BYTES_MAX + 1, True),
        (1, Codec.GZIP, COMPRESSED_BYTES_MAX, False),
        (1, Codec.GZIP, COMPRESSED_BYTES_MAX + 1, True),
    ],
)
def test_a_batch_is_heavy_by_its_records_or_its_bytes(
    records: int, codec: Codec, size_bytes: int, heavy: bool
) -> None:
    assert is_heavy(header(records, codec), size_bytes) is heavy
