"""Validation of batches that clients produce.

There are two paths. The fast one reads only the header and the CRC, which suffices for most
batches. The full one walks the records, and runs only if the result depends on them (`needs_walk`):
a compacted topic (every record needs a key), timestamp limits that the header cannot decide, a
topic codec other than the batch's, a limit of decompressed records below the default, or a
configuration that requires it. The price of the fast path:
a misbehaving producer may store records that do not match their header. So each reader checks what
it reads.

The checks run in Kafka's order, so that a batch with two faults gets the same error: shape of the
request, size, CRC, then the fields that the CRC covers. The error codes are listed at `check_batch`
and `validate_records`. The client gets them per partition; the other partitions of the request are
not affected.

Walking may decompress, and takes microseconds per record: if `needs_walk` returns true, callers run
`finish` off the event loop. The functions do not await, and keep no state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.batch.header import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    TimestampType,
    crc_of,
    parse_header,
    set_log_append_time,
    set_max_timestamp,
)
from protocol.batch.records import RECORD_BYTES_MAX, InvalidRecord, assemble, records_payload, scan
from protocol.compression import DEFAULT_BUDGET_BYTES, Codec, codec_of, lz4_is_linked
from protocol.errors import ApiError, ErrorCode

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
ZSTD_SINCE_PRODUCE_VERSION = 7
RECORD_ERRORS_MAX = 1000
"""Limit of record errors in one response; further bad records of a batch are not listed."""


class RecordError(NamedTuple):
    """The reason why one record of a batch was refused (KIP-467)."""

    batch_index: int
    message: str


class RecordsRefused(ApiError):
    """A batch that was refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


@dataclass(frozen=True, slots=True)
class AppendRules:
    """Requirements of a topic's configuration for appended batches; defaults are Kafka's.

    `compression` None is `compression.type=producer`.
    """

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = MAX_INT64
    timestamp_after_max_ms: int = 3_600_000
    compression: Codec | None = None
    compression_level: int | None = None
    compacted: bool = False
    always_walk: bool = False
    budget_bytes: int = DEFAULT_BUDGET_BYTES
    record_bytes_max: int = RECORD_BYTES_MAX


class ValidBatch(NamedTuple):
    """A batch ready for the log.

    `data` is the caller's own buffer unless the batch was rewritten. `log_append_time_ms` is -1 if
    the producer's timestamps stay.
    """

    header: BatchHeader
    data: Buffer
    log_append_time_ms: int


def validate_produce(
    records: Buffer | None,
    api_version: int,
    rules: AppendRules,
    now_ms: int,
    *,
    transactional: bool = False,
) -> ValidBatch:
    """Run both steps, `check_batch` and `finish`. Raises ApiError, RecordsRefused."""
    header = check_batch(records, api_version, rules, transactional=transactional)
    assert records is not None
    return finish(records, header, rules, now_ms)


def check_batch(
    records: Buffer | None, api_version: int, rules: AppendRules, *, transactional: bool
) -> BatchHeader:
    """Run all checks on header and CRC. `transactional`: the request has a transactional id.

    Raises ApiError with
    - CORRUPT_MESSAGE: a truncated batch, an impossible length, a wrong CRC, a future magic;
    - INVALID_RECORD: no batch or several, magic 0 or 1, base offset other than 0, record count that
      is not positive or not `last_offset_delta + 1`, control bit, producer id without sequence,
      transactional batch without producer id, an lz4 frame of a kind that no Java client can read;
    - UNSUPPORTED_COMPRESSION_TYPE: codec 5 to 7, zstd before Produce 7 (KIP-110);
    - MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE: over `max.message.bytes`, over a segment;
    - TRANSACTIONAL_ID_AUTHORIZATION_FAILED: transactional records without a transactional id.
    """
    if not records:
        raise ApiError(ErrorCode.INVALID_RECORD, "A partition without a record batch")
    size = len(records)
    if size < HEADER_BYTES:
        raise _unreadable(records)
    header = parse_header(records)
    if header.magic != MAGIC or header.size_bytes != size:
        raise _wrong_shape(header, size)
    if size > rules.max_message_bytes:
        raise _too_large(size, rules.max_message_bytes)
    if size > rules.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"A batch of {size} bytes is larger than a segment: limit {rules.segment_bytes}",
        )
    if crc_of(records, 0, size) != header.crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "The CRC of the record batch is wrong")
    _check_fields(header, api_version, transactional)
    if header.attributes & CODEC_MASK == Codec.LZ4:
        start = memoryview(records)[HEADER_BYTES : HEADER_BYTES + 5]
        if lz4_is_linked(start):
            raise _invalid(
                "lz4 with linked blocks is not supported: Kafka's consumers cannot read it"
            )
    return header


