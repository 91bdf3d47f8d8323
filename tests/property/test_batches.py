"""Laws of record batches over arbitrary records and arbitrary bytes."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import (
    CorruptBatch,
    InvalidRecord,
    Producer,
    Record,
    build_batch,
    crc_ok,
    iter_batches,
    parse_header,
    patch,
    read_records,
    rebuild_batch,
    whole_batches_size,
)
from protocol.batch.records import read_varlong, scan, varint
from protocol.batch.validate import AppendRules, validate_produce
from protocol.compression import Codec, compress, decompress
from protocol.errors import ApiError

int64 = st.integers(-(2**62), 2**62)
blobs = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=4)
records = st.lists(
    st.builds(
        lambda timestamp, key, value, headers: Record(
            timestamp=timestamp, key=key, value=value, headers=headers
        ),
        int64,
        blobs,
        blobs,
        headers,
    ),
    min_size=1,
    max_size=20,
)
codecs = st.sampled_from(list(Codec))


@given(records, codecs, st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_read_is_the_inverse_of_build(
    given_records: list[Record], codec: Codec, base: int, epoch: int
) -> None:
    batch = build_batch(given_records, base, compression=codec, leader_epoch=epoch)
    header = parse_header(batch)
    assert crc_ok(batch, 0, len(batch))
    assert header.size_bytes == len(batch)
    assert header.max_timestamp == max(-1, *(record.timestamp for record in given_records))
    read = list(read_records(batch))
    assert [record.offset for record in read] == [base + n for n in range(len(given_records))]
    for one, other in zip(read, given_records, strict=True):
        other.offset = one.offset
        assert one == other
    assert list(read_records(rebuild_batch(header, read))) == read


@given(records, codecs, codecs)
def test_validation_accepts_what_we_build_and_rewrites_it_equal(
    given_records: list[Record], codec: Codec, target: Codec
) -> None:
    batch = build_batch(given_records, compression=codec, producer=Producer(1, 0, 0))
    rules = AppendRules(compression=target, always_walk=True, timestamp_after_max_ms=2**63)
    valid = validate_produce(batch, 12, rules, 0)
    assert list(read_records(valid.data)) == list(read_records(batch))
    out = bytearray(valid.data)
    patch(out, 2**50, 77)
    assert crc_ok(out, 0, len(out))


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_cut_log_reads_up_to_the_last_whole_batch(
    batches: list[list[Record]], data: st.DataObject
) -> None:
    built = [build_batch(one) for one in batches]
    log = b"".join(built)
    length = data.draw(st.integers(0, len(log)))
    whole = total = 0
    for one in built:
        if total + len(one) > length:
            break
        total += len(one)
        whole += 1
    assert whole_batches_size(log[:length]) == total
    assert len(list(iter_batches(log[:length]))) == whole


@given(st.binary(max_size=300))
def test_any_bytes_give_records_or_a_named_error(raw: bytes) -> None:
    with contextlib.suppress(CorruptBatch, InvalidRecord, ApiError):
        list(read_records(raw, budget_bytes=100_000))


@given(st.binary(max_size=200), st.integers(-1, 50))
def test_any_payload_scans_or_is_invalid(raw: bytes, count: int) -> None:
    try:
        found = list(scan(raw, count))
    except InvalidRecord as error:
        assert 0 <= error.index <= max(count, 0) or count < 0
    else:
        assert len(found) == max(count, 0)


@given(st.binary(max_size=400), codecs)
@settings(max_examples=300)
def test_any_bytes_decompress_or_fail_within_the_budget(raw: bytes, codec: Codec) -> None:
    with contextlib.suppress(ApiError):
        assert len(decompress(codec, raw, 10_000)) <= 10_000


@given(st.binary(max_size=5000), st.integers(1, 400), codecs)
def test_codec_round_trip(block: bytes, times: int, codec: Codec) -> None:
    data = block * times
    assert decompress(codec, compress(codec, data), max(len(data), 1)) == data


@given(st.integers(-(2**63), 2**63 - 1))
def test_varint_round_trip(value: int) -> None:
    raw = varint(value)
    assert read_varlong(raw, 0) == (value, len(raw))
