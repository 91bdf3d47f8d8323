"""Shell: Structured logging: structlog with two formats and one sink.

- `get_logger(name)` may be called at import time; loggers use the settings of a later `configure`.
- A line is one `write`. Regular files are written directly (page cache). Pipes and terminals are
  written by a thread with a bounded queue, because a pipe without a reader must not stop the event
  loop. When the queue is full, lines are dropped and counted; the count is logged once it drains.
- Values are escaped: a client ID with a newline cannot forge a second line.
- A task's context (`bind_context(node_id=1)`) is added to every line of the tasks it starts, so
  that the nodes in one simulated process can be distinguished.

structlog imports rich if it is installed, which takes 90 ms. A node process must not pay that, so
the import below hides rich while structlog loads (its documented fallback is plain tracebacks).
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, cast

from runtime.clock import Clock, SystemClock
from runtime.printable import escape

_HIDDEN = object()
_rich = sys.modules.get("rich", _HIDDEN)
if _rich is _HIDDEN:
    sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import structlog
finally:
    if _rich is _HIDDEN:
        del sys.modules["rich"]

Format = Literal["console", "json"]
Write = Callable[[bytes], None]
EventDict = MutableMapping[str, Any]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Logger(Protocol):
    """The interface of a logger. The event is a sentence; facts are keyword values."""

    def debug(self, event: str, **values: object) -> None: ...
    def info(self, event: str, **values: object) -> None: ...
    def warning(self, event: str, **values: object) -> None: ...
    def error(self, event: str, **values: object) -> None: ...
    def exception(self, event: str, **values: object) -> None: ...
    def bind(self, **values: object) -> Logger: ...


def get_logger(name: str, **values: object) -> Logger:
    """Return a logger that adds `logger=name` and `values` to each line."""
    return cast(Logger, structlog.get_logger(logger_name=name, **values))


KEY_CHARS_MAX = 256


class RateLimited:
    """Rate limit of log lines: one line per key in `per_ms`; the others are counted.

    `admit(key)` returns the number of lines suppressed since the last admitted one, or None if this
    one must be suppressed, too. Keys with the same first 256 characters are treated as equal.
    """

    def __init__(self, clock: Clock, per_ms: float, *, keys_max: int = 1024) -> None:
        self._clock = clock
        self._per_ms = per_ms
        self._keys_max = keys_max
        self._seen: dict[str, tuple[float, int]] = {}

    def admit(self, key: str = "") -> int | None:
        # A client may have chosen the key, of any length.
        key = key[:KEY_CHARS_MAX]
        now = self._clock.monotonic_ms()
        entry = self._seen.get(key)
        if entry is not None and now - entry[0] < self._per_ms:
            self._seen[key] = (entry[0], entry[1] + 1)
            return None
        if entry is None and len(self._seen) >= self._keys_max:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = (now, 0)
        return entry[1] if entry is not None else 0


def render_console(event: EventDict) -> bytes:
    """Render `[time] LEVEL sentence key=value ... (logger)`, then an indented traceback, if any."""
    time_text = event.pop("timestamp", "")
    level = str(event.pop("level", "info")).upper()
    name = event.pop("logger", "")
    trace = event.pop("exception", None)
    sentence = escape(str(event.pop("event", "")))
    values = "".join(f" {key}={_console_value(value)}" for key, value in event.items())
    line = f"[{time_text}] {level} {sentence}{values} ({name})\n"
    if trace:
        line += "".join(f"    {escape(part)}\n" for part in str(trace).splitlines())
    return line.encode("utf-8", "backslashreplace")


def render_json(event: EventDict) -> bytes:
    """Render an event as one line of JSON."""
    import json

    return (json.dumps(dict(event), default=str, separators=(",", ":")) + "\n").encode()


def _console_value(value: object) -> str:
    text = escape(value if isinstance(value, str) else repr(value))
    if isinstance(value, str) and (not text or " " in text or "=" in text or '"' in text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


class ThreadSink:
    """Sink that writes to a descriptor from a thread; drops lines when `lines_max` wait."""

    def __init__(self, fd: int, *, lines_max: int = 10_000) -> None:
        self._fd = fd
        self._lines_max = lines_max
        self._lines: deque[bytes] = deque()
        self._dropped = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False

    def __call__(self, line: bytes) -> None:
        with self._wake:
            if len(self._lines) >= self._lines_max:
                self._dropped += 1
                return
            self._lines.append(line)
            if self._thread is None:
                # Started at the first line, so that a process that forks before it logs has no
                # thread yet.
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._wake.notify()

    def flush(self, timeout_ms: float) -> bool:
        """Wait until everything queued is written; return False after `timeout_ms`."""
        with self._wake:
            return self._wake.wait_for(
                lambda: not self._lines and not self._busy, timeout_ms / 1000.0
            )

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                if not self._lines:
                    self._wake.notify_all()
                self._wake.wait_for(lambda: bool(self._lines))
                data = b"".join(self._lines)
                self._lines.clear()
                if self._dropped:
                    data += b"... %d log lines dropped: nobody read them\n" % self._dropped
                    self._dropped = 0
                self._busy = True
            with contextlib.suppress(OSError):
                write_all(self._fd, data)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sink_for(fd: int) -> Write:
    """Return a sink: direct writes for a regular file, a thread for everything else."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return lambda line: write_all(fd, line)
    return ThreadSink(fd)


