"""The request log: a line for each answer, however its handler returns it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker import request_log
from broker.request_log import RequestLog
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.transport.dispatch import EncodedReply, HandlerTable, RequestContext
from runtime.clock import ManualClock
from testkit.memory.stages import context, through


class Lines:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **values: Any) -> None:
        self.lines.append(values)


async def test_every_way_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Lines()
    monkeypatch.setattr(request_log, "_log", log)
    clock = ManualClock()
    table = HandlerTable()
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(error_code=ErrorCode.NOT_COORDINATOR),
            FindCoordinatorResponse.Coordinator(error_code=ErrorCode.NOT_COORDINATOR),
        ]
    )

    async def later(_: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return found

    table.register(ApiKey.API_VERSIONS, lambda *_: refused)
    table.register(ApiKey.HEARTBEAT, lambda *_: waiting)
    table.register(ApiKey.FIND_COORDINATOR, later)
    table.register(ApiKey.LEAVE_GROUP, lambda *_: EncodedReply([b"x"]))
    table.add_stage(RequestLog(clock))

    def call(request: Any) -> Any:
        api = ApiKey(request.API_KEY)
        return through(table, context(api), request)

    assert call(ApiVersionsRequest()) is refused
    assert await call(FindCoordinatorRequest()) is found
    assert isinstance(call(LeaveGroupRequest()), EncodedReply)
    promised = call(HeartbeatRequest())
    assert len(log.lines) == 3
    clock.advance(5)
    waiting.set_result(HeartbeatResponse())
    assert await promised == HeartbeatResponse()
    assert [(line["api"], line["errors"], line["took_ms"]) for line in log.lines] == [
        ("API_VERSIONS", ["UNSUPPORTED_VERSION"], 0.0),
        ("FIND_COORDINATOR", ["NOT_COORDINATOR"], 0.0),
        ("LEAVE_GROUP", [], 0.0),
        ("HEARTBEAT", [], 5.0),
    ]
    assert {(line["client_id"], line["version"], line["connection"]) for line in log.lines} == {
        ("me", 2, 3)
    }
    assert log.lines[3]["arrived_ms"] == log.lines[0]["arrived_ms"]
