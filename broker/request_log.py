"""Shell: A line for every request that a broker answers, as Kafka's request log has.

Off unless `kraftbox.log.requests` says otherwise; then every handler of the table is wrapped once,
so that a broker without it pays nothing. A line says who asked for what, when it arrived (wall
clock, so that the lines of several brokers can be put in order), how long the answer took, and
which errors are in it. Answers that are passed on encoded are not looked into.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast

from protocol.errors import ErrorCode
from protocol.schema import ApiMessage
from protocol.transport.dispatch import (
    Body,
    EncodedReply,
    Entry,
    Handler,
    HandlerTable,
    Reply,
    RequestContext,
)
from protocol.transport.error_codes import CountErrors, count_errors
from runtime.clock import Clock
from runtime.log import get_logger

_log = get_logger("broker.requests")


def log_requests(table: HandlerTable, clock: Clock) -> None:
    """Wrap what is registered in `table`; later registrations are not seen."""
    for entry in table.entries.values():
        look = count_errors(entry.response)
        entry.handler = partial(_handle, clock, entry, entry.handler, look)


def _handle(
    clock: Clock,
    entry: Entry,
    handler: Handler,
    look: CountErrors,
    context: RequestContext,
    request: Any,
) -> Reply:
    arrived_ms, began_ms = clock.now_ms(), clock.monotonic_ms()

    def answered(body: Body) -> None:
        codes: list[int] = []
        if isinstance(body, ApiMessage):
            look(body, codes.append)
        _log.info(
            "request",
            api=entry.api.name,
            version=context.api_version,
            client_id=context.client_id,
            connection=context.connection.id,
            arrived_ms=arrived_ms,
            took_ms=round(clock.monotonic_ms() - began_ms, 3),
            errors=[_name(code) for code in dict.fromkeys(codes)],
        )

    def settled(done: asyncio.Future[Body]) -> None:
        if not done.cancelled() and done.exception() is None:
            answered(done.result())

    reply = handler(context, request)
    if reply is None or isinstance(reply, (ApiMessage, EncodedReply)):
        answered(reply)
        return reply
    if asyncio.isfuture(reply):
        reply.add_done_callback(settled)
        return reply
    return _when_done(cast("Coroutine[Any, Any, Body]", reply), answered)


async def _when_done(reply: Coroutine[Any, Any, Body], answered: Any) -> Body:
    body = await reply
    answered(body)
    return body


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
