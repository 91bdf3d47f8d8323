"""Batches that a broker refuses: one case per row of the bad-input catalogue (B17-B27), in
order."""

from __future__ import annotations

import dataclasses
import random
import tracemalloc

import cramjam
import pytest

from protocol.batch import (
    Producer,
    Record,
    TimestampType,
    build_batch,
    crc_ok,
    parse_header,
    read_records,
)
from protocol.batch.header import HEADER_BYTES
from protocol.batch.records import varint
from protocol.batch.validate import (
    RECORD_ERRORS_MAX,
    AppendRules,
    RecordError,
    RecordsRefused,
    check_batch,
    finish,
    needs_walk,
    validate_produce,
)
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode
from testkit.records.batches import NOW_MS, altered, some_records, with_payload

RULES = AppendRules()
WALK = AppendRules(always_walk=True)
BATCH = build_batch(some_records(3))
VERSION = 12


def refusal(
    records: bytes | None,
    rules: AppendRules = RULES,
    version: int = VERSION,
    *,
    transactional: bool = False,
) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validate_produce(records, version, rules, NOW_MS, transactional=transactional)
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("rules", [RULES, WALK])
def test_good_batches_pass_without_a_copy(codec: Codec, rules: AppendRules) -> None:
    buf = memoryview(bytearray(build_batch(some_records(50), compression=codec)))
    valid = validate_produce(buf, VERSION, rules, NOW_MS)
    assert valid.data is buf
    assert valid.header == parse_header(buf)
    assert valid.log_append_time_ms == -1


# --- the fast path ---------------------------------------------------------------------------

