"""Shell: Driver of a replica's core: events in, effects out in order, one timer.

The core decides in plain calls; the driver carries out its effects in order. One kind of effect
waits, PersistState. Until the quorum-state file is durable no later effect is carried out, so no
vote and no epoch leaves the node before it is on disk (M3). In the meantime the core still
processes events; their effects are queued.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from metalog.quorum.core.messages import (
    Effect,
    Event,
    ReplyEpoch,
    ReplyFetch,
    ReplyVote,
    ReplyVoterUpdate,
    Tick,
)
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.log import MetadataLog
from metalog.quorum.stats import QuorumStats
from runtime.clock import Clock
from runtime.tasks import Supervisor
from storage.log.errors import LogFailed

Answer = ReplyVote | ReplyEpoch | ReplyFetch | ReplyVoterUpdate


class CoreDriver:
    """The driver of one core.

    Args:
        carry_out: carries out one effect; raises LogFailed.
    """

    def __init__(
        self,
        core: QuorumCore,
        log: MetadataLog,
        stats: QuorumStats,
        *,
        clock: Clock,
        supervisor: Supervisor,
        carry_out: Callable[[Effect], None],
    ) -> None:
        self.core = core
        self.log = log
        self.is_persisting = False
        """True while the core is ahead of quorum-state on the disk; then nothing leaves the
        node."""
        self._stats = stats
        self._clock = clock
        self._supervisor = supervisor
        self._carry_out = carry_out
        self._queue: deque[Effect] = deque()
        self._is_draining = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._tokens = 0
        self._answers: dict[int, Callable[[Any], None]] = {}

    def step(self, event: Event) -> None:
        """Pass an event to the core and carry out its effects. Ignored after `stop`."""
        if self._is_stopped:
            return
        self._queue.extend(self.core.step(event, self._clock.monotonic_ms()))
        self.drain()
        self.update_stats()
        self._arm_timer()

    def drain(self) -> None:
        """Carry out the queued effects, until one waits. Raises LogFailed, which stops the node."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._queue and not self.is_persisting:
                self._carry_out(self._queue.popleft())
        except LogFailed as error:
            # The caller might mistake this for a peer's error and retry indefinitely.
            self._supervisor.report("append to the metadata log", error)
            raise
        finally:
            self._is_draining = False

    def persisted(self) -> None:
        """Continue with the effects behind a PersistState: the file is durable."""
        self.is_persisting = False
        self.drain()

    def update_stats(self) -> None:
        """Count what has changed in the core and its log."""
        core = self.core
        now_ms = self._clock.monotonic_ms()
        self._stats.observe(core.role, self.log.end_offset, core.high_watermark, now_ms)

    def request(self, make: Callable[[int], Event], then: Callable[[Any], None]) -> None:
        """Step with the event `make(token)`; `then` gets the answer to the token.

        `then` is called at once, or later if the answer waits for the quorum-state file.
        """
        self._tokens += 1
        self._answers[self._tokens] = then
        self.step(make(self._tokens))

    def answer(self, effect: Answer) -> None:
        """Pass an answer of the core to the caller of `request`."""
        self._answers.pop(effect.token)(effect)

    def stop(self) -> None:
        """Ignore all events from now on."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and not self._is_stopped:
            wait_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000.0, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self.step(Tick())
        except Exception as error:  # noqa: BLE001 - a quorum without its timer would hang in silence
            self._supervisor.report("a quorum timer", error)
