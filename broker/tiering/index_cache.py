"""Shell: Cache of remote segments' indexes on local disk: the folder `remote-log-index-cache`.

A read of a segment needs its offset index, ListOffsets its time index, and read_committed its
aborted transactions. The cache fetches them once and compares them with the segment's manifest. It
keeps them as files with Kafka's names, until space is needed or they were unused for the time to
live. The manifest is stored next to them and written last: at start, files in the folder are
compared with it before their first use. Only segments whose copy is finished have indexes here
(S3).

    <start offset>_<segment id>.index, .timeindex, .txnindex, .manifest

All files can be fetched again, so none is flushed, and an invalid file is not an error.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protocol.checksum import crc32c
from protocol.ids import uuid_from_text, uuid_to_text
from runtime.tasks import Supervisor
from storage.files import Files
from storage.log.indexes import AbortedTxn, CorruptIndex, OffsetIndex, TimeIndex, TxnIndex
from storage.tiered.batches import CorruptSegment
from storage.tiered.cache import SegmentCache
from storage.tiered.layout import Kind
from storage.tiered.manifest import Manifest, ManifestBroken, decode_manifest, encode_manifest
from storage.tiered.segment_store import SegmentStore
from storage.tiered.states import SegmentState
from storage.tiered.values import RemoteSegment, SegmentId

FOLDER: Final = "remote-log-index-cache"
OPEN_MAX: Final = 256
"""Maximum number of segments whose files are open."""

_KEPT: Final = (Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.TXN_INDEX)
_ANY_SIZE: Final = 1 << 40


class SegmentIndexes:
    """The open indexes of one segment. Use them before the next await and do not keep them: the
    cache closes them when it needs the room."""

    __slots__ = ("_offsets", "_times", "_txns")

    def __init__(self, files: Files, stem: str, base_offset: int, *, txns: bool) -> None:
        """Open and load the indexes. Raises OSError if a file cannot be read, CorruptIndex if it is
        invalid."""
        self._offsets = OffsetIndex(files, _path(stem, Kind.OFFSET_INDEX), base_offset, _ANY_SIZE)
        self._times = TimeIndex(files, _path(stem, Kind.TIME_INDEX), base_offset, _ANY_SIZE)
        self._txns = TxnIndex(files, _path(stem, Kind.TXN_INDEX)) if txns else None
        self._offsets.load()
        self._times.load()

    def position(self, offset: int) -> int:
        """Return the position in the segment's log of a batch at or shortly before the one with
        `offset`. Raises OSError if the index cannot be read."""
        return self._offsets.lookup(offset)[1]

    def beyond(self, offset: int) -> int | None:
        """Return the position at or before which the batch with `offset` begins, or None if
        unknown. Raises OSError if the index cannot be read."""
        return self._offsets.beyond(offset)

    def begin_before(self, position: int) -> int:
        """Return the last known begin of a batch at or before `position`. Raises OSError if the
        index cannot be read."""
        return self._offsets.begin_before(position)

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset before which all records are older than `timestamp_ms`. Raises OSError
        if the index cannot be read."""
        return self._times.lookup(timestamp_ms)[1]

    def aborted(self) -> list[AbortedTxn]:
        """Return the segment's aborted transactions. Raises OSError if the index cannot be read,
        CorruptIndex if it is invalid."""
        return self._txns.entries() if self._txns is not None else []

    def close(self) -> None:
        self._offsets.close_file()
        self._times.close_file()
        if self._txns is not None:
            self._txns.close()


@dataclass(slots=True)
class _Kept:
    """Files of one segment in the folder."""

    stem: str
    size_bytes: int
    used_ms: float
    checked: bool
    """False for files of an earlier process, until they have been checked."""


