"""Snapshot files of the metadata log, as read from disk or received from another node."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fuzz.values import random_message
from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.snapshots import SnapshotReader, parse_snapshot_name, snapshot_parts
from protocol.batch.header import iter_batches, write_crc
from protocol.errors import ProtocolError
from protocol.metadata import RECORD_CLASSES

ID = OffsetAndEpoch(10, 2)
_REPAIR = 0x01


class Snapshots:
    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        out = []
        for count in (0, 1, 5, 300):
            records = []
            for _ in range(count):
                cls = rng.choice(list(RECORD_CLASSES.values()))
                version = rng.choice(list(cls.VERSIONS.each()))
                records.append((random_message(rng, cls, version), version))
            parts = snapshot_parts(
                ID,
                records,
                last_contained_timestamp_ms=5,
                timestamp_ms=6,
            )
            data = b"".join(parts)
            out += [b"\x00" + data, b"\x01" + data]
        return out

    def run(self, data: bytes) -> None:
        if not data:
            return
        content = bytearray(data[1:])
        if data[0] & _REPAIR:
            repair(content)
        parse_snapshot_name(bytes(content[:60]).decode("latin-1"))
        for use in (SnapshotReader.records, SnapshotReader.check):
            try:
                for _ in use(SnapshotReader(bytes(content), ID)):
                    pass
            except ProtocolError:
                pass

    def close(self) -> None:
        pass


def repair(content: bytearray) -> None:
    """Give every batch that `iter_batches` reaches the CRC of its content."""
    try:
        for header, position in list(iter_batches(bytes(content))):
            write_crc(content, position, header.size_bytes)
    except ProtocolError:
        pass


def make() -> Snapshots:
    return Snapshots()
