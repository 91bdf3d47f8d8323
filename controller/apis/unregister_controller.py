"""UnregisterController (key 94), version 0.

Behaviour: removes the registration of a controller (KIP-1312), so that its supported levels no
longer count. The voter set stays as it is. A controller that still runs registers again.

Errors: INVALID_REQUEST (the active controller), UNSUPPORTED_VERSION (metadata.version below 33),
CONTROLLER_ID_NOT_REGISTERED, REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.brokers.registration import decide_unregister_controller
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 0


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: UnregisterControllerRequest) -> Reply:
        return controller.submit(
            lambda view: decide_unregister_controller(view, request.controller_id),
            lambda _: UnregisterControllerResponse(error_message=None),
        )

    table.register(
        ApiKey.UNREGISTER_CONTROLLER, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
