"""Shell: Hooks that a log's owner gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.clock import Clock
    from storage.files import File, Files
    from storage.log.log import Log
    from storage.log.segment import Segment


@dataclass(slots=True, kw_only=True)
class LogHooks:
    """What the owner of a log wants to decide or to hear."""

    segment_closed: Callable[[Log, Segment], None] = lambda log, segment: None
    failed: Callable[[Log, BaseException], None] = lambda log, error: None
    flushed: Callable[[float], None] = lambda took_ms: None
    truncated: Callable[[Log], None] = lambda log: None
    may_delete_locally: Callable[[Log, Segment], bool] = lambda log, segment: True
    discard: Callable[[Log, Sequence[str]], None] | None = None
    """Takes renamed files to remove after file.delete.delay.ms; None removes at once."""
    roll_jitter_ms: Callable[[int], int] = lambda limit_ms: 0
    """A random number below the limit, drawn for each segment."""

    async def flush(self, files: Files, unflushed: Sequence[File], clock: Clock) -> None:
        """Flush these, and say how long it took. Raises OSError."""
        began_ms = clock.monotonic_ms()
        await files.flush(unflushed)
        self.flushed(clock.monotonic_ms() - began_ms)
