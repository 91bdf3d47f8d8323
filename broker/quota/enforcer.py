"""Enforcement of client quotas: requests measured, clients throttled, connections muted.

A stage of the broker's table, which stands there while there is a quota: as long as there is none,
nothing stands between a request and its handler.

What a response says (`throttle_time_ms`) is a courtesy; what counts is that the connection is muted
for that time (KIP-219). Bytes of Fetch responses are counted by the Fetch handler, which has to
know before it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from broker.quota.quotas import ClientQuotas, QuotaKind
from broker.quota.throttle_time import THROTTLE, can_tell, raise_encoded
from metalog.image.values import QuotaEntity
from protocol.api_keys import ApiKey
from protocol.messages.produce import ProduceRequest
from protocol.schema import ApiMessage
from protocol.transport.dispatch import Body, EncodedReply, Entry, HandlerTable, RequestContext
from runtime.clock import Clock


def quota_user(context: RequestContext) -> str:
    """The user that quotas know: the principal's name without its type."""
    return context.principal.partition(":")[2]


class QuotaEnforcer:
    """The stage; it puts itself into the table when the first quota appears, and takes itself out
    with the last."""

    def __init__(self, quotas: ClientQuotas, table: HandlerTable, clock: Clock) -> None:
        self.quotas = quotas
        self.clock = clock
        self._table = table
        self._stands = False

    def publish(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """The cluster has these quotas now."""
        self.quotas.replace(quotas)
        if self.quotas.active and not self._stands:
            self._table.add_stage(self)
        elif self._stands and not self.quotas.active:
            self._table.remove_stage(self)
        self._stands = self.quotas.active

    def enter(self, entry: Entry, context: RequestContext, request: Any) -> _Measured:
        """A request comes to its handler."""
        return _Measured(self, entry, context, request)


class _Measured:
    """One request, and the work that its handler had with it."""

    __slots__ = ("_began_ms", "_context", "_enforcer", "_entry", "_request", "_settled", "_work_ms")

    def __init__(
        self, enforcer: QuotaEnforcer, entry: Entry, context: RequestContext, request: Any
    ) -> None:
        self._enforcer = enforcer
        self._entry = entry
        self._context = context
        self._request = request
        self._settled = False
        self._work_ms = 0.0
        self._began_ms = enforcer.clock.monotonic_ms()

    def handled(self, *, promised: bool) -> None:
        """See `dispatch.Passage`."""
        self._work_ms = self._enforcer.clock.monotonic_ms() - self._began_ms
        if promised and self._is_produce and cast(ProduceRequest, self._request).acks == 0:
            # Nobody is told, and what is judged later may take its time: the client waits from now.
            self._mute()
            self._settled = True

    def reply(self, body: Body) -> Body:
        """See `dispatch.Passage`."""
        if self._settled:
            return body
        wait_ms = self._mute()
        if wait_ms <= 0:
            return body
        return _with_throttle(self._entry, self._context.api_version, body, wait_ms)

    @property
    def _is_produce(self) -> bool:
        return self._context.api_key is ApiKey.PRODUCE

    def _mute(self) -> int:
        """Mute the client for as long as it is over its quotas now; returns that time."""
        wait_ms = round(self._wait_ms())
        if wait_ms > 0:
            self._context.connection.mute(wait_ms)
        return wait_ms

    def _wait_ms(self) -> float:
        context, quotas = self._context, self._enforcer.quotas
        now_ms = self._enforcer.clock.monotonic_ms()
        user, client_id = quota_user(context), context.client_id or ""
        wait_ms = 0.0
        if self._is_produce:
            wait_ms = quotas.record(
                QuotaKind.PRODUCE, user, client_id, context.request_bytes, now_ms
            )
            if cast(ProduceRequest, self._request).acks == 0:
                return wait_ms
        # A hundred per cent is a thousand milliseconds of work in a second.
        share = quotas.record(QuotaKind.REQUEST, user, client_id, self._work_ms / 10.0, now_ms)
        return max(wait_ms, share)


def _with_throttle(entry: Entry, api_version: int, body: Body, wait_ms: int) -> Body:
    """The response that tells the client to wait, where this version can."""
    if isinstance(body, ApiMessage):
        if can_tell(type(body), api_version):
            setattr(body, THROTTLE, max(wait_ms, getattr(body, THROTTLE)))
        return body
    if isinstance(body, EncodedReply):
        return EncodedReply(raise_encoded(entry.response, api_version, body.parts, wait_ms))
    return body
