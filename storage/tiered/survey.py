"""Shell: `tier verify` and `tier rebuild` over an object store: list, read, compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocol.checksum import crc32c
from storage.objects import ObjectCorrupt, ObjectInfo, ObjectNotFound, Objects
from storage.objects.port import listed, whole
from storage.tiered.layout import object_key
from storage.tiered.manifest import Manifest, ManifestBroken, ObjectSum, decode_manifest
from storage.tiered.segment_store import MANIFEST_BYTES_MAX
from storage.tiered.states import SegmentState
from storage.tiered.values import RemoteSegment, SegmentId, TierRecord
from storage.tiered.verify import Fault, Finding, Survey, manifest_keys, rebuilt

READ_BYTES: Final = 8 << 20


async def verify(
    objects: Objects, segments: Iterable[RemoteSegment], folder: str = "", *, contents: bool = False
) -> list[Finding]:
    """Compare the objects of a folder with `segments` from the metadata. Returns all differences.

    Args:
        folder: of one topic or partition (`layout`); empty: the whole store.
        contents: read every object, too, and compare its checksum.

    Raises:
        ObjectError: the store does not answer.
    """
    known = list(segments)
    there = await listed(objects, folder)
    manifests = await read_manifests(objects, there)
    found = Survey(known, there, manifests).findings()
    if contents:
        wrong = {finding.key for finding in found}
        for segment in known:
            manifest = manifests.get(segment.segment_id)
            if segment.state is SegmentState.COPY_FINISHED and isinstance(manifest, Manifest):
                found += await _contents(objects, manifest, wrong)
    return found


async def read_manifests(
    objects: Objects, there: Iterable[ObjectInfo]
) -> dict[SegmentId, Manifest | str]:
    """Read the manifests of a listing; unreadable ones map to the reason. Raises ObjectError."""
    found: dict[SegmentId, Manifest | str] = {}
    for key, info in manifest_keys(there):
        if info.size_bytes > MANIFEST_BYTES_MAX:
            found[key.segment_id] = f"{info.size_bytes} bytes"
            continue
        try:
            data = await whole(objects, info.key, info.size_bytes)
            found[key.segment_id] = decode_manifest(data)
        except (ManifestBroken, ObjectCorrupt, ObjectNotFound) as error:
            found[key.segment_id] = str(error)
    return found


async def rebuild(
    objects: Objects, *, broker_id: int, now_ms: int, folder: str = ""
) -> list[TierRecord]:
    """Return metadata records for all complete segments of a folder. Raises ObjectError."""
    there = await listed(objects, folder)
    manifests = await read_manifests(objects, there)
    readable = [one for one in manifests.values() if isinstance(one, Manifest)]
    return rebuilt(readable, there, broker_id=broker_id, now_ms=now_ms)


async def _contents(objects: Objects, manifest: Manifest, wrong: set[str]) -> list[Finding]:
    found = []
    for kind, expected in manifest.objects.items():
        key = object_key(manifest.segment, kind)
        if key in wrong:
            continue
        problem = await _differs(objects, key, expected)
        if problem:
            found.append(Finding(Fault.WRONG_CONTENT, key, problem))
    return found


async def _differs(objects: Objects, key: str, expected: ObjectSum) -> str:
    running = 0
    for at in range(0, expected.size_bytes, READ_BYTES):
        try:
            part = await objects.get(key, at, min(READ_BYTES, expected.size_bytes - at))
        except (ObjectCorrupt, ObjectNotFound) as error:
            return error.why
        running = crc32c(part, running)
    return "" if running == expected.crc32c else "its checksum is not that of the manifest"
