"""Shell: An offset checkpoint file of the log directory, replaced as a whole.

A worker encodes the content and writes it to a temporary file; the event loop then renames it,
unless newer content was written in the meantime. So older content never replaces newer content.

The file's lines contain topic and partition but no topic id. A line that outlives its log would be
mistaken for one of the next log of that name. That log would then begin beyond its records, or be
trusted when it must be recovered. So a caller that creates a log must first call `forget` with its
name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Mapping

from storage.files import Files
from storage.log.checkpoints import TopicPartition, decode_offsets, encode_offsets


class OffsetCheckpoint:
    """One offset checkpoint file. `name` is one of the constants of `storage.log.checkpoints`."""

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self.name = name
        self._files = files
        self._directory = directory
        self._path = posixpath.join(directory, name)
        self._offsets: dict[TopicPartition, int] = {}
        # Keys that the file may contain after a crash: during a write, those of the old and new
        # content.
        self._keys: set[TopicPartition] = set()
        self._written = False
        self._version = 0

    def read(self) -> dict[TopicPartition, int]:
        """Return the file's content; empty if it is missing. Raises CorruptCheckpoint, OSError."""
        try:
            self._offsets = decode_offsets(self._files.read(self._path))
        except FileNotFoundError:
            return {}
        self._keys = set(self._offsets)
        return dict(self._offsets)

    async def write(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replace the content durably.

        Returns False if newer content replaced it first, which may not be durable yet. Raises
        OSError.
        """
        if self._written and offsets == self._offsets:
            return True
        self._version += 1
        version, own = self._version, f"{self._path}.{self._version}.tmp"
        offsets = dict(offsets)
        self._keys.update(offsets)
        await self._files.run(self._write, own, offsets)
        if version != self._version:
            self._files.unlink(own)
            return False
        self._files.rename(own, self._path)
        self._written, self._offsets = False, offsets
        await self._files.run(self._files.fsync_dir, self._directory)
        if version != self._version:
            return False
        self._keys = set(offsets)
        self._written = True
        return True

    def forget(self, key: TopicPartition, live: Container[TopicPartition]) -> None:
        """Remove the line of `key`, whose log does not exist, from every content that a crash could
        leave (see `correct`)."""
        self.correct(key, None, live)

    def correct(
        self, key: TopicPartition, offset: int | None, live: Container[TopicPartition]
    ) -> None:
        """Set the line of `key` in every content that a crash could leave; None removes it.

        Blocks if the file may have such a line, which is rare: normal writes omit logs that no
        longer exist. Raises OSError.
        """
        if key not in self._keys:
            return
        self._version += 1
        offsets = {each: known for each, known in self._offsets.items() if each in live}
        offsets.pop(key, None)
        if offset is not None:
            offsets[key] = offset
        self._write(self._path, offsets)
        self._written, self._offsets, self._keys = True, offsets, set(offsets)

    def _write(self, path: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._files.write_atomic(path, encode_offsets(offsets))
