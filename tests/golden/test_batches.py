"""Batches of foreign encoders, decoded to equal records, and ours decoded by foreign decoders.

`batches/kafka_4_3_1.json` holds the batches that Apache Kafka's own `MemoryRecords` wrote for the
records below, one batch for each codec and kind.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder

from protocol.batch import (
    Producer,
    Record,
    build_batch,
    build_end_txn_marker,
    iter_checked,
    parse_header,
    patch,
    read_end_txn_marker,
    read_records,
    whole_batches_size,
)
from protocol.batch.validate import AppendRules, validate_produce
from protocol.compression import Codec

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as PyBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as PyBuilder

BASE_MS = 1_700_000_000_000
GOLDEN = {
    name: bytes.fromhex(text)
    for name, text in json.loads(
        (Path(__file__).parent / "batches" / "kafka_4_3_1.json").read_text()
    ).items()
}
BIG = "".join(f"value {n % 7};" for n in range(9000)).encode()


def records(base: int = 0) -> list[Record]:
    return [
        Record(base, BASE_MS, b"k0", b"v0"),
        Record(base + 1, BASE_MS - 10, None, b"no key"),
        Record(base + 2, BASE_MS + 123, b"tombstone", None),
        Record(
            base + 3, BASE_MS + 5, b"h", b"headers", [("a", b"1"), ("a", None), ("\u00e9", b"")]
        ),
        Record(base + 4, BASE_MS + 6, b"big", BIG),
    ]


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_batch_reads_equal(name: str) -> None:
    raw = GOLDEN[name]
    count = 4 if name == "none" else 5
    assert len(list(iter_checked(raw))) == 1
    assert parse_header(raw).compression is Codec[name.upper()]
    assert list(read_records(raw)) == records()[:count]
    rules = AppendRules(always_walk=True)
    assert validate_produce(raw, 12, rules, BASE_MS).data is raw


def test_kafka_bytes_are_our_bytes() -> None:
    two = records()[:2]
    assert build_batch(records()[:4]) == GOLDEN["none"]
    idempotent = build_batch(two, 100, leader_epoch=5, producer=Producer(4000, 3, 17))
    assert idempotent == GOLDEN["idempotent"]
    transactional = build_batch(two, producer=Producer(4000, 3, 17, transactional=True))
    assert transactional == GOLDEN["transactional"]
    marker = build_end_txn_marker(
        4000, 3, commit=True, coordinator_epoch=11, timestamp_ms=BASE_MS, leader_epoch=2
    )
    patched = bytearray(marker)
    patch(patched, 7, 2)
    (ours,) = read_records(patched, include_control=True)
    (theirs,) = read_records(GOLDEN["commit"], include_control=True)
    assert read_end_txn_marker(ours) == read_end_txn_marker(theirs) == (True, 11)
    assert ours.key == theirs.key
    assert parse_header(patched).fields()[5:] == parse_header(GOLDEN["commit"]).fields()[5:]


def test_kafka_log_append_time() -> None:
    raw = GOLDEN["log_append_time"]
    assert {record.timestamp for record in read_records(raw)} == {1234567890123}
    assert [record.offset for record in read_records(raw)] == [50, 51]


@pytest.mark.parametrize("name", GOLDEN)
def test_kafka_batch_byte_by_byte(name: str) -> None:
    raw = GOLDEN[name]
    step = 1 if len(raw) < 1000 else 97
    for length in range(0, len(raw), step):
        assert whole_batches_size(raw[:length]) == 0
    for tail in (b"\x00", b"\x00" * 11, raw[:60]):
        assert whole_batches_size(raw + tail) == len(raw)


def foreign(builder_class: Any, codec: Codec) -> bytes:
    extra = {"batch_size": 10**6}
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        **extra,
    )
    for record in records():
        appended = builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert appended is not None
    return bytes(builder.build())


def python_codecs(theirs: str) -> list[Codec]:
    # kafka-python needs optional libraries for all codecs but gzip; aiokafka uses ours.
    return [Codec.NONE, Codec.GZIP] if theirs == "kafka-python" else list(Codec)


FOREIGN = [
    pytest.param(build, read, codec, id=f"{name}-{codec.name.lower()}")
    for name, build, read in (
        ("kafka-python", PyBuilder, PyBatch),
        ("aiokafka", AioBuilder, AioBatch),
    )
    for codec in python_codecs(name)
]


@pytest.mark.parametrize(("builder", "_reader", "codec"), FOREIGN)
def test_foreign_batches_decode_to_equal_records(builder: Any, _reader: Any, codec: Codec) -> None:
    raw = foreign(builder, codec)
    assert list(read_records(raw)) == records()
    validate_produce(raw, 9, AppendRules(always_walk=True), BASE_MS)


@pytest.mark.parametrize(("_builder", "reader", "codec"), FOREIGN)
def test_foreign_decoders_read_our_batches(_builder: Any, reader: Any, codec: Codec) -> None:
    batch = reader(build_batch(records(), 70, compression=codec))
    assert batch.validate_crc()
    read = [
        Record(
            record.offset, record.timestamp, record.key, record.value, list(record.headers or ())
        )
        for record in batch
    ]
    assert read == records(70)
