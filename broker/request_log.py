"""Request log: a line for every request that a broker answers, like Kafka's.

A stage of the broker's table, present if `kraftbox.log.requests` is true. A line contains the
client and the API, the arrival (wall clock, so that the lines of several brokers can be ordered),
the duration, and the errors in the response. Forwarded responses stay encoded, so their errors are
not listed.
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
    """The stage of the handler table that logs requests."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._looks: dict[int, CountErrors] = {}

    def enter(self, entry: Entry, context: RequestContext, request: Any) -> _Logged:
        """Begin the record of a request."""
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
        """Do nothing: the line is written with the response."""

    def reply(self, body: Body) -> Body:
        """Write the line; see `dispatch.Passage`."""
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
