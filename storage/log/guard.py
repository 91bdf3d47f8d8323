"""The state of a log after failures: whether its files may be used for appends or at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from storage.log.errors import CorruptLog, LogFailed
from storage.log.indexes import CorruptIndex

T = TypeVar("T")


class LogGuard:
    """The failure of a log, and actions on its files.

    failure: the error that closed the log for appends; None while it is open. closed: the files are
    closed, or are being closed.
    """

    __slots__ = ("_failed", "closed", "directory", "failure")

    def __init__(self, directory: str, failed: Callable[[BaseException], None]) -> None:
        self.directory = directory
        self.failure: BaseException | None = None
        self.closed = False
        self._failed = failed

    def fail(self, error: BaseException) -> None:
        """Close the log for appends after a disk error, and notify the owner once."""
        if self.failure is None:
            self.failure = error
            self._failed(error)

    def check(self) -> None:
        """Raise LogFailed if the log is closed for appends."""
        if self.failure is not None:
            raise LogFailed(self.directory, self.failure)

    def run(self, action: Callable[[], object]) -> None:
        """Run an action that changes files. If the disk refuses, the log fails: raises
        LogFailed."""
        try:
            action()
        except OSError as error:
            self.fail(error)
            raise LogFailed(self.directory, error) from error

    def look(self, action: Callable[[], T]) -> T:
        """Run an action that only reads files. Raises LogFailed, but the log stays open for
        appends."""
        try:
            return action()
        except (OSError, CorruptLog, CorruptIndex) as error:
            raise LogFailed(self.directory, error) from error