def _check_fields(header: BatchHeader, api_version: int, transactional: bool) -> None:
    attributes = header.attributes
    codec_id = attributes & CODEC_MASK
    if codec_id > Codec.LZ4:
        codec_of(codec_id)
        if api_version < ZSTD_SINCE_PRODUCE_VERSION:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce {api_version} does not support zstd; versions from "
                f"{ZSTD_SINCE_PRODUCE_VERSION} do",
            )
    if header.base_offset:
        raise _invalid(f"Base offset {header.base_offset} in an appended batch, expected 0")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise _invalid(
            f"{header.record_count} records with a last offset delta of {header.last_offset_delta}"
        )
    if attributes & CONTROL_BIT:
        raise _invalid("Clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(
            f"Sequence {header.base_sequence} in a batch of producer {header.producer_id}"
        )
    if attributes & TRANSACTIONAL_BIT:
        if not transactional:
            # Kafka treats them as records of a transactional id that the client may not use.
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "Transactional records in a request without a transactional id",
            )
        if header.producer_id < 0:
            raise _invalid("A transactional batch without a producer id")


def needs_walk(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    """Return whether `finish` must walk the records of this checked batch."""
    if rules.compacted or rules.always_walk:
        return True
    if rules.record_bytes_max < RECORD_BYTES_MAX and header.attributes & CODEC_MASK:
        return True
    if rules.compression is not None and _recompresses(header, rules):
        return True
    if rules.timestamp_type is not TimestampType.CREATE_TIME:
        return False
    # The header has the highest and the first timestamp, not the lowest: a limit on the past can
    # only be checked on the records.
    return (
        rules.timestamp_before_max_ms != MAX_INT64
        or header.max_timestamp - now_ms > rules.timestamp_after_max_ms
        or bool(header.attributes & LOG_APPEND_TIME_BIT)
    )


def keeps_bytes(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    """Return whether `finish` would return this checked batch unchanged and without a walk."""
    return rules.timestamp_type is TimestampType.CREATE_TIME and not needs_walk(
        header, rules, now_ms
    )


def finish(records: Buffer, header: BatchHeader, rules: AppendRules, now_ms: int) -> ValidBatch:
    """Walk the records if needed; rewrite the batch for the topic's codec or the broker's time.

    `header` is the result of `check_batch`. Raises RecordsRefused as `validate_records` does.
    Raises ApiError for broken compression, a batch over the decompression budget, or one that a new
    codec made larger than `max.message.bytes`.
    """
    if needs_walk(header, rules, now_ms):
        payload = _payload(records, header, rules)
        max_timestamp = validate_records(payload, header, rules, now_ms)
        if _recompresses(header, rules):
            header, records = _recompress(header, payload, rules)
        if max_timestamp != header.max_timestamp:
            records = bytearray(records)
            set_max_timestamp(records, 0, len(records), max_timestamp)
            header = parse_header(records)
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        return ValidBatch(header, records, -1)
    records = bytearray(records)
    set_log_append_time(records, 0, len(records), now_ms)
    return ValidBatch(parse_header(records), records, now_ms)


def _payload(records: Buffer, header: BatchHeader, rules: AppendRules) -> bytes:
    try:
        return records_payload(records, 0, header, rules.budget_bytes, rules.record_bytes_max)
    except InvalidRecord as error:
        raise _refused(error) from None


def _refused(error: InvalidRecord) -> RecordsRefused:
    return RecordsRefused(
        ErrorCode.INVALID_RECORD, str(error), [RecordError(error.index, error.message)]
    )


def validate_records(payload: bytes, header: BatchHeader, rules: AppendRules, now_ms: int) -> int:
    """Validate the uncompressed records of a batch. Returns their highest timestamp.

    Raises RecordsRefused:
    - INVALID_RECORD: a record cannot be read, offsets are not consecutive, or a record on a
      compacted topic has no key;
    - INVALID_TIMESTAMP: a timestamp is outside int64 or `message.timestamp.{before,after}.max.ms`,
      or the producer set the bit of LogAppendTime.
    """
    time_fault = _time_check(header, rules, now_ms)
    base_timestamp, compacted = header.base_timestamp, rules.compacted
    max_timestamp = NO_TIMESTAMP
    errors: list[RecordError] = []
    bad_time = False
    try:
        for index, record in enumerate(scan(payload, header.record_count)):
            if record.offset_delta != index:
                raise InvalidRecord(index, f"offset delta {record.offset_delta}, expected {index}")
            timestamp = base_timestamp + record.timestamp_delta
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if compacted and record.key_length < 0:
                fault: str | None = "a compacted topic takes no record without a key"
            elif fault := time_fault(timestamp):
                bad_time = True
            if fault and len(errors) < RECORD_ERRORS_MAX:
                errors.append(RecordError(index, fault))
    except InvalidRecord as error:
        raise _refused(error) from None
    if errors:
        code = ErrorCode.INVALID_TIMESTAMP if bad_time else ErrorCode.INVALID_RECORD
        raise RecordsRefused(code, f"Refused records, the first: {errors[0].message}", errors)
    return max_timestamp


def _time_check(
    header: BatchHeader, rules: AppendRules, now_ms: int
) -> Callable[[int], str | None]:
    """Return a function that maps a record's timestamp to its fault, or None."""
    oldest, newest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if rules.timestamp_type is not TimestampType.CREATE_TIME:
        oldest, newest = MIN_INT64, MAX_INT64
    elif header.attributes & LOG_APPEND_TIME_BIT:
        return lambda _: "a producer may not set the timestamp type LogAppendTime"
    # Base plus delta may exceed the int64 range of headers, indexes and responses.
    oldest, newest = max(oldest, MIN_INT64), min(newest, MAX_INT64)

    def in_range(timestamp: int) -> str | None:
        if oldest <= timestamp <= newest or timestamp == NO_TIMESTAMP:
            return None
        return f"timestamp {timestamp} is not in [{oldest}, {newest}]"

    return in_range


def _recompresses(header: BatchHeader, rules: AppendRules) -> bool:
    return rules.compression is not None and rules.compression != header.attributes & CODEC_MASK


def _recompress(
    header: BatchHeader, payload: bytes, rules: AppendRules
) -> tuple[BatchHeader, bytes]:
    assert rules.compression is not None
    rebuilt = assemble(header, payload, rules.compression, rules.compression_level)
    if len(rebuilt) > rules.max_message_bytes:
        raise _too_large(len(rebuilt), rules.max_message_bytes)
    return parse_header(rebuilt), rebuilt


def _wrong_shape(header: BatchHeader, size: int) -> ApiError:
    if header.magic in (0, 1):
        return _invalid(f"A batch of magic {header.magic}; this version of Produce carries magic 2")
    if header.magic != MAGIC:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"Unknown magic {header.magic} in a batch")
    if header.batch_length < LENGTH_MIN or header.size_bytes > size:
        return ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"A batch of {header.size_bytes} bytes, but {size} bytes sent",
        )
    return _invalid("More than one record batch for a partition")


def _unreadable(records: Buffer) -> ApiError:
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] in (0, 1):
        return _invalid(f"A message of magic {records[MAGIC_POSITION]}, expected 2")
    return ApiError(
        ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes do not contain a record batch"
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)


def _too_large(size: int, limit: int) -> ApiError:
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {size} bytes, limit {limit}")
