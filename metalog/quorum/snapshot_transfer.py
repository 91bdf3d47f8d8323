"""Shell: Writing of snapshots while the node works, and fetching them from a leader.

Both write `<name>.part`, flush it off the event loop, and rename it: a crash at any point leaves no
snapshot or a complete one (F34). The writer encodes an immutable image in short slices, so commits
continue in the meantime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from metalog.image.snapshot import VersionedRecord
from metalog.image.values import MetadataImage
from metalog.quorum import wire
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.messages import InstallSnapshot, OffsetAndEpoch
from metalog.quorum.core.voters import VoterEndpoint
from metalog.quorum.log import MetadataLog
from metalog.quorum.peers import Peers
from metalog.quorum.snapshots import SnapshotReader, snapshot_parts
from protocol.errors import ApiError, ErrorCode, ProtocolError
from runtime.clock import Clock
from storage.files.port import File, Files

_PART = ".part"


class SnapshotWriter:
    """Writes snapshots when they are due, one at a time."""

    def __init__(self, files: Files, log: MetadataLog, clock: Clock) -> None:
        self._files = files
        self._log = log
        self._clock = clock
        self._writing = False
        self._bytes_since = 0
        self._last_ms = clock.monotonic_ms()

    def committed(self, size_bytes: int) -> None:
        """Count the size of a batch that was replayed."""
        self._bytes_since += size_bytes

    def due(self, image: MetadataImage) -> bool:
        """Return whether to write a snapshot of `image` now."""
        provenance, config = image.provenance, self._log.config
        latest = self._log.latest_snapshot
        if self._writing or not provenance.batch_aligned or provenance.offset < 0:
            return False
        if latest is not None and provenance.offset + 1 <= latest.offset:
            return False
        if self._bytes_since >= config.max_bytes_between_snapshots:
            return True
        interval_ms = config.max_snapshot_interval_ms
        since_ms = self._clock.monotonic_ms() - self._last_ms
        return interval_ms > 0 and self._bytes_since > 0 and since_ms >= interval_ms

    async def write(
        self, image: MetadataImage, records: Iterable[VersionedRecord]
    ) -> OffsetAndEpoch | None:
        """Write a snapshot of `image`. Returns: its id, None if one exists or is being written.

        Raises:
            OSError: the disk failed.
            ValueError: the image ends inside a batch.
        """
        provenance = image.provenance
        if not provenance.batch_aligned or provenance.offset < 0:
            raise ValueError(f"no snapshot ends at {provenance}")
        snapshot_id = OffsetAndEpoch(provenance.offset + 1, provenance.epoch)
        latest = self._log.latest_snapshot
        if self._writing or (latest is not None and latest.offset >= snapshot_id.offset):
            return None
        self._writing = True
        self._bytes_since = 0
        self._last_ms = self._clock.monotonic_ms()
        try:
            parts = snapshot_parts(
                snapshot_id,
                records,
                last_contained_timestamp_ms=provenance.timestamp_ms,
                timestamp_ms=self._clock.now_ms(),
                voters=self._log.voter_history.voters_at(snapshot_id.offset),
                kraft_version=self._log.voter_history.kraft_version_at(snapshot_id.offset),
            )
            path = self._log.snapshots.path(snapshot_id)
            file = fresh_file(self._files, path + _PART)
            try:
                for part in parts:
                    file.append(part)
                    await asyncio.sleep(0)
                await finish_file(self._files, file, path, self._log.directory)
            except BaseException:
                discard_part(self._files, file)
                raise
            self._log.snapshots.add(snapshot_id)
        finally:
            self._writing = False
        return snapshot_id


def fresh_file(files: Files, path: str) -> File:
    """Return an empty file at `path`, replacing an existing one."""
    file = files.open(path, create=True)
    if file.size():
        file.truncate(0)
    return file


def discard_part(files: Files, file: File) -> None:
    """Close and remove a part file: on a full disk its space is needed."""
    file.close()
    try:
        files.unlink(file.path)
    except OSError:
        # the file is finished and renamed, or the disk has failed
        return


async def finish_file(files: Files, file: File, path: str, directory: str) -> None:
    """Make a part file durable and give it its final name."""
    await files.flush([file])
    file.close()
    files.rename(path + _PART, path)
    await files.run(files.fsync_dir, directory)


class _Partial(NamedTuple):
    """The snapshot that a part file belongs to; another node's snapshot has other bytes."""

    node_id: int
    id: OffsetAndEpoch


