"""Shell: Forwarding of requests that only the controller may decide, in an Envelope (KIP-590).

A broker does not interpret them. Header and body go to the active controller together with the
client's principal and address, and the body of the response goes back unchanged. When the
controller moves or is not reachable, the broker repeats the request, until the client's timeout or
its own is over. The client then gets REQUEST_TIMED_OUT in its request's form for errors.

A request that is larger in its envelope than `socket.request.max.bytes` is refused before it is
sent: all nodes of a cluster have the same limit.

The versions offered are those that the controllers of this release serve
(`serving/controller_apis.py` lists their APIs).
"""

from __future__ import annotations

from typing import Any, Final

from broker.admin.envelopes import unwrap, wrap
from broker.context import BrokerContext
from broker.controller_link.channel import (
    BACK_OFF_MAX_MS,
    BACK_OFF_MS,
    ControllerChannel,
    ControllerUnavailable,
)
from broker.quota.throttle_time import read_encoded
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.schema import Request
from protocol.transport.dispatch import (
    Body,
    CloseConnection,
    EncodedReply,
    HandlerTable,
    RequestContext,
)
from protocol.transport.own_names import Own
from protocol.transport.presence import while_connected
from serving.controller_apis import OWN_APIS, OWN_VERSIONS, forwarded_apis
from serving.error_answers import error_response

FORWARD_TIMEOUT_MS: Final = 30_000.0
ELECTION_TIMEOUT_MS: Final = 3_600_000.0
"""Limit for elections: an operator may wait for a broker to come back."""
ENVELOPE_BYTES: Final = 4_096
"""Upper bound for an envelope's own fields: headers, principal, address."""
TIMEOUT_GRACE_MS: Final = 1_000.0
"""Added to a request's own timeout, so that the controller's response arrives in time."""


def register(table: HandlerTable, forwarder: Forwarder) -> None:
    """Register forwarding for all APIs without a handler; call it after the handlers'
    registration."""
    for api in forwarded_apis():
        if api not in table.entries:
            own_max = OWN_VERSIONS.get(api)
            table.register(
                api,
                forwarder.handle,
                own_max_version=own_max,
                own=Own.TOOL,
                own_only=api in OWN_APIS,
            )


class Forwarder:
    """Forwarder of wrapped requests."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def handle(self, context: RequestContext, request: Request[Any]) -> Body:
        """Forward one request and return the controller's response."""
        if context.api_key is not ApiKey.ELECT_LEADERS:
            return await self._forward(self._broker.controller, context, request)
        with while_connected(context.connection):
            return await self._elect(context, request)

    async def _elect(self, context: RequestContext, request: Request[Any]) -> Body:
        async with self._broker.elections.lend() as channel:
            return await self._forward(channel, context, request)

    async def _forward(
        self, channel: ControllerChannel, context: RequestContext, request: Request[Any]
    ) -> Body:
        clock = self._broker.clock
        version = context.api_version
        envelope = wrap(context, request, version)
        size = len(envelope.request_data) + ENVELOPE_BYTES
        if size > self._broker.static.request_bytes_max:
            # The controller would close the connection, and do so for each retry.
            return error_response(request, ErrorCode.INVALID_REQUEST, version)
        deadline_ms = clock.monotonic_ms() + _timeout_ms(request)
        pause_ms = BACK_OFF_MS
        while (left_ms := deadline_ms - clock.monotonic_ms()) > 0:
            try:
                answer = await channel.request(envelope, left_ms)
            except ControllerUnavailable:
                await channel.pause(pause_ms * self._broker.rng.uniform(0.8, 1.2))
                pause_ms = min(pause_ms * 2, BACK_OFF_MAX_MS)
                if isinstance(request, ElectLeadersRequest) and request.timeout_ms > 0:
                    # The client's total wait must not grow: nothing is elected after that time.
                    left_ms = deadline_ms - TIMEOUT_GRACE_MS - clock.monotonic_ms()
                    again = request.replace(timeout_ms=max(int(left_ms), 1))
                    envelope = wrap(context, again, version)
                continue
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                raise CloseConnection(
                    f"the controller does not support {context.api_key.name} {context.api_version}"
                )
            if answer.error_code or answer.response_data is None:
                return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.api_version)
            body = unwrap(context, request, version, answer.response_data)
            # The controller determines the client's throttle time; this broker mutes the
            # connection.
            context.connection.mute(read_encoded(request.response_class(), version, [body]))
            return EncodedReply([body])
        return error_response(request, ErrorCode.REQUEST_TIMED_OUT, context.api_version)


def _timeout_ms(request: Request[Any]) -> float:
    """Return how long the client can be expected to wait, in milliseconds."""
    asked_ms: int | None = getattr(request, "timeout_ms", None)
    if asked_ms is None or asked_ms <= 0:
        return FORWARD_TIMEOUT_MS
    elects = isinstance(request, ElectLeadersRequest)
    most_ms = ELECTION_TIMEOUT_MS if elects else FORWARD_TIMEOUT_MS
    return min(asked_ms + TIMEOUT_GRACE_MS, most_ms)
