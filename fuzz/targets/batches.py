"""Record batches of a producer: the checks of an append, then a read of the accepted batches.

The first byte chooses the Produce version and the append rules. One of its bits repairs length and
CRC, so that the code behind these checks is reached, too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fuzz.target import Finding
from protocol.batch import Record, build_batch, iter_batches, read_records
from protocol.batch.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, TimestampType, write_crc
from protocol.batch.records import Producer
from protocol.batch.validate import AppendRules, ValidBatch, validate_produce
from protocol.compression import Codec
from protocol.errors import ApiError, ProtocolError

NOW_MS = 1_700_000_000_000
BUDGET_BYTES = 1 << 20

RULES = (
    AppendRules(always_walk=True, budget_bytes=BUDGET_BYTES),
    AppendRules(compacted=True, budget_bytes=BUDGET_BYTES),
    AppendRules(timestamp_before_max_ms=1000, budget_bytes=BUDGET_BYTES),
    AppendRules(compression=Codec.GZIP, budget_bytes=BUDGET_BYTES),
    AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME, budget_bytes=BUDGET_BYTES),
    AppendRules(),
)
_REPAIR = 0x80


class Batches:
    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        out = []
        for codec in Codec:
            for count in (1, 3, 40):
                records = [
                    Record(
                        timestamp=NOW_MS + at,
                        key=rng.choice((None, b"", b"key")),
                        value=rng.choice((None, b"", rng.randbytes(30), b"v" * 300)),
                        headers=[("h", b"x"), ("", None)][: rng.randrange(3)],
                    )
                    for at in range(count)
                ]
                producer = Producer(5, 0, 7) if rng.random() < 0.3 else Producer()
                data = build_batch(records, compression=codec, producer=producer)
                out += [bytes((_REPAIR | at,)) + data for at in range(len(RULES))]
                out.append(b"\x00" + data)
        return out

    def run(self, data: bytes) -> None:
        if not data:
            return
        choice, records = data[0], bytearray(data[1:])
        if choice & _REPAIR and len(records) >= HEADER_BYTES:
            records[8:12] = (len(records) - LENGTH_OVERHEAD_BYTES).to_bytes(4, "big")
            records[16] = 2
            write_crc(records, 0, len(records))
        rules = RULES[choice % len(RULES)]
        read_anything(bytes(records))
        try:
            valid = validate_produce(memoryview(records), 12, rules, NOW_MS)
        except ApiError:
            return
        if rules.always_walk:
            check_what_passed(valid)

    def close(self) -> None:
        pass


def read_anything(data: bytes) -> None:
    """Read these bytes as a log or a Fetch response would be read."""
    try:
        for header, position in iter_batches(data):
            if position + header.size_bytes > len(data):
                raise Finding("a batch ends beyond the input")
        for _ in read_records(data):
            pass
    except (ProtocolError, ApiError):
        pass


def check_what_passed(valid: ValidBatch) -> None:
    """Check that a reader gets as many records as the header declares, with dense offsets."""
    offsets = [record.offset for record in read_records(bytes(valid.data))]
    if offsets != list(range(valid.header.record_count)):
        raise Finding(f"{valid.header.record_count} records have offsets {offsets[:10]}")


def make() -> Batches:
    return Batches()
