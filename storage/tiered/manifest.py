"""The manifest of a remote segment: length and checksum of each object, and its metadata record.

It is the last object to be written, so where it is, all others were there with these lengths and
checksums. It suffices to write the metadata topic anew (`kraftbox tier rebuild`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol.errors import ProtocolError
from runtime.sealed import SealBroken, seal, unseal
from storage.tiered.layout import Kind
from storage.tiered.records import decode_record, encode_record
from storage.tiered.values import RemoteSegment

MAGIC: Final = b"KBXT"
VERSION: Final = 1

REQUIRED: Final = frozenset(
    {
        Kind.LOG,
        Kind.OFFSET_INDEX,
        Kind.TIME_INDEX,
        Kind.PRODUCER_SNAPSHOT,
        Kind.LEADER_EPOCHS,
    }
)
"""What each segment has; a transaction index only those in which a transaction was aborted."""


class ManifestBroken(ValueError):
    """The bytes are no manifest, or not one of the segment that was asked for."""


class ObjectSum(NamedTuple):
    """What an object must be."""

    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """`segment` is as COPY_STARTED announced it. Raises ManifestBroken for objects that do not
    fit it."""

    segment: RemoteSegment
    objects: Mapping[Kind, ObjectSum]

    def __post_init__(self) -> None:
        kinds = set(self.objects)
        expected = REQUIRED if self.segment.txn_index_empty else REQUIRED | {Kind.TXN_INDEX}
        if kinds != expected:
            differing = sorted(kind.value for kind in kinds ^ expected)
            raise ManifestBroken(f"objects that are missing or too many: {', '.join(differing)}")
        if self.objects[Kind.LOG].size_bytes != self.segment.size_bytes:
            raise ManifestBroken(
                f"a log of {self.objects[Kind.LOG].size_bytes} bytes, "
                f"its record says {self.segment.size_bytes}"
            )

    def belongs_to(self, segment: RemoteSegment) -> bool:
        """Whether it tells of the segment that the metadata speak of, whatever its state."""
        mine = self.segment
        return (
            mine.partition.identity == segment.partition.identity
            and mine.segment_id == segment.segment_id
            and (mine.start_offset, mine.end_offset) == (segment.start_offset, segment.end_offset)
            and mine.size_bytes == segment.size_bytes
            and mine.epochs == segment.epochs
            and mine.txn_index_empty == segment.txn_index_empty
        )


def encode_manifest(manifest: Manifest) -> bytes:
    objects = {kind.value: list(one) for kind, one in manifest.objects.items()}
    body = {"record": encode_record(manifest.segment), "objects": objects}
    return seal(MAGIC, VERSION, body)


def decode_manifest(data: bytes) -> Manifest:
    """Raises ManifestBroken."""
    try:
        body = unseal(MAGIC, VERSION, data)
        record = decode_record(body["record"])
        objects = {Kind(name): ObjectSum(*map(int, two)) for name, two in body["objects"].items()}
    except SealBroken as error:
        raise ManifestBroken(f"no manifest: {error}") from None
    except (ProtocolError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ManifestBroken(f"the body cannot be read: {error!r}") from None
    if not isinstance(record, RemoteSegment):
        raise ManifestBroken(f"its record is a {type(record).__name__}")
    return Manifest(record, objects)
