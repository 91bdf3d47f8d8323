"""Limits of one listener."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.transport.memory import SHARED_BYTES


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a listener; the defaults are Kafka's where Kafka has the key.

    socket.request.max.bytes, kraftbox.connection.max.inflight, connections.max.idle.ms (0 or less:
    never), socket.listen.backlog.size. How many may connect is in `admission.py`, how much memory
    their requests may take in `memory.py`.
    """

    request_bytes_max: int = 104_857_600
    max_inflight: int = 5
    idle_ms: float = 600_000.0
    backlog: int = 50
    receive_buffer_bytes: int = SHARED_BYTES
    write_high_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        if self.max_inflight < 1:
            raise ValueError("max_inflight must be at least 1")
