"""Shell: Event-loop lag and busy time.

A timer is set every `every_ms`. The lag is how late it ran: the one number that shows a stall. The
last value and the worst value since the last scrape are kept; alerts use the latter. On a machine
short of processors a loop is late although it did little. So the loop's own part of the lag is at
most its processor time since the timer before. A stall that begins and ends between two timers is
not detected; a lasting one is.

Kafka reports the idle ratios of its request handlers and of its network threads. Here one loop does
both, so both series have the same value: the part of the last minute in which the loop's thread
used no processor. A loop that is blocked by a disk is idle by that measure, but its lag shows the
block.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from runtime.metrics import Family, single

LOAD_WINDOW_MS = 60_000.0

_IDLE = (
    (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "Fraction of the last minute in which the loop that handles requests was idle, 0 to 1",
    ),
    (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "Fraction of the last minute in which the loop that serves the network was idle, 0 to 1",
    ),
)


class LoopLag:
    """Measures the running loop between `start` and `stop`.

    `cpu_s` returns the processor time of the calling thread.
    """

    def __init__(self, every_ms: float, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self.last_ms = 0.0
        self.worst_ms = 0.0
        self.worst_cpu_ms = 0.0
        self._every_ms = every_ms
        self._timer: asyncio.TimerHandle | None = None
        self._cpu_s = cpu_s
        # (loop time, processor time), both in seconds.
        self._loads: deque[tuple[float, float]] = deque(
            maxlen=max(2, round(LOAD_WINDOW_MS / every_ms))
        )

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._loads.append((now, self._cpu_s()))
        due = now + self._every_ms / 1000.0
        self._timer = loop.call_at(due, self._tick, due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def idle(self) -> float:
        """Return the idle part of the last minute, 0 to 1."""
        now, cpu_s = asyncio.get_running_loop().time(), self._cpu_s()
        then, cpu_then_s = self._loads[0] if self._loads else (now, cpu_s)
        if now <= then:
            return 1.0
        return min(max(1.0 - (cpu_s - cpu_then_s) / (now - then), 0.0), 1.0)

    def collect(self) -> Iterable[Family]:
        """Yield the metric families for the registry, and reset the worst value."""
        worst_ms, self.worst_ms = max(self.worst_ms, self.last_ms), 0.0
        worst_cpu_ms, self.worst_cpu_ms = self.worst_cpu_ms, 0.0
        idle = self.idle()
        return [
            single(
                "kraftbox_loop_lag_seconds",
                "Lag of the event loop's last timer",
                self.last_ms / 1000.0,
            ),
            single(
                "kraftbox_loop_lag_worst_seconds",
                "Largest lag of an event loop timer since the last scrape",
                worst_ms / 1000.0,
            ),
            single(
                "kraftbox_loop_lag_worst_cpu_seconds",
                "Largest lag of a timer that the loop's own work can explain",
                worst_cpu_ms / 1000.0,
            ),
            single(
                "kraftbox_loop_cpu_seconds_total",
                "Processor time of the loop's thread",
                self._cpu_s(),
                "counter",
            ),
            *(single(name, text, idle) for name, text in _IDLE),
        ]

    def _tick(self, due: float) -> None:
        now = asyncio.get_running_loop().time()
        self.last_ms = max(0.0, (now - due) * 1000.0)
        self.worst_ms = max(self.worst_ms, self.last_ms)
        cpu_before_s = self._loads[-1][1] if self._loads else 0.0
        self.start()
        used_ms = (self._loads[-1][1] - cpu_before_s) * 1000.0
        self.worst_cpu_ms = max(self.worst_cpu_ms, min(self.last_ms, used_ms))
