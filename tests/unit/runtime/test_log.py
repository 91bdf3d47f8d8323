import json
import os

import pytest

from runtime import log
from runtime.clock import ManualClock


@pytest.fixture
def lines():
    out: list[bytes] = []
    log.configure(write=out.append, clock=ManualClock(now_ms=1_700_000_000_123))
    yield out
    log.configure()


def test_console_line(lines):
    log.get_logger("a.b").info("Node is up", port=9092, host="localhost", note="two words")
    assert lines == [
        b"[2023-11-14 22:13:20,123] INFO Node is up port=9092 host=localhost "
        b'note="two words" (a.b)\n'
    ]


def test_json_line(lines):
    log.configure(format="json", write=lines.append, clock=ManualClock(now_ms=5))
    log.get_logger("x").warning("odd", n=1)
    assert json.loads(lines[0]) == {
        "timestamp": "1970-01-01T00:00:00.005Z",
        "level": "warning",
        "logger": "x",
        "event": "odd",
        "n": 1,
    }


def test_values_cannot_forge_a_line(lines):
    log.get_logger("x").info("client\nINFO forged", client_id="a\r\n[x] ERROR b\x1b[2J")
    assert len(lines) == 1
    assert lines[0].count(b"\n") == 1
    assert b"\x1b" not in lines[0]


def test_level_filters(lines):
    log.configure(level="warning", write=lines.append)
    log.get_logger("x").info("quiet")
    log.get_logger("x").error("loud")
    assert len(lines) == 1


def test_the_level_can_change_while_running(lines):
    logger = log.get_logger("x")
    log.set_level("error")
    assert log.level() == "error"
    logger.warning("quiet")
    log.set_level("debug")
    logger.debug("loud")
    assert len(lines) == 1
    with pytest.raises(KeyError):
        log.set_level("verbose")
    assert log.level() == "debug"


def test_exception_is_indented(lines):
    try:
        raise ValueError("boom")
    except ValueError:
        log.get_logger("x").exception("failed")
    text = lines[0].decode().splitlines()
    assert text[0].endswith("ERROR failed (x)")
    assert all(line.startswith("    ") for line in text[1:])
    assert text[-1] == "    ValueError: boom"


def test_rate_limit_counts_what_it_holds_back():
    clock = ManualClock()
    limit = log.RateLimited(clock, per_ms=1000)
    assert limit.admit("a") == 0
    assert limit.admit("a") is None
    assert limit.admit("b") == 0
    clock.advance(1000)
    assert limit.admit("a") == 1


def test_rate_limit_forgets_the_oldest_key():
    limit = log.RateLimited(ManualClock(), per_ms=1000, keys_max=2)
    for key in ("a", "b", "c"):
        assert limit.admit(key) == 0
    assert limit.admit("a") == 0
    assert limit.admit("c") is None


def test_log_sink_to_unread_pipe_drops_lines_and_reports_count():
    read_fd, write_fd = os.pipe()
    try:
        sink = log.ThreadSink(write_fd, lines_max=4)
        line = b"x" * 70_000 + b"\n"
        for _ in range(20):
            sink(line)
        assert not sink.flush(10)
        received = b""
        while b"dropped" not in received:
            received += os.read(read_fd, 1 << 20)
            sink(b"later\n")
        assert b"log lines dropped" in received
        os.set_blocking(read_fd, False)
        while not sink.flush(20):
            os.read(read_fd, 1 << 20)
    finally:
        os.close(read_fd)
        os.close(write_fd)


def test_importing_the_log_does_not_import_rich():
    import subprocess
    import sys

    code = "import runtime.log, sys; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_rate_limit_keeps_the_beginning_of_a_key() -> None:
    """Clients choose ids: 1,024 of 32 KB would stay in memory."""
    limit = log.RateLimited(ManualClock(), per_ms=1000)
    assert limit.admit("x" * 30_000) == 0
    assert limit.admit("x" * 30_000 + "y") is None
    assert [len(key) for key in limit._seen] == [log.KEY_CHARS_MAX]