class NotStored(OSError):
    """This node's disk did not store a snapshot."""


class SnapshotFetcher:
    """Fetches snapshots from leaders, in pieces, one at a time.

    An interrupted fetch continues where it stopped if the source is the same node. After an error
    of this node's disk the fetch starts from scratch.
    """

    def __init__(self, files: Files, log: MetadataLog, peers: Peers, config: QuorumConfig) -> None:
        self._files = files
        self._log = log
        self._peers = peers
        self._config = config
        self._partial: _Partial | None = None
        self._size_bytes: int | None = None

    async def fetch(
        self, effect: InstallSnapshot, to: VoterEndpoint, on_piece: Callable[[], None]
    ) -> None:
        """Fetch a snapshot; on return it is complete, durable and has its final name.

        Args:
            on_piece: called after each piece that the leader sends.

        Raises:
            NotStored: this node's disk did not store it.
            OSError, ApiError, ProtocolError: the leader did not send it.
        """
        path = self._log.snapshots.path(effect.id)
        file = self._part_file(_Partial(effect.node_id, effect.id), path + _PART)
        try:
            while self._size_bytes is None or file.size() < self._size_bytes:
                self._size_bytes = await self._fetch_piece(effect, to, file)
                on_piece()
            reader = SnapshotReader(file.pread(file.size(), 0), effect.id, path)
            for step in (reader.check(), reader.batches()):
                for _ in step:
                    await asyncio.sleep(0)
            await self._finish(file, path)
        except (ApiError, ProtocolError):
            # The node does not have the snapshot (any more), or the snapshot is invalid.
            self._partial = None
            raise
        except NotStored:
            self._partial = None
            discard_part(self._files, file)
            raise
        finally:
            file.close()
        self._partial = None

    async def _finish(self, file: File, path: str) -> None:
        try:
            await finish_file(self._files, file, path, self._log.directory)
        except OSError as error:
            raise NotStored(*error.args) from error

    def _part_file(self, wanted: _Partial, path: str) -> File:
        if self._partial == wanted:
            return self._files.open(path, create=True)
        if self._partial is not None:
            leftover = self._log.snapshots.path(self._partial.id) + _PART
            if self._files.exists(leftover):
                self._files.unlink(leftover)
        self._partial, self._size_bytes = wanted, None
        return fresh_file(self._files, path)

    async def _fetch_piece(self, effect: InstallSnapshot, to: VoterEndpoint, file: File) -> int:
        position = file.size()
        request = wire.fetch_snapshot_request(
            effect.id,
            cluster_id=self._config.cluster_id,
            node=self._config.node,
            epoch=effect.epoch,
            position=position,
            max_bytes=self._config.fetch_snapshot_max_bytes,
        )
        response = await self._peers.request(to, request)
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code))
        if not response.topics or not response.topics[0].partitions:
            raise ProtocolError("FetchSnapshot response without the requested partition")
        partition = response.topics[0].partitions[0]
        if partition.error_code:
            raise ApiError(ErrorCode(partition.error_code))
        records = partition.unaligned_records
        data = b"".join(records) if isinstance(records, list) else records
        if partition.position != position or not data:
            raise ProtocolError("position of a snapshot chunk", partition.position, f"{position}")
        try:
            file.append(data)
        except OSError as error:
            raise NotStored(*error.args) from error
        return partition.size
