"""Metadata log records, alone and in batches, as a replica receives them from another node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from fuzz.target import Finding
from fuzz.values import random_message
from metalog.quorum.batches import build_metadata_batch, read_batches
from protocol.batch.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, write_crc
from protocol.errors import EncodeError, ProtocolError
from protocol.metadata import RECORD_CLASSES, decode_record, encode_record

_AS_BATCH, _REPAIR = 0x01, 0x02


class Records:
    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        out = []
        records: list[tuple[Any, int]] = []
        for cls in RECORD_CLASSES.values():
            for version in cls.VERSIONS.each():
                record: Any = random_message(rng, cls, version)
                records.append((record, version))
                out.append(b"\x00" + encode_record(record, version))
        for _ in range(20):
            some = rng.sample(records, 3)
            batch = build_metadata_batch(some, 0, epoch=1, timestamp_ms=5)
            out.append(bytes((_AS_BATCH | _REPAIR,)) + batch)
        return out

    def run(self, data: bytes) -> None:
        if not data:
            return
        if data[0] & _AS_BATCH:
            read_log(data[1:], repair=bool(data[0] & _REPAIR))
            return
        try:
            record, version = decode_record(data[1:])
        except ProtocolError:
            return
        try:
            again, _ = decode_record(encode_record(record, version))
        except EncodeError as error:
            raise Finding(f"cannot encode {record!r} again") from error
        if again != record and "nan" not in repr(record):
            raise Finding(f"{record!r} becomes {again!r} when encoded again")

    def close(self) -> None:
        pass


def read_log(data: bytes, *, repair: bool) -> None:
    if repair and len(data) >= HEADER_BYTES:
        batch = bytearray(data)
        batch[8:12] = (len(batch) - LENGTH_OVERHEAD_BYTES).to_bytes(4, "big")
        write_crc(batch, 0, len(batch))
        data = bytes(batch)
    try:
        for _ in read_batches(data):
            pass
    except ProtocolError:
        pass


def make() -> Records:
    return Records()
