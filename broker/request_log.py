"""The request log: a line for every request that a broker answers, as Kafka's has.

A stage of the broker's table, which stands there if `kraftbox.log.requests` says so. A line says
who asked for what, when it arrived (wall clock, so that the lines of several brokers can be put in
order), how long the answer took, and which errors are in it. Answers that are passed on encoded
are not looked into.
"""

from __future__ import annotations

from typing import Any

from protocol.errors import ErrorCode
from protocol.schema import ApiMessage
from protocol.transport.dispatch import Body, Entry, RequestContext
from protocol.transport.error_codes import CountErrors, count_errors
from runtime.clock import Clock
from runtime.log import get_logger

_log = get_logger("broker.requests")


class RequestLog:
    """The stage."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._looks: dict[int, CountErrors] = {}

    def enter(self, entry: Entry, context: RequestContext, request: Any) -> _Logged:
        """A request comes to its handler."""
        look = self._looks.get(entry.api)
        if look is None:
            look = self._looks[entry.api] = count_errors(entry.response)
        return _Logged(self.clock, look, context)


class _Logged:
    """One request from its arrival to its line."""

    __slots__ = ("_arrived_ms", "_began_ms", "_clock", "_context", "_look")

    def __init__(self, clock: Clock, look: CountErrors, context: RequestContext) -> None:
        self._clock = clock
        self._look = look
        self._context = context
        self._arrived_ms = clock.now_ms()
        self._began_ms = clock.monotonic_ms()

    def handled(self, *, promised: bool) -> None:
        """Nothing to tell before the answer is there."""

    def reply(self, body: Body) -> Body:
        """See `dispatch.Passage`."""
        codes: list[int] = []
        if isinstance(body, ApiMessage):
            self._look(body, codes.append)
        context = self._context
        _log.info(
            "request",
            api=context.api_key.name,
            version=context.api_version,
            client_id=context.client_id,
            connection=context.connection.id,
            arrived_ms=self._arrived_ms,
            took_ms=round(self._clock.monotonic_ms() - self._began_ms, 3),
            errors=[_name(code) for code in dict.fromkeys(codes)],
        )
        return body


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
