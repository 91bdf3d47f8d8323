"""Shell: The control channel to the supervisor of a cluster."""

from __future__ import annotations

import socket
import time
from typing import Any

from kraftbox.launcher import frames
from kraftbox.launcher.place import ClusterPlace

CONNECT_MS_MAX = 5_000
STATUS_MS_MAX = 5_000
DOWN_MS_MAX = 60_000
POLL_MS = 20


class NotRunning(Exception):
    """No supervisor runs for the directory."""


class RequestFailed(Exception):
    """The supervisor refused the request or did not answer; the message has the reason."""


def status(place: ClusterPlace, wait_ms: float = STATUS_MS_MAX) -> dict[str, Any]:
    """Return the supervisor's view of its nodes. Raises NotRunning, RequestFailed."""
    with _connected(place, wait_ms) as connection:
        return _ask(connection, {"do": "status"}, wait_ms)


def act(place: ClusterPlace, action: str, node_id: int, wait_ms: int) -> None:
    """Carry out one of `states.ACTIONS` on a node and wait until it is done.

    Raises NotRunning, RequestFailed.
    """
    with _connected(place) as connection:
        _ask(connection, {"do": "node", "action": action, "id": node_id}, wait_ms)


def down(place: ClusterPlace) -> bool:
    """Stop the cluster and wait until all its processes have ended; False if none was running.

    Raises RequestFailed.
    """
    try:
        with _connected(place) as connection:
            connection.settimeout(DOWN_MS_MAX / 1000)
            connection.sendall(frames.encode({"do": "down"}))
            while connection.recv(4096):
                pass
    except NotRunning:
        # Without a supervisor, the fork server is ending its nodes: wait for that below.
        if not place.is_taken:
            return False
    except OSError as error:
        raise RequestFailed(f"the supervisor does not answer: {error}") from None
    if not wait_until_free(place, DOWN_MS_MAX):
        raise RequestFailed(f"{place.root} is still in use after {DOWN_MS_MAX // 1000} s")
    return True


def wait_until_free(place: ClusterPlace, wait_ms: int) -> bool:
    """Wait until the directory is unlocked; return False if it is still locked after `wait_ms`."""
    deadline = time.monotonic() + wait_ms / 1000
    while place.is_taken:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_MS / 1000)
    return True


def is_supervised(place: ClusterPlace) -> bool:
    """Return whether a supervisor accepts connections."""
    try:
        _connected(place).close()
    except NotRunning:
        return False
    return True


def _connected(place: ClusterPlace, wait_ms: float = CONNECT_MS_MAX) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(wait_ms / 1000)
    try:
        with place.control_address() as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise NotRunning(place.why_not_running()) from None
    return connection


def _ask(connection: socket.socket, request: frames.Message, wait_ms: float) -> dict[str, Any]:
    decoder = frames.Decoder()
    connection.settimeout(wait_ms / 1000)
    try:
        connection.sendall(frames.encode(request))
        while True:
            data = connection.recv(1 << 16)
            if not data:
                raise RequestFailed("the supervisor has ended")
            for answer in decoder.feed(data):
                if "error" in answer:
                    raise RequestFailed(answer["error"])
                return answer
    except TimeoutError:
        raise RequestFailed(f"not finished after {wait_ms / 1000:g} s") from None
    except (OSError, frames.FrameError) as error:
        raise RequestFailed(f"the supervisor does not answer: {error}") from None
