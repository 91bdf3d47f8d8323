"""The channel from a test's process to supervisor and helper. Standard library and frames only."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kraftbox.launcher import frames
from kraftbox.launcher.interpreter import own_command

__tracebackhide__ = True

HELPER_END_S = 5.0


class ClusterError(RuntimeError):
    """The cluster refused a request or did not finish it in time; the message has the reason."""

    # The public name, which pytest's summary shows.
    __module__ = "kraftbox.testing"


def ask_supervisor(directory: Path, request: frames.Message, timeout_s: float) -> dict[str, Any]:
    """Send one request to the supervisor of a cluster's directory. Raises ClusterError."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    try:
        with connection, _address(directory) as address:
            connection.connect(address)
            connection.sendall(frames.encode(request))
            decoder = frames.Decoder()
            while True:
                data = connection.recv(1 << 16)
                if not data:
                    raise ClusterError(f"the cluster in {directory} has ended")
                for answer in decoder.feed(data):
                    if "error" in answer:
                        raise ClusterError(answer["error"])
                    return answer
    except TimeoutError:
        raise ClusterError(f"{dict(request)}: not finished after {timeout_s:g} s") from None
    except (OSError, frames.FrameError) as error:
        raise ClusterError(f"no answer from the cluster in {directory}: {error}") from None


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """Yield a path of the control socket that fits into a socket address."""
    address = str(directory / "control")
    if len(os.fsencode(address)) < 100 or not os.path.isdir("/proc/self/fd"):
        yield address
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/control"
    finally:
        os.close(fd)


class Helper:
    """Client of the helper process (`kraftbox.testing.helper`), which uses Kafka's protocol.

    The process is started with the first request. Threads may share the client. Answers repeat the
    number of their request: after an interrupted request (a test's time limit, Ctrl-C) its answer
    must not be mistaken for the next one's.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._decoder = frames.Decoder()
        self._lock = threading.Lock()
        self._number = 0

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Return the answer's value. Raises ClusterError with the cluster's error."""
        with self._lock:
            self._number += 1
            try:
                answer = self._exchange({**request, "number": self._number})
            except (OSError, frames.FrameError) as error:
                self._discard()
                raise ClusterError(f"the helper does not answer: {error}") from None
            except BaseException:
                # The helper may have received only a part of the request, or still be working on
                # it.
                self._discard()
                raise
        if "error" in answer:
            raise ClusterError(answer["error"])
        return answer["value"]

    def _exchange(self, request: frames.Message) -> dict[str, Any]:
        """Send a request and read its answer. Raises OSError, FrameError, ClusterError."""
        framed = frames.encode(request)
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(framed)
        process.stdin.flush()
        while True:
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                raise ClusterError("the helper has ended")
            for answer in self._decoder.feed(data):
                if answer.get("number") == request["number"]:
                    return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._discard()
        if self._process is None:
            self._decoder = frames.Decoder()
            self._process = subprocess.Popen(
                own_command("_testing"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def _discard(self) -> None:
        """Kill a helper whose channel may be inconsistent; the next request starts another one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def close(self) -> None:
        """Close the helper's input, which ends it, and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(HELPER_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
