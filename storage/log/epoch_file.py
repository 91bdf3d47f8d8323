"""Shell: leader-epoch-checkpoint, written off the event loop.

The content is written to a temporary file and is durable before that file replaces the old one.
After a power cut there is either the old list or the new one, never half of one (KAFKA-16541). The
rename becomes durable when the directory is flushed. The next flush of the log does that before the
recovery point moves; until then recovery would find the epoch in the batches.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from storage.files import Files
from storage.log.checkpoints import LEADER_EPOCH_CHECKPOINT, encode_epochs
from storage.log.epochs import EpochCache

NO_LIMIT: Final = 2**63
TOGETHER: Final = 16
"""Number of files that one worker call writes."""


class EpochWrite(NamedTuple):
    """An epoch list to write. `changes` is the value of `EpochCache.changes` for this list."""

    path: str
    temporary: str
    content: bytes
    changes: int


def write_all(files: Files, writes: Sequence[EpochWrite]) -> list[OSError | None]:
    """Write the contents durably under their temporary names, in a worker.

    Returns the error of each, or None.
    """
    errors: list[OSError | None] = []
    for write in writes:
        try:
            files.write_new(write.temporary, write.content)
            errors.append(None)
        except OSError as error:
            errors.append(error)
    return errors


class EpochFile:
    """The leader-epoch-checkpoint of one log.

    `limit` is the start of the oldest epoch that is not in the file yet. The partition's high
    watermark must not pass it.
    """

    __slots__ = ("_epochs", "_files", "_held", "_writes", "limit")

    def __init__(self, files: Files, epochs: EpochCache) -> None:
        self._files = files
        self._epochs = epochs
        self._writes = 0
        self._held = NO_LIMIT
        self.limit = NO_LIMIT

    @property
    def unsaved(self) -> bool:
        """True if a write would bring the file up to date.

        False if `limit` only waits for `let_go`: a write would not help then.
        """
        return self._epochs.dirty

    def begin(self, epoch: int, offset: int) -> None:
        """Assign the start `offset` to `epoch`."""
        if self._epochs.assign(epoch, offset):
            self.limit = min(self.limit, offset)

    def hold(self, offset: int) -> None:
        """Keep `limit` at `offset` or below until `let_go`, whatever is written."""
        self._held = offset
        self.limit = min(self.limit, offset)

    def let_go(self) -> None:
        """End a `hold`: `limit` depends on unsaved epochs only."""
        self._held = NO_LIMIT
        if not self._epochs.dirty:
            self.limit = NO_LIMIT

    def write(self, directory: str) -> None:
        """Write the file durably if it is out of date. Blocks. Raises OSError."""
        if self._epochs.unsettled:
            path = posixpath.join(directory, LEADER_EPOCH_CHECKPOINT)
            self._files.write_atomic(path, encode_epochs(self._epochs.entries))
            self._epochs.saved = self._epochs.durable = self._epochs.changes
        self.limit = self._held

    def to_write(self, directory: str, topic_id: bytes | None) -> EpochWrite | None:
        """Return the write to pass to `write_all` and then to `written`; None if up to date."""
        if not self._epochs.dirty:
            return None
        path = posixpath.join(directory, LEADER_EPOCH_CHECKPOINT)
        self._writes += 1
        # A new log of the same name, made after this one's deletion, must not use the same file.
        temporary = f"{path}.{(topic_id or b'').hex()[:8]}-{self._writes}.tmp"
        content = encode_epochs(self._epochs.entries)
        return EpochWrite(path, temporary, content, self._epochs.changes)

    def written(self, write: EpochWrite) -> None:
        """Rename the written file into place unless a newer list is there. Raises OSError."""
        if write.changes > self._epochs.saved:
            self._files.rename(write.temporary, write.path)
            self._epochs.saved = write.changes
        else:
            self._files.unlink(write.temporary)
        if not self._epochs.dirty:
            self.limit = self._held

    async def settle(
        self, directory: str, topic_id: bytes | None, closed: Callable[[], bool]
    ) -> None:
        """Run `write` without blocking. `closed` returns whether the log was deleted in the
        meantime."""
        while self._epochs.unsettled and not closed():
            write = self.to_write(directory, topic_id)
            if write is not None:
                (error,) = await self._files.run(write_all, self._files, [write])
                if error is not None:
                    raise error
                if closed():
                    return
                self.written(write)
            saved = self._epochs.saved
            await self._files.flush_dir(directory)
            self._epochs.durable = max(self._epochs.durable, saved)
