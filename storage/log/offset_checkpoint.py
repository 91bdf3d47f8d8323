"""Shell: An offset checkpoint of the log directory as a file, replaced as a whole.

Content is encoded and written in a worker under a name of its own; the loop then renames it, unless
something newer was written meanwhile. So an older content never comes after a newer one.

The file's lines name topic and partition, no topic id: a line that outlives its log would be taken
for one about the next log of that name, which then would begin beyond its records, or be trusted
where it has to be recovered. Whoever makes a log has its name forgotten first.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Mapping

from storage.files import Files
from storage.log.checkpoints import TopicPartition, decode_offsets, encode_offsets


class OffsetCheckpoint:
    """See the module. `name` is one of `storage.log.checkpoints`."""

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self.name = name
        self._files = files
        self._directory = directory
        self._path = posixpath.join(directory, name)
        self._offsets: dict[TopicPartition, int] = {}
        # What a crash could leave: while a write is under way, the old content or the new.
        self._keys: set[TopicPartition] = set()
        self._written = False
        self._version = 0

    def read(self) -> dict[TopicPartition, int]:
        """What the file says; nothing if there is none. Raises CorruptCheckpoint, OSError."""
        try:
            self._offsets = decode_offsets(self._files.read(self._path))
        except FileNotFoundError:
            return {}
        self._keys = set(self._offsets)
        return dict(self._offsets)

    async def write(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replace the content, durably; returns False where something newer came first, which may
        be on its way to the disk still. Raises OSError."""
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
        """Remove the line of `key`, which is not live, from what any crash could leave. See
        `correct`."""
        self.correct(key, None, live)

    def correct(
        self, key: TopicPartition, offset: int | None, live: Container[TopicPartition]
    ) -> None:
        """Where a crash could leave a line of `key`, leave only that of `offset`; None: no line.

        Blocking if there may be one, which is rare: the usual writes say what is, and leave out
        what is no more. Raises OSError.
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
