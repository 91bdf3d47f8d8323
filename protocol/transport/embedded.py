"""Shell: Requests that arrive inside another request (KIP-590's Envelope)."""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.errors import ApiError
from protocol.headers import decode_request_header
from protocol.schema import Buffer
from protocol.transport.decode_queue import decode_in_slices
from protocol.transport.dispatch import (
    HandlerTable,
    RequestContext,
    error_reply,
    leave,
    pass_through,
    peek,
    reply_parts,
)


async def answer_embedded(
    table: HandlerTable, frame: bytes, *, base: RequestContext
) -> list[Buffer] | None:
    """Serve a request that is part of another one.

    Args:
        frame: header and body.
        base: the principal, client and connection of the request; its API fields are not used.

    Returns:
        The response's header and body; None if the request has no response.

    Raises:
        ProtocolError: the request is unreadable.
        CloseConnection: the API or version is not served, or an error has no response.
    """
    api_key, api_version, correlation_id = peek(frame)
    entry = table.find_embedded(api_key, api_version, base.connection)
    if entry is None:
        return _without_length(reply_parts(table.unknown_api_versions(), None, 0, correlation_id))
    header, offset = decode_request_header(frame)
    message, _ = await decode_in_slices(entry.request, frame, api_version, offset)
    context = RequestContext(
        base.connection,
        entry.api,
        api_version,
        correlation_id,
        header.client_id,
        base.received_ms,
        base.principal,
        base.client_host,
        base.listener,
    )
    try:
        reply, passages = pass_through(table.stages, entry, context, message)
        body = leave(passages, await reply) if isinstance(reply, Awaitable) else reply
    except ApiError as error:
        body = error_reply(entry, api_version, error)
    if body is None:
        return None
    return _without_length(reply_parts(body, entry, api_version, correlation_id))


def _without_length(frame: tuple[int, list[Buffer]]) -> list[Buffer]:
    _, parts = frame
    parts[0] = memoryview(parts[0])[4:]
    return parts
