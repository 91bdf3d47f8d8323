"""Shell: Copying a segment into an object store, reading it back, and deleting it.

A copy is tried once. After any failure the segment is copied again under a new segment id, as in
Kafka; the objects of the failed copy are deleted with its COPY_STARTED. So a put that failed but
took effect is harmless. The manifest is written last, after a check that every other object exists
with the right length.

Once the disks have removed a log, the copy is the only one. So its batches are checked while they
are put; a wrong checksum ends the copy. The offset and time index are built from the batches. Files
without checksums of their own are read twice; if the reads differ, the copy fails.

Data that is read is compared with what was written: the manifest with the metadata, whole objects
with the manifest's checksums, parts of the log with the batches' own checksums.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from protocol.checksum import crc32c
from protocol.schema import Buffer
from storage.log.checkpoints import encode_epochs
from storage.log.epochs import EpochEntry
from storage.objects import FileRange, Objects, Source
from storage.objects.port import size_of, whole
from storage.tiered.batches import CheckedBatches, CorruptSegment, LogCheck, check_batches
from storage.tiered.copied_indexes import CopiedIndexes
from storage.tiered.layout import Kind, keys_to_delete, object_key
from storage.tiered.manifest import (
    Manifest,
    ManifestBroken,
    ObjectSum,
    decode_manifest,
    encode_manifest,
)
from storage.tiered.values import RemoteSegment

Run: TypeAlias = Callable[..., Awaitable[CheckedBatches]]
"""Calls a function with arguments, directly or in a worker."""

MANIFEST_BYTES_MAX: Final = 1 << 20
_SUM_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSources:
    """The parts of a closed segment; they are flushed before a copy."""

    log: Source
    index_interval_bytes: int
    """Bytes of the log between two entries of the indexes, which are built during the put."""
    txn_index: Source | None
    """None if no transaction of the segment was aborted."""
    producer_snapshot: bytes
    """Producer snapshot at the segment's end."""
    epochs: tuple[EpochEntry, ...]
    """The leader epochs of the log up to the segment's end (`Lineage.up_to`)."""

    def beside_log(self, indexes: CopiedIndexes) -> dict[Kind, Source]:
        """Return all objects but the log and the manifest."""
        parts: dict[Kind, Source] = {
            Kind.OFFSET_INDEX: bytes(indexes.offsets),
            Kind.TIME_INDEX: indexes.times(),
            Kind.PRODUCER_SNAPSHOT: self.producer_snapshot,
            Kind.LEADER_EPOCHS: encode_epochs(self.epochs),
        }
        if self.txn_index is not None:
            parts[Kind.TXN_INDEX] = self.txn_index
        return parts


async def _at_once(check: Callable[..., CheckedBatches], /, *arguments: object) -> CheckedBatches:
    return check(*arguments)


