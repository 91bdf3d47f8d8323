"""Notifications from the parts of a log to its owner, and decisions that they leave to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True, frozen=True)
class LogOwner:
    """The callbacks of one log's owner; `LogHooks` describes them."""

    rolled: Callable[[], None]
    failed: Callable[[BaseException], None]
    flushed: Callable[[float], None]
    truncated: Callable[[], None]
    start_lowered: Callable[[], None]
    start_owed: Callable[[], None]
    log_start_moved: Callable[[], None]
    discard: Callable[[Sequence[str]], None] | None
    roll_jitter_ms: Callable[[int], int]
