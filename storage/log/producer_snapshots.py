"""The producer `.snapshot` files of one log.

One is written at the start of each segment and at a clean close. Each has a CRC, and a lost one
only costs a longer replay while the batches exist. So snapshots need not be durable at once, but
before the recovery point passes them: the next flush includes the files in `unflushed`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from storage.files import File, Files
from storage.log.producers import CorruptSnapshot, ProducerStates
from storage.log.segment import SNAPSHOT_SUFFIX, file_name


class ProducerSnapshots:
    """The snapshots of one log. `offsets` is ascending."""

    __slots__ = ("_directory", "_files", "offsets", "unflushed")

    def __init__(self, files: Files, directory: str, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets = offsets
        self.unflushed: dict[int, File] = {}

    def path(self, offset: int) -> str:
        return posixpath.join(self._directory, file_name(offset, SNAPSHOT_SUFFIX))

    def take(self, offset: int, producers: ProducerStates) -> None:
        """Write a snapshot of the state at `offset`, unless there is one at or above it."""
        if not self.reaches(offset):
            self.write(offset, producers.encode_snapshot())

    def reaches(self, offset: int) -> bool:
        """Return whether there is a snapshot at or above `offset`."""
        return bool(self.offsets) and self.offsets[-1] >= offset

    def write(self, offset: int, content: bytes | bytearray) -> None:
        """Write the snapshot file of `offset`, which is above all others. Raises OSError."""
        file = self._files.open(self.path(offset), create=True)
        if file.size():
            file.truncate(0)
        file.append(content)
        self.unflushed[offset] = file
        self.offsets.append(offset)

    def flushed(self, offsets: Iterable[int]) -> None:
        """Close the files of these snapshots, which are durable now."""
        for offset in list(offsets):
            file = self.unflushed.pop(offset, None)
            if file is not None:
                file.close()

    def load_latest(self, producers: ProducerStates, now_ms: int, problems: list[str]) -> int:
        """Load the newest usable snapshot. Returns its offset, or -1.

        Unusable ones are removed and reported in `problems`.
        """
        producers.clear()
        while self.offsets:
            offset = self.offsets[-1]
            try:
                producers.load_snapshot(self._files.read(self.path(offset)), now_ms)
                return offset
            except (CorruptSnapshot, FileNotFoundError) as error:
                problems.append(f"{self.path(offset)}: {error}")
                self.remove(offset)
        return -1

    def load_up_to(self, offset: int, producers: ProducerStates, now_ms: int) -> int:
        """Load the newest usable snapshot that is not above `offset`, removing nothing.

        Returns its offset, or -1.
        """
        for taken in reversed([each for each in self.offsets if each <= offset]):
            try:
                producers.load_snapshot(self._files.read(self.path(taken)), now_ms)
                return taken
            except (CorruptSnapshot, FileNotFoundError):
                producers.clear()
        return -1

    def remove(self, offset: int) -> None:
        self.offsets.remove(offset)
        self.flushed([offset])
        path = self.path(offset)
        if self._files.exists(path):
            self._files.unlink(path)

    def remove_above(self, offset: int) -> bool:
        """Remove the snapshots of a truncated history. Returns whether there were any."""
        doomed = [taken for taken in self.offsets if taken > offset]
        for taken in doomed:
            self.remove(taken)
        return bool(doomed)

    def remove_oldest_at(self, offset: int) -> None:
        """Remove the snapshot of the removed segment that began at `offset`, unless it is the
        last."""
        if offset in self.offsets and offset != self.offsets[-1]:
            self.remove(offset)
