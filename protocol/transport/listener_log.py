"""Log lines about a listener's connections: one per second and kind; the others are counted."""

from __future__ import annotations

from protocol.transport.dispatch import Connection
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger

LOG_EVERY_MS = 1_000.0

_log = get_logger("protocol.transport")


class ListenerLog:
    """The log events of one listener."""

    def __init__(self, listener: str, clock: Clock) -> None:
        self._listener = listener
        self._limit = RateLimited(clock, LOG_EVERY_MS)

    def closing(self, connection: Connection, reason: str) -> None:
        """Log that this side closes a connection."""
        held_back = self._limit.admit("close")
        if held_back is not None:
            _log.info(
                "Closing a connection",
                reason=reason,
                listener=self._listener,
                peer=f"{connection.peer_host}:{connection.peer_port}",
                client=connection.client_id,
                held_back=held_back,
            )

    def trailing(self, connection: Connection, api_name: str, extra_bytes: int) -> None:
        """Log that bytes after a request's body were ignored."""
        held_back = self._limit.admit("trailing")
        if held_back is not None:
            _log.info(
                "A request was longer than its message",
                api=api_name,
                bytes=extra_bytes,
                client=connection.client_id,
                held_back=held_back,
            )
