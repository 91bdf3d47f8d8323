"""Findings, and the complaints of checks from which they are made."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """Severity of a finding.

    ERROR: a promise is broken. WARNING: data may be lost, or the log has damage that may be
    harmless. INFO: informational.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(NamedTuple):
    """One sentence about a position in a log, with the state before and after it.

    `offset` is -1 for a finding without one. `log` names the copy of the log (a node), or is empty.
    `before` and `after` are JSON values.
    """

    check: str
    severity: str
    offset: int
    timestamp_ms: int
    message: str
    before: Any = None
    after: Any = None
    topic: str | None = None
    partition: int | None = None
    log: str = ""


class Complaint(NamedTuple):
    """The result of a check.

    Its caller makes a finding of it, by adding the position in the log.
    """

    message: str
    before: Any = None
    after: Any = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    severity: Severity | None = None
    timestamp_ms: int | None = None

    def finding(
        self, check: str, severity: Severity, offset: int, timestamp_ms: int, *, log: str = ""
    ) -> Finding:
        """Return the finding of `check`.

        The complaint's own offset, time and severity take precedence.
        """
        return Finding(
            check,
            self.severity or severity,
            offset if self.offset is None else self.offset,
            timestamp_ms if self.timestamp_ms is None else self.timestamp_ms,
            self.message,
            self.before,
            self.after,
            self.topic,
            self.partition,
            log,
        )
