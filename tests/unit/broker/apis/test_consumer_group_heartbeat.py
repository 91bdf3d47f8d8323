"""ConsumerGroupHeartbeat: not supported, with an error that clients understand."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis import consumer_group_heartbeat
from broker.apis.consumer_group_heartbeat import NO_CONSUMER_PROTOCOL
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.transport.dispatch import HandlerTable
from runtime import log
from runtime.clock import ManualClock
from testkit.memory.stages import context


@pytest.mark.parametrize("version", [0, 1])
def test_every_heartbeat_is_refused_for_good(version: int) -> None:
    table = HandlerTable()
    consumer_group_heartbeat.register(table, ManualClock())
    handle = table.entries[ApiKey.CONSUMER_GROUP_HEARTBEAT].handler
    written: list[bytes] = []
    log.configure(write=written.append)
    try:
        for group_id in ("g1", "g2", "g3"):
            request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_epoch=0)
            response: Any = handle(context(ApiKey.CONSUMER_GROUP_HEARTBEAT), request)
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert response.error_message == NO_CONSUMER_PROTOCOL
            encode(response, version)
    finally:
        log.configure()
    assert len([line for line in written if b"KIP-848" in line]) == 1


def test_groups_are_described_by_the_classic_api_alone() -> None:
    table = HandlerTable()
    consumer_group_heartbeat.register(table, ManualClock())
    assert ApiKey.CONSUMER_GROUP_DESCRIBE not in table.entries
