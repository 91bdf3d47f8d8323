"""Differences between the objects in a store and the metadata, and a rebuild of the metadata.

This module does no I/O: it maps listings to findings. `Survey` takes the segments of the metadata,
the listing, and the manifests that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from protocol.ids import TopicId
from storage.objects import ObjectInfo
from storage.tiered.layout import Kind, ParsedKey, object_key, parse_key
from storage.tiered.manifest import REQUIRED, Manifest
from storage.tiered.states import SegmentState
from storage.tiered.values import RemoteSegment, SegmentId, SegmentUpdate, TierRecord


class Fault(Enum):
    """Kinds of findings. `UNDER_WAY` is not a fault: a copy or a removal has begun and not
    ended."""

    MISSING = "an object of a finished segment is not there"
    WRONG_SIZE = "an object has another size than its manifest says"
    WRONG_CONTENT = "an object has other bytes than its manifest says"
    NO_MANIFEST = "a finished segment has no manifest that can be read"
    MANIFEST_DIFFERS = "a manifest tells of something else than the metadata"
    DANGLING = "an object is of no segment that the metadata know"
    FOREIGN = "an object has a key that no segment has"
    UNDER_WAY = "an object of a segment whose copy or removal has not ended"


class Finding(NamedTuple):
    """One difference. `key` is that of the object, also if it is missing."""

    fault: Fault
    key: str
    detail: str = ""

    @property
    def harmless(self) -> bool:
        return self.fault is Fault.UNDER_WAY


_Identity = tuple[TopicId, int, SegmentId]


def _identity(segment: RemoteSegment) -> _Identity:
    return *segment.partition.identity, segment.segment_id


@dataclass(slots=True)
class Survey:
    """Content of a store. `manifests` has an error text in place of an unreadable manifest."""

    segments: Iterable[RemoteSegment]
    """All segments in the metadata, in any state."""
    objects: Iterable[ObjectInfo]
    manifests: Mapping[SegmentId, Manifest | str] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        """Return all differences, except for the content of objects, by key."""
        by_identity = {_identity(segment): segment for segment in self.segments}
        sizes: dict[_Identity, dict[Kind, int]] = {}
        found: list[Finding] = []
        for info in self.objects:
            key = parse_key(info.key)
            if key is None:
                found.append(Finding(Fault.FOREIGN, info.key))
                continue
            identity = (key.topic_id, key.partition, key.segment_id)
            segment = by_identity.get(identity)
            if segment is None:
                found.append(Finding(Fault.DANGLING, info.key))
            elif segment.state is not SegmentState.COPY_FINISHED:
                found.append(Finding(Fault.UNDER_WAY, info.key, segment.state.name))
            else:
                sizes.setdefault(identity, {})[key.kind] = info.size_bytes
        for identity, segment in by_identity.items():
            if segment.state is SegmentState.COPY_FINISHED:
                manifest = self.manifests.get(segment.segment_id, "it was not read")
                found += _of_finished(segment, sizes.get(identity, {}), manifest)
        return sorted(found, key=lambda finding: (finding.key, finding.fault.name))


def _of_finished(
    segment: RemoteSegment, sizes: Mapping[Kind, int], manifest: Manifest | str
) -> Iterable[Finding]:
    key = object_key(segment, Kind.MANIFEST)
    if Kind.MANIFEST not in sizes:
        yield Finding(Fault.MISSING, key)
    elif isinstance(manifest, str):
        yield Finding(Fault.NO_MANIFEST, key, manifest)
    if isinstance(manifest, str):
        absent = REQUIRED - sizes.keys()
        yield from (Finding(Fault.MISSING, object_key(segment, kind)) for kind in absent)
    elif not manifest.belongs_to(segment):
        yield Finding(Fault.MANIFEST_DIFFERS, key, f"{manifest.segment} against {segment}")
    else:
        yield from _of_objects(segment, sizes, manifest)


def _of_objects(
    segment: RemoteSegment, sizes: Mapping[Kind, int], manifest: Manifest
) -> Iterable[Finding]:
    for kind, expected in manifest.objects.items():
        if kind not in sizes:
            yield Finding(Fault.MISSING, object_key(segment, kind))
        elif sizes[kind] != expected.size_bytes:
            detail = f"{sizes[kind]} bytes, not {expected.size_bytes}"
            yield Finding(Fault.WRONG_SIZE, object_key(segment, kind), detail)
    for kind in sizes.keys() - manifest.objects.keys() - {Kind.MANIFEST}:
        yield Finding(Fault.DANGLING, object_key(segment, kind), "the manifest does not name it")


def rebuilt(
    manifests: Iterable[Manifest], objects: Iterable[ObjectInfo], *, broker_id: int, now_ms: int
) -> list[TierRecord]:
    """Return records for all complete segments of a store, for an empty `__remote_log_metadata`.

    They are in an order in which they can be written. A segment that lacks an object is left out.
    """
    sizes = {info.key: info.size_bytes for info in objects}
    whole = [
        manifest.segment
        for manifest in manifests
        if object_key(manifest.segment, Kind.MANIFEST) in sizes
        and all(
            sizes.get(object_key(manifest.segment, kind)) == expected.size_bytes
            for kind, expected in manifest.objects.items()
        )
    ]
    whole.sort(key=lambda one: (*one.partition.identity, one.start_offset, one.segment_id))
    records: list[TierRecord] = []
    for segment in whole:
        records.append(replace(segment, state=SegmentState.COPY_STARTED))
        records.append(
            SegmentUpdate(
                partition=segment.partition,
                segment_id=segment.segment_id,
                broker_id=broker_id,
                event_timestamp_ms=now_ms,
                state=SegmentState.COPY_FINISHED,
            )
        )
    return records


def manifest_keys(objects: Iterable[ObjectInfo]) -> list[tuple[ParsedKey, ObjectInfo]]:
    """Return the manifests in a listing."""
    found = [(parse_key(info.key), info) for info in objects]
    return [(key, info) for key, info in found if key is not None and key.kind is Kind.MANIFEST]
