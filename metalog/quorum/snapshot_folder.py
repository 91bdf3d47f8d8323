"""The snapshots in the folder of a metadata log."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.snapshots import (
    CorruptSnapshot,
    SnapshotReader,
    list_snapshots,
    snapshot_name,
)
from storage.files.port import Files


class SnapshotFolder:
    """The snapshots of one log, in the order of their ends. Paths and reads are for any id."""

    def __init__(self, files: Files, directory: str) -> None:
        """List the folder, which contains only whole snapshots by now."""
        self._files = files
        self._directory = directory
        self._ids = list_snapshots(files, directory)
        self._times: dict[OffsetAndEpoch, int] = {}

    @property
    def ids(self) -> Sequence[OffsetAndEpoch]:
        """Snapshots of this log, oldest first."""
        return self._ids

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self._ids[-1] if self._ids else None

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(self._files.size(self.path(one)) for one in self._ids)

    def path(self, snapshot_id: OffsetAndEpoch) -> str:
        return posixpath.join(self._directory, snapshot_name(snapshot_id))

    def open(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        """Open a snapshot. Raises CorruptSnapshot, FileNotFoundError."""
        return SnapshotReader.open(self._files, self.path(snapshot_id), snapshot_id)

    def size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the file's size; None if there is no such snapshot."""
        if snapshot_id not in self._ids:
            return None
        return self._files.size(self.path(snapshot_id))

    def read(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        """Read bytes of a snapshot file. Raises FileNotFoundError."""
        file = self._files.open(self.path(snapshot_id))
        try:
            return file.pread(max_bytes, position)
        finally:
            file.close()

    def add(self, snapshot_id: OffsetAndEpoch) -> None:
        """Note that a snapshot file of this log has been renamed to its final name."""
        if snapshot_id not in self._ids:
            self._ids = sorted([*self._ids, snapshot_id])

    def remove(self, snapshot_id: OffsetAndEpoch) -> None:

        self._ids = [one for one in self._ids if one != snapshot_id]
        self._times.pop(snapshot_id, None)
        self._files.unlink(self.path(snapshot_id))

    def time_ms(self, snapshot_id: OffsetAndEpoch) -> int:
        """Return the time of the last record in a snapshot (epoch milliseconds), or that of its
        file if the snapshot is damaged."""
        known = self._times.get(snapshot_id)
        if known is None:
            try:
                known = self.open(snapshot_id).last_contained_timestamp_ms
            except CorruptSnapshot:
                known = self._files.modified_ms(self.path(snapshot_id))
            self._times[snapshot_id] = known
        return known