class IndexCache:
    """The folder. `fetched` counts the segments whose indexes came from the store."""

    def __init__(
        self,
        files: Files,
        log_directory: str,
        store: SegmentStore,
        supervisor: Supervisor,
        *,
        monotonic_ms: Callable[[], float],
        max_bytes: Callable[[], int],
        ttl_ms: Callable[[], float],
    ) -> None:
        """Set up an empty cache. The limits are read at each use: `max_bytes` is dynamic. A
        negative TTL means no limit."""
        self.folder = posixpath.join(log_directory, FOLDER)
        self.fetched = 0
        self._files = files
        self._store = store
        self._supervisor = supervisor
        self._monotonic_ms = monotonic_ms
        self._max_bytes = max_bytes
        self._ttl_ms = ttl_ms
        # Both in order of use, least recent first.
        self._kept: dict[SegmentId, _Kept] = {}
        self._open: dict[SegmentId, SegmentIndexes] = {}
        self._size_bytes = 0
        self._fetching: dict[SegmentId, asyncio.Task[None]] = {}
        self._awaited: Counter[SegmentId] = Counter()
        """Number of waiting callers of each segment, which is not evicted until they have it.
        Otherwise two callers of different segments could evict each other's indefinitely, if the
        folder has room for one."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """Size of all files except the manifests."""
        return self._size_bytes

    def load(self) -> None:
        """Take over the files of an earlier process. Blocks, so call it only at start. Raises
        OSError if a disk operation fails."""
        files = self._files
        files.mkdirs(self.folder)
        stems: dict[str, set[str]] = {}
        for name in files.listdir(self.folder):
            stem, _, kind = name.partition(".")
            stems.setdefault(stem, set()).add(kind)
        for stem, kinds in stems.items():
            segment_id = _segment_id(stem)
            path = posixpath.join(self.folder, stem)
            sizes = [files.size(_path(path, kind)) for kind in _KEPT if kind.value in kinds]
            kept = _Kept(path, sum(sizes), self._monotonic_ms(), checked=False)
            if segment_id is None or Kind.MANIFEST.value not in kinds:
                for kind_name in kinds:
                    files.unlink(f"{path}.{kind_name}")
            else:
                self._add(segment_id, kept)

    async def get(self, segment: RemoteSegment) -> SegmentIndexes:
        """Return the indexes of a finished copy.

        Raises:
            ObjectError: the store cannot be read.
            CorruptSegment: the copy is not finished, or its objects are invalid.
            OSError: a disk operation failed.
            CorruptIndex: an index is invalid.
        """
        if segment.state is not SegmentState.COPY_FINISHED:
            raise CorruptSegment(f"{segment}: has no indexes to be read")
        segment_id = segment.segment_id
        self.expire()
        try:
            found = self._find(segment)
        except (OSError, CorruptIndex):
            # The cached files were changed or removed by another program: fetch them again.
            self.forget(segment_id)
            found = None
        if found is not None:
            return found
        self._awaited[segment_id] += 1
        try:
            while found is None:
                # Other callers may wait for the same task, so a cancelled caller must not cancel
                # it.
                await asyncio.shield(self._brought(segment))
                found = self._find(segment)
        finally:
            self._awaited[segment_id] -= 1
            if not self._awaited[segment_id]:
                del self._awaited[segment_id]
        return found

    def _brought(self, segment: RemoteSegment) -> asyncio.Task[None]:
        """Return the task that fetches a segment's indexes; start it if none is running."""
        segment_id = segment.segment_id
        task = self._fetching.get(segment_id)
        if task is None:
            name = f"remote indexes {segment.partition.topic}-{segment.partition.partition}"
            task = self._supervisor.spawn(name, self._bring(segment), fatal=False)
            self._fetching[segment_id] = task
            task.add_done_callback(lambda _: self._fetching.pop(segment_id, None))
        return task

    def forget(self, segment_id: SegmentId) -> None:
        """Remove a segment's files, because the segment is deleted or the files are unusable."""
        kept = self._kept.pop(segment_id, None)
        self._close(segment_id)
        if kept is None:
            return
        self._size_bytes -= kept.size_bytes
        for kind in (Kind.MANIFEST, *_KEPT):
            path = _path(kept.stem, kind)
            if self._files.exists(path):
                self._files.unlink(path)

    def retain(self, cache: SegmentCache) -> None:
        """Remove the indexes of a partition's segments whose deletion has begun."""
        for segment_id in list(self._kept):
            segment = cache.get(segment_id)
            if segment is not None and segment.state is not SegmentState.COPY_FINISHED:
                self.forget(segment_id)

    def expire(self) -> None:
        """Remove the files that were unused for the time to live."""
        ttl_ms = self._ttl_ms()
        if ttl_ms < 0:
            return
        oldest_ms = self._monotonic_ms() - ttl_ms
        while self._kept:
            segment_id, kept = next(iter(self._kept.items()))
            if kept.used_ms > oldest_ms:
                return
            self.forget(segment_id)

    def close(self) -> None:
        """Close all files; they stay for the next process."""
        for segment_id in list(self._open):
            self._close(segment_id)

    # --- internals ----------------------------------------------------------------------------

    def _find(self, segment: RemoteSegment) -> SegmentIndexes | None:
        """Return the indexes if they are usable at once. Raises OSError if a file cannot be read,
        CorruptIndex if it is invalid."""
        segment_id = segment.segment_id
        kept = self._kept.pop(segment_id, None)
        if kept is None:
            return None
        self._kept[segment_id] = kept
        kept.used_ms = self._monotonic_ms()
        if not kept.checked:
            return None
        indexes = self._open.pop(segment_id, None)
        if indexes is None:
            indexes = SegmentIndexes(
                self._files, kept.stem, segment.start_offset, txns=not segment.txn_index_empty
            )
        self._open[segment_id] = indexes
        while len(self._open) > OPEN_MAX:
            self._close(next(iter(self._open)))
        return indexes

    async def _bring(self, segment: RemoteSegment) -> None:
        """Fetch the segment's files into the folder, unless valid ones are there."""
        kept = self._kept.get(segment.segment_id)
        if kept is not None:
            kept.checked = await self._files.run(self._agree, kept.stem, segment)
            if kept.checked:
                return
            self.forget(segment.segment_id)
        self.fetched += 1
        manifest = await self._store.manifest(segment)
        contents = {
            kind: await self._store.read_whole(manifest, kind)
            for kind in _KEPT
            if kind in manifest.objects
        }
        stem = posixpath.join(
            self.folder, f"{segment.start_offset}_{uuid_to_text(segment.segment_id)}"
        )
        self.forget(segment.segment_id)
        for kind, content in contents.items():
            self._write(_path(stem, kind), content)
        self._write(_path(stem, Kind.MANIFEST), encode_manifest(manifest))
        size = sum(map(len, contents.values()))
        self._add(segment.segment_id, _Kept(stem, size, self._monotonic_ms(), checked=True))

    def _write(self, path: str, content: bytes) -> None:
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            file.append(content)
        finally:
            file.close()

    def _agree(self, stem: str, segment: RemoteSegment) -> bool:
        """Return whether the files in the folder agree with the segment's manifest."""
        try:
            manifest = decode_manifest(self._files.read(_path(stem, Kind.MANIFEST)))
            return manifest.belongs_to(segment) and all(
                self._agrees(stem, kind, manifest) for kind in _KEPT if kind in manifest.objects
            )
        except (OSError, ManifestBroken):
            return False

    def _agrees(self, stem: str, kind: Kind, manifest: Manifest) -> bool:
        data, expected = self._files.read(_path(stem, kind)), manifest.objects[kind]
        return len(data) == expected.size_bytes and crc32c(data) == expected.crc32c

    def _add(self, segment_id: SegmentId, kept: _Kept) -> None:
        self._kept[segment_id] = kept
        self._size_bytes += kept.size_bytes
        for other in list(self._kept):
            if self._size_bytes <= self._max_bytes() or len(self._kept) == 1:
                return
            if other not in self._awaited:
                self.forget(other)

    def _close(self, segment_id: SegmentId) -> None:
        indexes = self._open.pop(segment_id, None)
        if indexes is not None:
            indexes.close()


def _path(stem: str, kind: Kind) -> str:
    return f"{stem}.{kind.value}"


def _segment_id(stem: str) -> SegmentId | None:
    """Return the segment id in a file name, or None if the name is not one of the cache's."""
    offset, _, text = stem.partition("_")
    if not offset.isascii() or not offset.isdigit():
        return None
    try:
        return uuid_from_text(text)
    except ValueError:
        return None
