"""Errors raised by a partition log."""

from __future__ import annotations

from protocol.errors import ApiError, ErrorCode


class OffsetOutOfRange(ApiError):
    """The offset is not in [log start, log end]."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in [{start}, {end}]"
        )


class BelowLocalStart(ApiError):
    """The offset is in the log but no longer on this disk: the remote store has it (KIP-405)."""

    def __init__(self, offset: int, local_start: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            f"offset {offset} is below the local log start {local_start}",
        )
        self.local_start = local_start


class LogFailed(ApiError):
    """A disk operation on this log has failed; the log is read-only until it is reopened."""

    def __init__(self, directory: str, cause: BaseException) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {cause}")
        self.cause = cause


class CorruptLog(Exception):
    """Bytes on disk, or from a leader, that cannot be part of this log."""


class BadLogDirectory(Exception):
    """The log directory cannot be used as it is; the message gives the reason and the remedy."""
