"""UnregisterBroker (key 64), version 0.

Behaviour: removes the registration of a broker that is permanently gone. The broker leaves every
ISR; its replicas stay assigned.

Errors: BROKER_ID_NOT_REGISTERED, REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.brokers.registration import decide_unregister_broker
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 0


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: UnregisterBrokerRequest) -> Reply:
        return controller.submit(
            lambda view: decide_unregister_broker(view, request.broker_id),
            lambda _: UnregisterBrokerResponse(error_message=None),
        )

    table.register(
        ApiKey.UNREGISTER_BROKER, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