class _LineLogger:
    """The logger that receives rendered lines from structlog's bound logger."""

    __slots__ = ("_write",)

    def __init__(self, write: Write) -> None:
        self._write = write

    def msg(self, line: bytes) -> None:
        self._write(line)

    debug = info = warning = error = critical = msg


_write: Write | None = None
_level = "info"


def configure(
    *,
    format: Format = "console",
    level: str = "info",
    write: Write | None = None,
    clock: Clock | None = None,
) -> None:
    """Configure the format and the destination of lines (default: standard output).

    Raises KeyError for a level other than debug, info, warning, error.
    """
    global _write
    set_level(level)
    time_source = clock if clock is not None else SystemClock()
    render = render_json if format == "json" else render_console
    json_time = format == "json"

    def stamp(_logger: object, method: str, event: EventDict) -> EventDict:
        event["timestamp"] = _time_text(time_source.now_ms(), json_time=json_time)
        event["level"] = "error" if method == "exception" else method
        event["logger"] = event.pop("logger_name", "")
        return event

    def final(_logger: object, _method: str, event: EventDict) -> bytes:
        return render(event)

    sink = _write = write if write is not None else sink_for(1)
    structlog.configure(
        processors=[
            stamp,
            structlog.processors.format_exc_info,
            final,
        ],
        logger_factory=lambda *_args: _LineLogger(sink),
        cache_logger_on_first_use=False,
    )
    _adopt_stdlib()


def set_level(level: str) -> None:
    """Change the minimum level that is logged, from the next line on.

    Raises KeyError for a level other than debug, info, warning, error.
    """
    global _level
    number = _LEVELS[level]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))
    logging.getLogger().setLevel(max(number, logging.INFO))
    _level = level


def level() -> str:
    """Return the minimum level that is logged."""
    return _level


def flush(timeout_ms: float = 1000.0) -> None:
    """Wait for queued lines, for the end of a process."""
    if isinstance(_write, ThreadSink):
        _write.flush(timeout_ms)


@contextlib.contextmanager
def captured() -> Iterator[list[dict[str, Any]]]:
    """Collect events as dictionaries instead of writing them, for tests."""
    with structlog.testing.capture_logs() as events:
        yield cast("list[dict[str, Any]]", events)


class _StdlibHandler(logging.Handler):
    """Forwards lines that libraries (mainly asyncio) send to the standard logging module."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = get_logger(record.name)
        event = record.getMessage()
        if record.levelno >= logging.ERROR:
            logger.error(event, exc_info=record.exc_info)
        elif record.levelno >= logging.WARNING:
            logger.warning(event, exc_info=record.exc_info)
        else:
            logger.info(event)


def _adopt_stdlib() -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _StdlibHandler):
            root.removeHandler(handler)
    root.addHandler(_StdlibHandler())


def _time_text(now_ms: int, *, json_time: bool) -> str:
    moment = datetime.fromtimestamp(now_ms // 1000, tz=UTC)
    if json_time:
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"
    return f"{moment:%Y-%m-%d %H:%M:%S},{now_ms % 1000:03d}"
