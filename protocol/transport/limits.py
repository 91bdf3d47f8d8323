"""Limits of one listener."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.transport.memory import SHARED_BYTES


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a listener, with Kafka's defaults for the keys that Kafka has.

    The keys are socket.request.max.bytes, kraftbox.connection.max.inflight, connections.max.idle.ms
    (0 or less: no limit) and socket.listen.backlog.size. `admission.py` limits the connections, and
    `memory.py` the memory of their requests.
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
