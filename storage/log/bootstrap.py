"""A durable note that a log is being rebuilt from elsewhere and must not be believed yet.

The note is a file beside the segments, so it survives any crash in the middle; Kafka passes over
names in a partition's folder that it does not know.
"""

from __future__ import annotations

import posixpath
from typing import Final

from storage.files import Files

MARKER: Final = "kraftbox-bootstrap-incomplete"


class BootstrapMarker:
    """The note of one log. Raises OSError."""

    __slots__ = ("_files", "incomplete")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.incomplete = files.exists(posixpath.join(directory, MARKER))
        """Whether `begin` has not been followed by `end`, across restarts."""

    def begin(self, directory: str) -> None:
        """Before the first change. Durable when it returns."""
        self._files.write_atomic(posixpath.join(directory, MARKER), b"")
        self.incomplete = True

    def end(self, directory: str) -> None:
        """All is here, and on the disk. Durable when it returns."""
        if self.incomplete:
            self._files.unlink(posixpath.join(directory, MARKER))
            self._files.fsync_dir(directory)
            self.incomplete = False