HEADER_CASES = [
    ("base offset", {"base_offset": 5}, ErrorCode.INVALID_RECORD),
    ("count negative", {"record_count": -1}, ErrorCode.INVALID_RECORD),
    ("count zero", {"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
    ("count too low", {"record_count": 2}, ErrorCode.INVALID_RECORD),
    ("delta too high", {"last_offset_delta": 9}, ErrorCode.INVALID_RECORD),
    ("delta negative", {"last_offset_delta": -7}, ErrorCode.INVALID_RECORD),
    ("control bit", {"attributes": 0x20}, ErrorCode.INVALID_RECORD),
    ("no sequence", {"producer_id": 7, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
    ("sequence -2", {"producer_id": 7, "base_sequence": -2}, ErrorCode.INVALID_RECORD),
    ("transaction", {"attributes": 0x10}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ("codec 5", {"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("codec 7", {"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("magic 0", {"magic": 0}, ErrorCode.INVALID_RECORD),
    ("magic 1", {"magic": 1}, ErrorCode.INVALID_RECORD),
    ("magic 3", {"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
    ("magic -1", {"magic": -1}, ErrorCode.CORRUPT_MESSAGE),
    ("length zero", {"batch_length": 0}, ErrorCode.CORRUPT_MESSAGE),
    ("length negative", {"batch_length": -12}, ErrorCode.CORRUPT_MESSAGE),
    ("length below the header", {"batch_length": 48}, ErrorCode.CORRUPT_MESSAGE),
    ("length beyond the end", {"batch_length": 10_000}, ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(("name", "change", "code"), HEADER_CASES)
def test_header_fields(name: str, change: dict[str, int], code: ErrorCode) -> None:
    assert refusal(altered(BATCH, **change)).code is code, name


@pytest.mark.parametrize("records", [None, b""])
def test_no_batch(records: bytes | None) -> None:
    assert refusal(records).code is ErrorCode.INVALID_RECORD


def test_every_cut_is_refused() -> None:
    for length in range(1, len(BATCH)):
        assert refusal(BATCH[:length]).code is ErrorCode.CORRUPT_MESSAGE


def test_every_wrong_byte_is_refused() -> None:
    for at in range(len(BATCH)):
        if 12 <= at < 16:
            continue  # the broker writes the leader epoch, and the CRC does not cover it
        broken = bytearray(BATCH)
        broken[at] ^= 0x10
        refusal(bytes(broken))
    crc = altered(BATCH, crc=1, fix_crc=False)
    assert refusal(crc).code is ErrorCode.CORRUPT_MESSAGE


def test_the_crc_is_checked_before_the_fields_it_covers() -> None:
    broken = altered(BATCH, record_count=-1, attributes=0x27, fix_crc=False)
    assert refusal(broken).code is ErrorCode.CORRUPT_MESSAGE


def test_exactly_one_batch() -> None:
    assert refusal(BATCH + BATCH).code is ErrorCode.INVALID_RECORD
    assert refusal(BATCH + b"\x00").code is ErrorCode.INVALID_RECORD


def test_old_message_sets() -> None:
    # An uncompressed v1 message: offset, size, crc, magic, attributes, timestamp, key, value.
    message = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(17)
    assert refusal(message).code is ErrorCode.INVALID_RECORD


def test_zstd_needs_produce_7() -> None:
    batch = build_batch(some_records(), compression=Codec.ZSTD)
    assert refusal(batch, version=6).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    validate_produce(batch, 7, RULES, NOW_MS)


def test_sizes() -> None:
    size = len(BATCH)
    validate_produce(BATCH, VERSION, AppendRules(max_message_bytes=size), NOW_MS)
    over = AppendRules(max_message_bytes=size - 1)
    assert refusal(BATCH, over).code is ErrorCode.MESSAGE_TOO_LARGE
    over = AppendRules(segment_bytes=size - 1)
    assert refusal(BATCH, over).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_producers() -> None:
    idempotent = build_batch(some_records(), producer=Producer(7, 0, 0))
    validate_produce(idempotent, VERSION, RULES, NOW_MS)
    transactional = build_batch(some_records(), producer=Producer(7, 0, 0, transactional=True))
    code = refusal(transactional).code
    assert code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    validate_produce(transactional, VERSION, RULES, NOW_MS, transactional=True)


def test_arbitrary_bytes_give_an_api_error() -> None:
    rng = random.Random(4)
    for _ in range(3000):
        raw = bytearray(rng.randbytes(rng.randrange(200)))
        if len(raw) > 16 and rng.random() < 0.7:
            raw[16] = 2
            raw[8:12] = (len(raw) - 12 & 0xFFFFFFFF).to_bytes(4, "big")
        refusal(bytes(raw))


# --- when the records are walked -------------------------------------------------------------


def test_rules_that_need_a_walk_of_records() -> None:
    header = parse_header(BATCH)
    now = NOW_MS

    def walks(**rules: object) -> bool:
        return needs_walk(header, dataclasses.replace(RULES, **rules), now)  # type: ignore[arg-type]

    assert not walks()
    assert walks(compacted=True)
    assert walks(always_walk=True)
    assert walks(compression=Codec.GZIP)
    assert not walks(compression=Codec.NONE)
    assert walks(timestamp_before_max_ms=1000)
    assert walks(timestamp_after_max_ms=1)
    assert not walks(timestamp_after_max_ms=2)
    late = {"timestamp_type": TimestampType.LOG_APPEND_TIME}
    assert not walks(**late, timestamp_before_max_ms=1000, timestamp_after_max_ms=1)
    stamped = parse_header(altered(BATCH, attributes=8))
    assert needs_walk(stamped, RULES, now)


@pytest.mark.parametrize("codec", list(Codec))
def test_keyless_record_on_a_compacted_topic(codec: Codec) -> None:
    records = [Record(timestamp=NOW_MS, key=key, value=b"v") for key in (b"a", None, b"", None)]
    batch = build_batch(records, compression=codec)
    error = refusal(batch, AppendRules(compacted=True))
    assert isinstance(error, RecordsRefused)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in error.record_errors] == [1, 3]
    validate_produce(batch, VERSION, RULES, NOW_MS)


def test_timestamp_limits() -> None:
    stamps = (NOW_MS - 1001, NOW_MS - 1000, NOW_MS + 500, NOW_MS + 501, -1)
    batch = build_batch([Record(timestamp=stamp, key=b"k", value=b"v") for stamp in stamps])
    rules = AppendRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    error = refusal(batch, rules)
    assert isinstance(error, RecordsRefused)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [one.batch_index for one in error.record_errors] == [0, 3]
    assert str(NOW_MS + 501) in error.record_errors[1].message
    late = dataclasses.replace(rules, timestamp_type=TimestampType.LOG_APPEND_TIME)
    validate_produce(batch, VERSION, late, NOW_MS)


def test_one_bad_timestamp_decides_the_code() -> None:
    records = [
        Record(timestamp=NOW_MS, value=b"no key"),
        Record(timestamp=NOW_MS + 10**9, key=b"k", value=b"late"),
    ]
    error = refusal(build_batch(records), AppendRules(compacted=True))
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_producer_that_claims_log_append_time() -> None:
    batch = build_batch(some_records(2), log_append_time_ms=NOW_MS)
    error = refusal(batch)
    assert isinstance(error, RecordsRefused)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [one.batch_index for one in error.record_errors] == [0, 1]


def test_the_list_of_record_errors_is_bounded() -> None:
    batch = build_batch([Record(timestamp=NOW_MS, value=b"")] * (RECORD_ERRORS_MAX + 5))
    error = refusal(batch, AppendRules(compacted=True))
    assert isinstance(error, RecordsRefused)
    assert len(error.record_errors) == RECORD_ERRORS_MAX


def test_offsets_must_be_dense() -> None:
    def record(delta: int) -> bytes:
        raw = b"\x00\x00" + varint(delta) + b"\x01\x01\x00"
        return varint(len(raw)) + raw

    for deltas in ((0, 2), (1, 0), (0, 0), (-1, 0)):
        batch = with_payload(b"".join(record(delta) for delta in deltas), 2)
        error = refusal(batch, WALK)
        assert isinstance(error, RecordsRefused)
        assert error.code is ErrorCode.INVALID_RECORD
        validate_produce(batch, VERSION, RULES, NOW_MS)


def test_broken_record_is_named() -> None:
    good = build_batch(some_records(2))[61:]
    error = refusal(with_payload(good + varint(50), 3), WALK)
    assert isinstance(error, RecordsRefused)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [RecordError(2, "length 50, but 0 bytes remain")]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_garbage_behind_a_codec(codec: Codec) -> None:
    batch = with_payload(b"this is no compressed stream", 1, attributes=int(codec))
    assert refusal(batch, WALK).code is ErrorCode.CORRUPT_MESSAGE


def test_lz4_with_linked_blocks_is_refused_unread() -> None:
    payload = build_batch(some_records(50))[61:]
    linked = bytes(cramjam.lz4.compress(payload))
    batch = with_payload(linked, 50, attributes=int(Codec.LZ4))
    assert len(list(read_records(batch))) == 50
    assert refusal(batch).code is ErrorCode.INVALID_RECORD
    validate_produce(with_payload(b"\x04\x22\x4d", 1, attributes=3), VERSION, RULES, NOW_MS)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bomb(codec: Codec) -> None:
    batch = build_batch([Record(value=bytes(5_000_000))], compression=codec)
    rules = AppendRules(always_walk=True, budget_bytes=1_000_000)
    assert refusal(batch, rules).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_record_above_the_decompressed_limit_is_refused_by_its_index(codec: Codec) -> None:
    """`max.decompressed.message.bytes` limits the size in front of each record, as in Kafka 4.4."""
    small, large = Record(value=bytes(50)), Record(value=bytes(200))
    batch = build_batch([small, large], compression=codec)
    sizes = [len(build_batch([one])) - HEADER_BYTES for one in (small, large)]
    limit = sizes[1] - 2  # two bytes are the size itself
    fits = AppendRules(record_bytes_max=limit)
    assert validate_produce(batch, VERSION, fits, NOW_MS).data is batch
    refused = refusal(batch, AppendRules(record_bytes_max=limit - 1))
    assert isinstance(refused, RecordsRefused)
    assert refused.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1]
    plain = build_batch([small, large])
    assert validate_produce(plain, VERSION, AppendRules(record_bytes_max=1), NOW_MS).data is plain


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_record_above_the_decompressed_limit_takes_no_memory(codec: Codec) -> None:
    """A record of 64 MB is refused by its first bytes, although the budget would allow it."""
    batch = build_batch([Record(value=bytes(64_000_000))], compression=codec)
    rules = AppendRules(record_bytes_max=1_000_000)
    tracemalloc.start()
    assert refusal(batch, rules).code is ErrorCode.INVALID_RECORD
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


def test_a_wrong_maximum_timestamp_is_corrected_by_a_walk() -> None:
    lying = altered(BATCH, max_timestamp=5)
    valid = validate_produce(lying, VERSION, WALK, NOW_MS)
    assert valid.header.max_timestamp == NOW_MS + 2
    assert crc_ok(valid.data, 0, len(valid.data))
    assert validate_produce(lying, VERSION, RULES, NOW_MS).data == lying


# --- rewriting -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time(codec: Codec) -> None:
    batch = build_batch(some_records(3), compression=codec, producer=Producer(1, 2, 3))
    rules = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    valid = validate_produce(batch, VERSION, rules, NOW_MS + 77)
    assert valid.log_append_time_ms == NOW_MS + 77
    assert valid.header == parse_header(valid.data)
    assert valid.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert valid.header.base_sequence == 3
    assert crc_ok(valid.data, 0, len(valid.data))
    assert {record.timestamp for record in read_records(valid.data)} == {NOW_MS + 77}
    assert batch == build_batch(some_records(3), compression=codec, producer=Producer(1, 2, 3))


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_topic_codec(source: Codec, target: Codec) -> None:
    batch = build_batch(some_records(20), compression=source, producer=Producer(1, 2, 3))
    valid = validate_produce(batch, VERSION, AppendRules(compression=target), NOW_MS)
    assert valid.header == parse_header(valid.data)
    assert valid.header.compression is target
    assert valid.header.producer_id == 1
    assert crc_ok(valid.data, 0, len(valid.data))
    assert list(read_records(valid.data)) == list(read_records(batch))
    assert (valid.data is batch) == (source is target)


def test_topic_codec_with_broker_time() -> None:
    rules = AppendRules(
        compression=Codec.LZ4, timestamp_type=TimestampType.LOG_APPEND_TIME, compression_level=1
    )
    valid = validate_produce(BATCH, VERSION, rules, NOW_MS + 9)
    assert (valid.header.codec_id, valid.header.max_timestamp) == (Codec.LZ4, NOW_MS + 9)
    assert crc_ok(valid.data, 0, len(valid.data))


def test_a_batch_that_grows_over_the_limit() -> None:
    batch = build_batch([Record(timestamp=NOW_MS, value=bytes(10_000))], compression=Codec.GZIP)
    rules = AppendRules(compression=Codec.NONE, max_message_bytes=5000)
    assert refusal(batch, rules).code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_two_steps_are_the_one() -> None:
    header = check_batch(BATCH, VERSION, RULES, transactional=False)
    assert finish(BATCH, header, RULES, NOW_MS) == validate_produce(BATCH, VERSION, RULES, NOW_MS)


BEYOND = [(2**63 - 1, 1), (-(2**63), -1), (2**63 - 1, 2**63 - 1)]


@pytest.mark.parametrize(("base", "delta"), BEYOND)
@pytest.mark.parametrize(
    "rules",
    [
        AppendRules(compacted=True, timestamp_type=TimestampType.LOG_APPEND_TIME),
        AppendRules(compression=Codec.ZSTD, timestamp_type=TimestampType.LOG_APPEND_TIME),
        AppendRules(always_walk=True, timestamp_after_max_ms=2**63 - 1),
        AppendRules(always_walk=True, timestamp_before_max_ms=2**63 - 1),
    ],
)
def test_timestamps_that_are_no_int64_are_refused(
    rules: AppendRules, base: int, delta: int
) -> None:
    """Base and delta are both valid; their sum does not fit the header."""
    record = b"\0" + varint(delta) + varint(0) + varint(1) + b"k" + varint(-1) + b"\0"
    payload = varint(len(record)) + record
    hostile = with_payload(payload, 1, base_timestamp=base, max_timestamp=base)
    assert refusal(hostile, rules).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("stamp", [2**63 - 1, -(2**63)])
def test_the_last_timestamps_that_are_int64_are_walked(stamp: int) -> None:
    rules = AppendRules(compacted=True, timestamp_type=TimestampType.LOG_APPEND_TIME)
    batch = build_batch([Record(timestamp=stamp, key=b"k")])
    assert validate_produce(batch, VERSION, rules, NOW_MS).log_append_time_ms == NOW_MS


@pytest.mark.parametrize(("base", "delta"), BEYOND)
def test_timestamps_that_are_no_int64_are_read_as_java_reads_them(base: int, delta: int) -> None:
    """Such a batch may be stored: a topic whose records are not walked accepts it."""
    record = b"\0" + varint(delta) + varint(0) + varint(1) + b"k" + varint(-1) + b"\0"
    batch = with_payload(varint(len(record)) + record, 1, base_timestamp=base)
    (read,) = read_records(batch)
    assert -(2**63) <= read.timestamp < 2**63
    assert (read.timestamp - base - delta) % 2**64 == 0
