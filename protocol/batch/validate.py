"""Validation of batches that clients produce.

Two paths. The fast one reads the header and the CRC and nothing else; it decides all that the
header can decide, and most batches need no more. The full one walks the records, and is taken only
when the answer depends on them (`needs_walk`): a compacted topic (every record needs a key),
timestamp limits that the header leaves open, a topic codec other than the batch's, or a
configuration that asks for it. What the fast path gives up is that a lying producer may store
records that do not match their header; each reader checks what it reads.

The order of the checks is Kafka's, so that one batch with two faults gets the same error: shape of
the request, size, CRC, then the fields that the CRC covers. Codes are in `check_batch` and
`validate_records`; they reach the client per partition, the others in the request go on.

Walking may decompress and costs microseconds per record: callers run `finish` off the loop when
`needs_walk` says so. Nothing here awaits or keeps state.
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
from protocol.batch.records import InvalidRecord, assemble, records_payload, scan
from protocol.compression import DEFAULT_BUDGET_BYTES, Codec, codec_of, lz4_is_linked
from protocol.errors import ApiError, ErrorCode

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
ZSTD_SINCE_PRODUCE_VERSION = 7
RECORD_ERRORS_MAX = 1000
"""Record errors in one answer; a batch of a million bad records is described by its first."""


class RecordError(NamedTuple):
    """Why one record of a batch was refused (KIP-467)."""

    batch_index: int
    message: str


class RecordsRefused(ApiError):
    """A batch refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


@dataclass(frozen=True, slots=True)
class AppendRules:
    """What a topic's configuration asks of appended batches; defaults are Kafka's.

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


class ValidBatch(NamedTuple):
    """A batch ready for the log. `data` is the caller's own buffer unless it had to be rewritten;
    `log_append_time_ms` is -1 where the producer's timestamps stay."""

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
    """Both steps, `check_batch` and `finish`, in one. Raises ApiError, RecordsRefused."""
    header = check_batch(records, api_version, rules, transactional=transactional)
    assert records is not None
    return finish(records, header, rules, now_ms)


def check_batch(
    records: Buffer | None, api_version: int, rules: AppendRules, *, transactional: bool
) -> BatchHeader:
    """All that the header and the CRC decide. `transactional`: the request has a transactional id.

    Raises ApiError with

    - CORRUPT_MESSAGE: a cut batch, an impossible length, a wrong CRC, a magic from the future;
    - INVALID_RECORD: no batch or several, magic 0 or 1, base offset other than 0, record count that
      is not positive or not `last_offset_delta + 1`, control bit, producer id without sequence,
      an lz4 frame of a kind that no Java client can read;
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
            f"A batch of {size} bytes does not fit a segment of {rules.segment_bytes}",
        )
    if crc_of(records, 0, size) != header.crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "The CRC of the record batch is wrong")
    _check_fields(header, api_version, transactional)
    if header.attributes & CODEC_MASK == Codec.LZ4:
        start = memoryview(records)[HEADER_BYTES : HEADER_BYTES + 5]
        if lz4_is_linked(start):
            raise _invalid("lz4 with linked blocks, which Kafka's consumers cannot read")
    return header


def _check_fields(header: BatchHeader, api_version: int, transactional: bool) -> None:
    attributes = header.attributes
    codec_id = attributes & CODEC_MASK
    if codec_id > Codec.LZ4:
        codec_of(codec_id)
        if api_version < ZSTD_SINCE_PRODUCE_VERSION:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce {api_version} may not carry zstd, {ZSTD_SINCE_PRODUCE_VERSION} may",
            )
    if header.base_offset:
        raise _invalid(f"Base offset {header.base_offset} in an appended batch, 0 expected")
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
            # Kafka takes them for records of an id that the client has no right to.
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "Transactional records in a request without a transactional id",
            )
        if header.producer_id < 0:
            raise _invalid("A transactional batch without a producer id")


def needs_walk(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    """Whether `finish` must look at the records of this checked batch."""
    if rules.compacted or rules.always_walk:
        return True
    if rules.compression is not None and _recompresses(header, rules):
        return True
    if rules.timestamp_type is not TimestampType.CREATE_TIME:
        return False
    # The header holds the highest timestamp and the first, not the lowest: a limit on the past
    # is always a matter of the records.
    return (
        rules.timestamp_before_max_ms != MAX_INT64
        or header.max_timestamp - now_ms > rules.timestamp_after_max_ms
        or bool(header.attributes & LOG_APPEND_TIME_BIT)
    )


def keeps_bytes(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    """Whether `finish` would return this checked batch as it came, without a look at it."""
    return rules.timestamp_type is TimestampType.CREATE_TIME and not needs_walk(
        header, rules, now_ms
    )


def finish(records: Buffer, header: BatchHeader, rules: AppendRules, now_ms: int) -> ValidBatch:
    """Walk the records if needed and rewrite the batch if the topic wants another codec or the
    broker's time. Takes the header that `check_batch` returned.

    Raises RecordsRefused as `validate_records` does, ApiError for broken compression, a batch over
    the decompression budget, or one that a new codec made larger than `max.message.bytes`.
    """
    if needs_walk(header, rules, now_ms):
        payload = records_payload(records, 0, header, rules.budget_bytes)
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


def validate_records(payload: bytes, header: BatchHeader, rules: AppendRules, now_ms: int) -> int:
    """Walk the plain records of a batch; returns their highest timestamp.

    Raises RecordsRefused: INVALID_RECORD for a record that cannot be read, offsets that are not
    dense, or a record without key on a compacted topic; INVALID_TIMESTAMP when one timestamp or
    more is no int64, is outside `message.timestamp.{before,after}.max.ms`, or the producer set the
    bit of LogAppendTime.
    """
    time_fault = _time_check(header, rules, now_ms)
    base_timestamp, compacted = header.base_timestamp, rules.compacted
    max_timestamp = NO_TIMESTAMP
    errors: list[RecordError] = []
    bad_time = False
    try:
        for index, record in enumerate(scan(payload, header.record_count)):
            if record.offset_delta != index:
                raise InvalidRecord(index, f"offset delta {record.offset_delta}")
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
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, str(error), [RecordError(error.index, error.message)]
        ) from None
    if errors:
        code = ErrorCode.INVALID_TIMESTAMP if bad_time else ErrorCode.INVALID_RECORD
        raise RecordsRefused(code, f"Refused records, the first: {errors[0].message}", errors)
    return max_timestamp


def _time_check(
    header: BatchHeader, rules: AppendRules, now_ms: int
) -> Callable[[int], str | None]:
    """A function from a record's timestamp to what is wrong with it."""
    oldest, newest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if rules.timestamp_type is not TimestampType.CREATE_TIME:
        oldest, newest = MIN_INT64, MAX_INT64
    elif header.attributes & LOG_APPEND_TIME_BIT:
        return lambda _: "a producer may not set the timestamp type LogAppendTime"
    # A base and a delta may add up to what no header, index or response can hold.
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
            ErrorCode.CORRUPT_MESSAGE, f"A batch of {header.size_bytes} bytes in {size} bytes"
        )
    return _invalid("More than one record batch for a partition")


def _unreadable(records: Buffer) -> ApiError:
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] in (0, 1):
        return _invalid(f"A message of magic {records[MAGIC_POSITION]}, 2 is expected")
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are no record batch")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)


def _too_large(size: int, limit: int) -> ApiError:
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {size} bytes, the limit is {limit}")
