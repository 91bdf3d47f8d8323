"""Shell: Operations that create or delete partitions, within their client's quota (KIP-599).

For a forwarded request, the controller only returns the throttle time. The forwarding broker has
the client's connection and stops reading from it for that time. The connection of a direct client
is muted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from controller.decision import ControllerView, Decision
from controller.quotas.mutations import Spending
from controller.writer.writer import Controller
from protocol.errors import ApiError
from protocol.messages.create_partitions import CreatePartitionsResponse
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsResponse
from protocol.transport.dispatch import RequestContext

R = TypeVar("R")
Answer = TypeVar("Answer", CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse)


def submit_within_quota(
    controller: Controller,
    context: RequestContext,
    decide: Callable[[ControllerView, Spending | None], Decision[R]],
    respond: Callable[[R], Answer],
    *,
    strict_from: int,
    fail: Callable[[ApiError], Answer],
    timeout_ms: int,
) -> asyncio.Future[Answer]:
    """Submit an operation, charge the client's quota, and put the throttle time in the response.

    Args:
        strict_from: first version whose clients know THROTTLING_QUOTA_EXCEEDED.
    """
    quotas = controller.mutation_quotas
    wait_ms = 0

    def decide_and_charge(view: ControllerView) -> Decision[R]:
        nonlocal wait_ms
        spending = quotas.begin(
            context.principal.partition(":")[2],
            context.client_id or "",
            strict=context.api_version >= strict_from,
            now_ms=view.monotonic_ms,
        )
        decision = decide(view, spending)
        wait_ms = quotas.settle(spending, view.monotonic_ms)
        return decision

    def answer(outcomes: R) -> Answer:
        response = respond(outcomes)
        response.throttle_time_ms = wait_ms
        if wait_ms and context.request_bytes:
            context.connection.mute(wait_ms)
        return response

    return controller.submit(decide_and_charge, answer, fail=fail, timeout_ms=timeout_ms)
