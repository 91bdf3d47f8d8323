"""Shell: Background work of a quorum replica: flushes, deliveries, removal of old snapshots.

Appends are plain writes. A single task flushes everything appended since its last flush began. So
all appends during one flush share the next one, and the event loop never waits for a disk. A failed
flush is never repeated, because the state of the kernel's dirty pages is unknown. The task fails,
the supervisor stops the node, and the next start recovers what is on disk (F19).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from metalog.quorum.core.messages import Event, Flushed
from metalog.quorum.delivery import Delivery
from metalog.quorum.log import MetadataLog
from metalog.quorum.peer_requests import Spawn
from runtime.clock import Clock
from runtime.log import get_logger

_log = get_logger("metalog.quorum")

CLEAN_INTERVAL_MS: Final = 60_000.0
DELIVERY_SLICE_MS: Final = 5.0
"""Time of a delivery to listeners before other tasks run."""


class BackgroundWork:
    """The background tasks of one replica.

    Args:
        step: passes an event to the core.
    """

    def __init__(
        self,
        log: MetadataLog,
        delivery: Delivery,
        clock: Clock,
        *,
        step: Callable[[Event], None],
        spawn: Spawn,
    ) -> None:
        self._log = log
        self._delivery = delivery
        self._clock = clock
        self._step = step
        self._spawn = spawn
        self._flush_wanted = asyncio.Event()
        self._delivery_wanted = asyncio.Event()

    def start(self) -> None:
        """Start the tasks, which run until they are cancelled."""
        self._spawn("flush the metadata log", self._flush())
        self._spawn("deliver metadata", self._deliver())
        self._spawn("clean the metadata log", self._clean())

    def want_flush(self) -> None:
        """Let the flush task write the appended records to the disk."""
        self._flush_wanted.set()

    def want_delivery(self) -> None:
        """Deliver what was committed, and to new listeners."""
        self._delivery_wanted.set()

    async def _flush(self) -> None:
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted.clear()
            durable = await self._log.flush()
            self._step(Flushed(min(durable, self._log.end_offset)))
            if durable < self._log.end_offset:
                self._flush_wanted.set()

    async def _deliver(self) -> None:
        while True:
            await self._delivery_wanted.wait()
            self._delivery_wanted.clear()
            slice_end_ms = self._clock.monotonic_ms() + DELIVERY_SLICE_MS
            while self._delivery.step():
                if self._clock.monotonic_ms() >= slice_end_ms:
                    await asyncio.sleep(0)
                    slice_end_ms = self._clock.monotonic_ms() + DELIVERY_SLICE_MS

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_INTERVAL_MS / 1000.0)
            for removed in self._log.clean(self._clock.now_ms()):
                _log.info("removed a metadata snapshot", offset=removed.offset, epoch=removed.epoch)
