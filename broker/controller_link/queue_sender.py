"""Shell: Sender of a queue of requests to the controller: one at a time, with retries.

A backoff belongs to the controller whose failures caused it: the first request to the next
controller does not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from broker.controller_link.channel import ControllerChannel, ControllerUnavailable
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Request
from runtime.clock import Clock
from runtime.log import Logger, RateLimited
from runtime.tasks import Supervisor

TIMEOUT_MS: Final = 10_000.0


class RequestQueue(Protocol):
    """The queue's content and backoff, without I/O."""

    def due_ms(self) -> float | None:
        """Return when the next request may be sent (monotonic); None until there is news or an
        answer."""

    def failed(self, now_ms: float) -> None:
        """Note that the request in flight has no answer, or none that could be applied."""

    def controller_moved(self) -> None:
        """End the backoff: another controller leads now."""


class QueueSender:
    """Sender of a queue's requests, whenever it is woken."""

    def __init__(
        self,
        name: str,
        queue: RequestQueue,
        *,
        next_request: Callable[[float], Request[Any] | None],
        answered: Callable[[Any, float], None],
        channel: ControllerChannel,
        clock: Clock,
        supervisor: Supervisor,
        log: Logger,
        version: int | None = None,
        if_offered: Callable[[Any], int | None] = lambda request: None,
    ) -> None:
        """Set the dependencies.

        `next_request(now_ms)` removes a request from the queue; `answered(response, now_ms)`
        applies its answer. `name` is the topic of the requests in log messages. A controller
        without `version` receives no request; `if_offered(request)` returns a version that is used
        if the controller has it.
        """
        self._name = name
        self._queue = queue
        self._next_request = next_request
        self._answered = answered
        self._channel = channel
        self._clock = clock
        self._supervisor = supervisor
        self._log = log
        self._version = version
        self._if_offered = if_offered
        self._quiet = RateLimited(clock, 10_000)
        self._moves = channel.moves
        self._working = False
        self._closed = False

    def wake(self) -> None:
        """Check the queue in the next event-loop iteration, with everything that is added until
        then."""
        if not self._working and not self._closed:
            self._working = True
            self._supervisor.spawn("requests to the controller", self._work())

    def close(self) -> None:
        """Stop sending. The channel stays open."""
        self._closed = True

    async def _work(self) -> None:
        try:
            while not self._closed and (due_ms := self._queue.due_ms()) is not None:
                if self._moves != self._channel.moves:
                    self._moves = self._channel.moves
                    self._queue.controller_moved()
                    continue
                wait_ms = due_ms - self._clock.monotonic_ms()
                if wait_ms > 0:
                    await self._channel.pause(wait_ms)
                    continue
                await self._send()
        finally:
            self._working = False

    async def _send(self) -> None:
        request = self._next_request(self._clock.monotonic_ms())
        if request is None:
            return
        try:
            response: Any = await self._channel.request(
                request,
                TIMEOUT_MS,
                version=self._version,
                if_offered=self._if_offered(request),
            )
        except (ControllerUnavailable, ApiError) as error:
            self._grumble(str(error))
            self._queue.failed(self._clock.monotonic_ms())
            return
        if response.error_code:
            self._grumble(ErrorCode(response.error_code).name)
        try:
            self._answered(response, self._clock.monotonic_ms())
        except Exception as error:  # noqa: BLE001 - whatever a controller says
            self._supervisor.survive(f"answer of the controller: {self._name}", error)
            self._queue.failed(self._clock.monotonic_ms())

    def _grumble(self, why: str) -> None:
        held_back = self._quiet.admit()
        if held_back is not None:
            self._log.warning(
                "the controller refuses, trying again",
                about=self._name,
                error=why,
                held_back=held_back,
            )
