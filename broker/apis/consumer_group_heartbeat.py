"""ConsumerGroupHeartbeat (key 68), versions 0-1 (KIP-848).

Behaviour: the consumer group protocol is not implemented, and every heartbeat is answered
UNSUPPORTED_VERSION. Kafka does the same if `group.coordinator.rebalance.protocols` is `classic` or
`group.version` is 0. The API is offered nevertheless, as Kafka offers it then: without it
librdkafka waits silently for a broker that has it, and it treats this answer as fatal. The Java
client raises UnsupportedVersionException either way; franz-go falls back to the classic protocol.

ConsumerGroupDescribe is not offered: clients that describe groups then use DescribeGroups at once.
"""

from __future__ import annotations

from typing import Final

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger

MIN_VERSION: Final = 0
MAX_VERSION: Final = 1

NO_CONSUMER_PROTOCOL: Final = (
    "Kraftbox does not support the consumer group protocol of KIP-848: set group.protocol=classic."
)

_LOG_EVERY_MS: Final = 60_000.0

_log = get_logger("broker.apis.consumer_group_heartbeat")


def register(table: HandlerTable, clock: Clock) -> None:
    limit = RateLimited(clock, _LOG_EVERY_MS)

    def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Reply:
        held_back = limit.admit(context.client_host)
        if held_back is not None:
            _log.warning(
                "a member was refused: the consumer group protocol of KIP-848 is not built",
                group_id=request.group_id,
                client_id=context.client_id,
                client_host=context.client_host,
                lines_held_back=held_back,
            )
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_CONSUMER_PROTOCOL
        )

    table.register(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
