"""ControllerRegistration (key 70), version 0.

Behaviour: a controller process registers its endpoints and supported features with the active
controller (KIP-919). Clients of the controllers and feature updates use these registrations.

Errors: UNSUPPORTED_VERSION (a metadata.version from before KIP-919), INVALID_REQUEST (a migration
from ZooKeeper), NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.brokers.registration import decide_register_controller
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 0


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: ControllerRegistrationRequest) -> Reply:
        return controller.submit(
            lambda view: decide_register_controller(view, request),
            lambda _: ControllerRegistrationResponse(error_message=None),
        )

    table.register(
        ApiKey.CONTROLLER_REGISTRATION, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
