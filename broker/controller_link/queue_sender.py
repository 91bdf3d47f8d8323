"""Shell: A queue of requests to the controller: one at a time, asked again after a pause."""

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
    """What is to be asked, decided without I/O."""

    def due_ms(self) -> float | None:
        """When the next request may go (monotonic); None until there is news or an answer."""

    def failed(self, now_ms: float) -> None:
        """There was no answer to the request under way, or none that could be taken over."""


class QueueSender:
    """Sends what a queue has, whenever it is woken."""

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
        """`next_request(now_ms)` takes a request out of the queue; `answered(response, now_ms)`
        takes its answer over. `name` is what the requests are about, in the log's words. A
        controller without `version` is asked nothing; `if_offered(request)` is a version that is
        taken where the controller has it."""
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
        self._working = False
        self._closed = False

    def wake(self) -> None:
        """There may be something to send: in the next turn of the loop, with what else comes in
        this one."""
        if not self._working and not self._closed:
            self._working = True
            self._supervisor.spawn("requests to the controller", self._work())

    def close(self) -> None:
        """Nothing more is sent. The channel is not closed."""
        self._closed = True

    async def _work(self) -> None:
        try:
            while not self._closed and (due_ms := self._queue.due_ms()) is not None:
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
