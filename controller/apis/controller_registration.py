"""ControllerRegistration (key 70), version 0.

Behaviour: a controller process tells the active one where it listens and what it supports
(KIP-919), so that clients of the controllers and feature updates know all of them.

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
    """Serve the API from `table`."""

    def handle(context: RequestContext, request: ControllerRegistrationRequest) -> Reply:
        return controller.submit(
            lambda view: decide_register_controller(view, request),
            lambda _: ControllerRegistrationResponse(error_message=None),
        )

    table.register(
        ApiKey.CONTROLLER_REGISTRATION, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
