"""Findings, and the complaints that checks make them of."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """ERROR: a promise is broken. WARNING: data may be lost, or the log is damaged where that may
    be harmless. INFO: a fact that somebody asks for."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(NamedTuple):
    """One sentence about one place of a log, and what stood before and after it.

    `offset` is -1 where none fits. `log` names the copy of the log (a node) it is about, or is
    empty; `before` and `after` are JSON values.
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
    """The answer of a check, made a finding by its caller, who knows the place in the log."""

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
        """The finding of `check` there. The complaint's own offset, time and severity, if any,
        win."""
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
