"""Shell: Enforcement of client quotas: requests measured, clients throttled, connections muted.

As long as no quota exists, nothing stands between a request and its handler. When the first one
appears, every handler of the table is wrapped, and unwrapped when the last is gone.

What a response says (`throttle_time_ms`) is a courtesy; what counts is that the connection is muted
for that time (KIP-219). Bytes of Fetch responses are counted by the Fetch handler, which has to
know before it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, cast

from broker.quota.quotas import ClientQuotas, QuotaKind
from broker.quota.throttle_time import THROTTLE, can_tell, raise_encoded
from metalog.image.values import QuotaEntity
from protocol.api_keys import ApiKey
from protocol.messages.produce import ProduceRequest
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
from runtime.clock import Clock


def quota_user(context: RequestContext) -> str:
    """The user that quotas know: the principal's name without its type."""
    return context.principal.partition(":")[2]


class QuotaEnforcer:
    """Wraps the handlers of a broker's table while there are quotas."""

    def __init__(self, quotas: ClientQuotas, table: HandlerTable, clock: Clock) -> None:
        self._quotas = quotas
        self._table = table
        self._clock = clock
        self._plain: dict[int, Handler] = {}

    def publish(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """The cluster has these quotas now."""
        self._quotas.replace(quotas)
        if self._quotas.active and not self._plain:
            for key, entry in self._table.entries.items():
                self._plain[key] = entry.handler
                entry.handler = partial(self._handle, entry, entry.handler)
        elif not self._quotas.active and self._plain:
            for key, handler in self._plain.items():
                self._table.entries[key].handler = handler
            self._plain.clear()

    def _handle(
        self, entry: Entry, handler: Handler, context: RequestContext, request: Any
    ) -> Reply:
        began_ms = self._clock.monotonic_ms()
        reply = handler(context, request)
        work_ms = self._clock.monotonic_ms() - began_ms
        finish = partial(self._finish, entry, context, request, work_ms)
        if reply is None or isinstance(reply, (ApiMessage, EncodedReply)):
            return finish(reply)
        if context.api_key is ApiKey.PRODUCE and cast(ProduceRequest, request).acks == 0:
            # Nobody is told, and what is judged later may take its time: the client waits from now.
            finish(None)
            return reply
        if asyncio.isfuture(reply):
            return _after(reply, finish)
        return _when_done(cast("Coroutine[Any, Any, Body]", reply), finish)

    def _finish(
        self, entry: Entry, context: RequestContext, request: Any, work_ms: float, body: Body
    ) -> Body:
        wait_ms = round(self._wait_ms(context, request, work_ms))
        if wait_ms > 0:
            context.connection.mute(wait_ms)
            return _with_throttle(entry, context.api_version, body, wait_ms)
        return body

    def _wait_ms(self, context: RequestContext, request: Any, work_ms: float) -> float:
        quotas, now_ms = self._quotas, self._clock.monotonic_ms()
        user, client_id = quota_user(context), context.client_id or ""
        wait_ms = 0.0
        if context.api_key is ApiKey.PRODUCE:
            wait_ms = quotas.record(
                QuotaKind.PRODUCE, user, client_id, context.request_bytes, now_ms
            )
            if cast(ProduceRequest, request).acks == 0:
                return wait_ms
        # A hundred per cent is a thousand milliseconds of work in a second.
        share = quotas.record(QuotaKind.REQUEST, user, client_id, work_ms / 10.0, now_ms)
        return max(wait_ms, share)


def _after(reply: asyncio.Future[Body], finish: partial[Body]) -> asyncio.Future[Body]:
    """A future of the finished reply. It lives as long as the reply does, and no longer."""
    finished: asyncio.Future[Body] = asyncio.get_running_loop().create_future()

    def settle(done: asyncio.Future[Body]) -> None:
        if finished.done():
            return
        error = None if done.cancelled() else done.exception()
        if done.cancelled():
            finished.cancel()
        elif error is not None:
            finished.set_exception(error)
        else:
            finished.set_result(finish(done.result()))

    reply.add_done_callback(settle)
    return finished


async def _when_done(reply: Coroutine[Any, Any, Body], finish: partial[Body]) -> Body:
    return finish(await reply)


def _with_throttle(entry: Entry, api_version: int, body: Body, wait_ms: int) -> Body:
    """The response that tells the client to wait, where this version can."""
    if isinstance(body, ApiMessage):
        if can_tell(type(body), api_version):
            setattr(body, THROTTLE, max(wait_ms, getattr(body, THROTTLE)))
        return body
    if isinstance(body, EncodedReply):
        return EncodedReply(raise_encoded(entry.response, api_version, body.parts, wait_ms))
    return body
