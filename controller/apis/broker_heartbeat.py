"""BrokerHeartbeat (key 63), versions 0-2.

Behaviour: a broker proves that it is alive, reports its metadata offset, and may request to be
fenced or to shut down. The controller answers whether the broker is fenced and whether it may stop.
The contact counts even when a state change must wait for a commit.

Versions: 1 adds offline log directories (KIP-858). Our brokers have one directory and stop when it
fails; Apache Kafka's may have several and continue without one. 2 adds cordoned directories
(KIP-1066), in which no new replicas are placed.

Errors: STALE_BROKER_EPOCH (register again), NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.brokers.registration import BrokerState, HeartbeatReply, decide_heartbeat
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 2


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> Reply:
        controller.contacts.touch(
            request.broker_id,
            epoch=request.broker_epoch,
            metadata_offset=request.current_metadata_offset,
            connection=context.connection,
        )

        def respond(reply: HeartbeatReply) -> BrokerHeartbeatResponse:
            _note_shutdown(controller, request, reply)
            return BrokerHeartbeatResponse(
                is_caught_up=reply.is_caught_up,
                is_fenced=reply.is_fenced,
                should_shut_down=reply.should_shut_down,
            )

        return controller.submit(lambda view: decide_heartbeat(view, request), respond)

    table.register(
        ApiKey.BROKER_HEARTBEAT, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _note_shutdown(
    controller: Controller, request: BrokerHeartbeatRequest, reply: HeartbeatReply
) -> None:
    """Note the log offset of the broker's controlled shutdown.

    It is at the latest the offset of its last record: the call is repeated while records move
    leaders.
    """
    if reply.state is not BrokerState.CONTROLLED_SHUTDOWN:
        return
    if reply.moved_leaders or controller.heartbeats.shutdown_offset(request.broker_id) is None:
        controller.contacts.begin_shutdown(request.broker_id, request.broker_epoch)
