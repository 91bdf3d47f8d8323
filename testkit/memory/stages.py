"""A request through the stages of a table, as the transport runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from protocol.api_keys import ApiKey
from protocol.transport.dispatch import (
    Body,
    HandlerTable,
    Passage,
    RequestContext,
    leave,
    pass_through,
)
from testkit.memory.broker import LISTENER, Peer


def through(table: HandlerTable, context: RequestContext, request: Any) -> Any:
    """Return the body to send; a coroutine of it if the handler returned an awaitable."""
    entry = table.entries[context.api_key]
    reply, passages = pass_through(table.stages, entry, context, request)
    return _later(reply, passages) if isinstance(reply, Awaitable) else reply


async def _later(promise: Awaitable[Body], passages: Sequence[Passage]) -> Body:
    return leave(passages, await promise)


def context(api: ApiKey) -> RequestContext:
    """Return the context of a request in version 2 of `api`."""
    return RequestContext(Peer(3), api, 2, 1, "me", 0.0, "User:ANONYMOUS", "127.0.0.1", LISTENER)
