"""Shell: leader-epoch-checkpoint, written off the loop.

The content goes to a file of its own name and is durable before that takes the place of the old one
(KAFKA-16541: after a power cut there is the old list or the new one, never half of one). The name
is durable only with the directory, which the next flush of the log sees to, before the recovery
point moves: until then recovery would find the epoch in the batches.
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
"""Files that one call of a worker writes."""


class EpochWrite(NamedTuple):
    """A list to write. `changes` is what `EpochCache.changes` was."""

    path: str
    temporary: str
    content: bytes
    changes: int


def write_all(files: Files, writes: Sequence[EpochWrite]) -> list[OSError | None]:
    """In a worker: the contents under their temporary names, durable; the error of each."""
    errors: list[OSError | None] = []
    for write in writes:
        try:
            files.write_new(write.temporary, write.content)
            errors.append(None)
        except OSError as error:
            errors.append(error)
    return errors


class EpochFile:
    """The file of one log's epochs.

    `limit` is where the oldest epoch begins that is not in the file yet: the high watermark
    of a partition waits there.
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
        """Whether a write would bring the file up to date. `limit` may wait for a `let_go` alone,
        and then none is of use."""
        return self._epochs.dirty

    def begin(self, epoch: int, offset: int) -> None:
        """`epoch` begins at `offset`."""
        if self._epochs.assign(epoch, offset):
            self.limit = min(self.limit, offset)

    def hold(self, offset: int) -> None:
        """`limit` is `offset` at most until `let_go`, whatever is written."""
        self._held = offset
        self.limit = min(self.limit, offset)

    def let_go(self) -> None:
        """See `hold`."""
        self._held = NO_LIMIT
        if not self._epochs.dirty:
            self.limit = NO_LIMIT

    def write(self, directory: str) -> None:
        """Write it, durably, if it is out of date. Blocks; raises OSError."""
        if self._epochs.unsettled:
            path = posixpath.join(directory, LEADER_EPOCH_CHECKPOINT)
            self._files.write_atomic(path, encode_epochs(self._epochs.entries))
            self._epochs.saved = self._epochs.durable = self._epochs.changes
        self.limit = self._held

    def to_write(self, directory: str, topic_id: bytes | None) -> EpochWrite | None:
        """What `write_all` is to write before `written` is called; None if the file is up to
        date."""
        if not self._epochs.dirty:
            return None
        path = posixpath.join(directory, LEADER_EPOCH_CHECKPOINT)
        self._writes += 1
        # A namesake made after this log's deletion must not write to the same file.
        temporary = f"{path}.{(topic_id or b'').hex()[:8]}-{self._writes}.tmp"
        content = encode_epochs(self._epochs.entries)
        return EpochWrite(path, temporary, content, self._epochs.changes)

    def written(self, write: EpochWrite) -> None:
        """What was written becomes the file, unless that is newer. Raises OSError."""
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
        """`write` without blocking; `closed` says whether the log was deleted meanwhile."""
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