class SegmentStore:
    """The segments in one object store."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    async def copy(self, segment: RemoteSegment, sources: SegmentSources) -> Manifest:
        """Copy a segment whose COPY_STARTED was written; then COPY_FINISHED may be written.

        Raises:
            ObjectError: the store failed.
            CorruptSegment: an object differs from what was put, or the log from what was written.
            OSError: a local file cannot be read.
            ManifestBroken: the segment's record does not match its parts.
        """
        log = await self._put_log(segment, sources)
        sums = {Kind.LOG: ObjectSum(log.size_bytes, log.crc32c)}
        for kind, part in sources.beside_log(log.indexes).items():
            sums[kind] = await self._put(object_key(segment, kind), part)
        manifest = Manifest(segment, sums)
        await self._put(object_key(segment, Kind.MANIFEST), encode_manifest(manifest))
        return manifest

    async def _put_log(self, segment: RemoteSegment, sources: SegmentSources) -> LogCheck:
        """Put the log and check its batches. Returns the finished check."""
        key, source = object_key(segment, Kind.LOG), sources.log
        if not isinstance(source, FileRange):
            check = LogCheck(segment, sources.index_interval_bytes)
            check.add(source)
            await self._put_whole(key, source)
        else:
            checked = _CheckedRange(*source)
            checked.begin = partial(LogCheck, segment, sources.index_interval_bytes)
            await self.objects.put(key, checked)
            if checked.broken is not None:
                raise checked.broken
            check = checked.check
            await self._look_at(key, source)
        check.end()
        return check

    async def _put(self, key: str, source: Source) -> ObjectSum:
        """Put an object without checksums of its own. Returns its size and checksum."""
        expected = await _sum_of(source)
        if isinstance(source, FileRange):
            source = _SummedRange(*source)
        await self._put_whole(key, source)
        if isinstance(source, _SummedRange) and source.crc32c != expected.crc32c:
            raise CorruptSegment(f"{key}: its file was read otherwise before")
        return expected

    async def _put_whole(self, key: str, source: Source) -> None:
        await self.objects.put(key, source)
        await self._look_at(key, source)

    async def _look_at(self, key: str, source: Source) -> None:
        """Check that the object exists with the right size. Raises ObjectError, CorruptSegment."""
        found = await self.objects.head(key)
        if found.size_bytes != size_of(source):
            raise CorruptSegment(f"{key}: {found.size_bytes} bytes, put were {size_of(source)}")

    async def manifest(self, segment: RemoteSegment) -> Manifest:
        """Read the manifest of a finished segment. Raises ObjectError, CorruptSegment."""
        key = object_key(segment, Kind.MANIFEST)
        size = (await self.objects.head(key)).size_bytes
        if not 0 < size <= MANIFEST_BYTES_MAX:
            raise CorruptSegment(f"{key}: a manifest of {size} bytes")
        try:
            found = decode_manifest(await whole(self.objects, key, size))
        except ManifestBroken as error:
            raise CorruptSegment(f"{key}: {error}") from None
        if not found.belongs_to(segment):
            raise CorruptSegment(f"{key}: manifest of {found.segment}, expected {segment}")
        return found

    async def read_whole(self, manifest: Manifest, kind: Kind) -> bytes:
        """Read an index, producer snapshot or epoch list. Raises ObjectError, CorruptSegment."""
        key = object_key(manifest.segment, kind)
        expected = manifest.objects[kind]
        if not expected.size_bytes:
            return b""
        data = await whole(self.objects, key, expected.size_bytes)
        if crc32c(data) != expected.crc32c:
            raise CorruptSegment(f"{key}: its checksum is not that of the manifest")
        return data

    async def read_log(
        self,
        segment: RemoteSegment,
        position: int,
        size_bytes: int,
        *,
        last_offset: int | None = None,
        run: Run = _at_once,
    ) -> tuple[Buffer, CheckedBatches]:
        """Read bytes of the log from `position` on, where a batch must begin, and check the
        batches.

        Reads at most up to the segment's end. `run` runs the check, which takes long for many small
        batches. Raises ObjectError, CorruptSegment.
        """
        size = min(size_bytes, segment.size_bytes - position)
        if position < 0 or size <= 0:
            raise CorruptSegment(f"{segment}: position {position} of {segment.size_bytes} bytes")
        key = object_key(segment, Kind.LOG)
        data = await self.objects.get(key, position, size)
        checked = await run(check_batches, segment, data, last_offset)
        at_end = position + size == segment.size_bytes
        if at_end and last_offset is None and checked.whole_bytes < size:
            raise CorruptSegment(f"{key}: its last batch is cut")
        return data, checked

    async def delete(self, segment: RemoteSegment) -> None:
        """Remove all objects that a segment may have; then DELETE_FINISHED may be written.

        Raises ObjectError; the caller must repeat the call later.
        """
        keys = keys_to_delete(segment)
        await self.objects.delete(keys[:1])
        await self.objects.delete(keys[1:])


class _SummedRange(FileRange):
    """A range that computes the checksum of its last read."""

    crc32c = 0

    async def parts(self, part_bytes: int) -> AsyncGenerator[bytes, None]:
        self.crc32c = 0
        async with aclosing(super().parts(part_bytes)) as parts:
            async for part in parts:
                self.crc32c = crc32c(part, self.crc32c)
                yield part


class _CheckedRange(FileRange):
    """A log whose batches are checked in a worker as they are read. A broken batch ends the
    read."""

    begin: Callable[[], LogCheck]
    check: LogCheck
    broken: CorruptSegment | None

    async def parts(self, part_bytes: int) -> AsyncGenerator[bytes, None]:
        self.check, self.broken = self.begin(), None
        async with aclosing(super().parts(part_bytes)) as parts:
            async for part in parts:
                try:
                    await self.files.run(self.check.add, part)
                except CorruptSegment as error:
                    self.broken = error
                    return
                yield part


async def _sum_of(source: Source) -> ObjectSum:
    """Return length and checksum of a source, reading it. Raises OSError."""
    if not isinstance(source, FileRange):
        return ObjectSum(len(source), crc32c(source))
    running = 0
    async for part in source.parts(_SUM_BYTES):
        running = crc32c(part, running)
    return ObjectSum(source.size_bytes, running)
