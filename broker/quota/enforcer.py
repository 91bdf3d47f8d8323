"""Enforcement of client quotas: requests measured, clients throttled, connections muted.

A stage of the broker's table, present while there is a quota: without quotas nothing delays a
request on its way to its handler.

The response's `throttle_time_ms` is only information for the client; the effective measure is that
the connection is muted for that time (KIP-219). The Fetch handler counts the bytes of Fetch
responses itself, because it needs the count before it answers.
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
    """Return the user for quotas: the principal's name without its type."""
    return context.principal.partition(":")[2]


class QuotaEnforcer:
    """The stage. It adds itself to the table with the first quota and removes itself with the
    last."""

    def __init__(self, quotas: ClientQuotas, table: HandlerTable, clock: Clock) -> None:
        self.quotas = quotas
        self.clock = clock
        self._table = table
        self._stands = False

    def publish(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply the cluster's present quotas."""
        self.quotas.replace(quotas)
        if self.quotas.active and not self._stands:
            self._table.add_stage(self)
        elif self._stands and not self.quotas.active:
            self._table.remove_stage(self)
        self._stands = self.quotas.active

    def enter(self, entry: Entry, context: RequestContext, request: Any) -> _Measured:
        """Begin the measurement of a request."""
        return _Measured(self, entry, context, request)


class _Measured:
    """One request, and the time that its handler has spent on it."""

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
        """Measure the handler's time; see `dispatch.Passage`."""
        self._work_ms = self._enforcer.clock.monotonic_ms() - self._began_ms
        if promised and self._is_produce and cast(ProduceRequest, self._request).acks == 0:
            # No response follows, and validation in a worker may take its time: the client waits
            # from now.
            self._mute()
            self._settled = True

    def reply(self, body: Body) -> Body:
        """Throttle the client and add the time to its response; see `dispatch.Passage`."""
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
        """Mute the client for as long as it is over its quotas now; return that time in
        milliseconds."""
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
    """Return the response with the throttle time in it, if this version has the field."""
    if isinstance(body, ApiMessage):
        if can_tell(type(body), api_version):
            setattr(body, THROTTLE, max(wait_ms, getattr(body, THROTTLE)))
        return body
    if isinstance(body, EncodedReply):
        return EncodedReply(raise_encoded(entry.response, api_version, body.parts, wait_ms))
    return body
