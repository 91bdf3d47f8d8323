"""The manifest of a remote segment: length and checksum of each object, and its metadata record.

It is the last object to be written. So if it exists, all others existed with these lengths and
checksums. Manifests suffice to rebuild the metadata topic (`kraftbox tier rebuild`).
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
"""Objects of every segment; a transaction index exists only if a transaction was aborted."""


class ManifestBroken(ValueError):
    """The bytes are not a manifest, or not that of the requested segment."""


class ObjectSum(NamedTuple):
    """Expected size and checksum of an object."""

    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of `segment`, which is as COPY_STARTED announced it.

    Raises ManifestBroken if the objects do not match the segment.
    """

    segment: RemoteSegment
    objects: Mapping[Kind, ObjectSum]

    def __post_init__(self) -> None:
        kinds = set(self.objects)
        expected = REQUIRED if self.segment.txn_index_empty else REQUIRED | {Kind.TXN_INDEX}
        if kinds != expected:
            differing = sorted(kind.value for kind in kinds ^ expected)
            raise ManifestBroken(f"missing or unexpected objects: {', '.join(differing)}")
        if self.objects[Kind.LOG].size_bytes != self.segment.size_bytes:
            raise ManifestBroken(
                f"log object of {self.objects[Kind.LOG].size_bytes} bytes; "
                f"its record has {self.segment.size_bytes}"
            )

    def belongs_to(self, segment: RemoteSegment) -> bool:
        """Return whether this is the manifest of `segment` as the metadata describe it, in any
        state."""
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
    """Decode a manifest. Raises ManifestBroken."""
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
