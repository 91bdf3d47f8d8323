"""BrokerRegistration (key 62), versions 0-4.

Behaviour: a broker process registers and gets its broker epoch. It is fenced until its heartbeats
report that it has caught up. A request that the same process repeats returns the same epoch.

Versions: 1 added the migration from ZooKeeper, which is refused; 2 log directories; 3 the epoch the
broker ran with before, proof of a clean shutdown (KIP-966); 4 features whose minimum is 0.

Errors: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION (another process with this id is
alive; try again), INVALID_REGISTRATION (log directories), UNSUPPORTED_VERSION (a finalised feature
level that the broker does not support), NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.brokers.registration import decide_register_broker
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 4


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: BrokerRegistrationRequest) -> Reply:
        return controller.submit(
            lambda view: decide_register_broker(view, request),
            lambda epoch: BrokerRegistrationResponse(broker_epoch=epoch),
        )

    table.register(
        ApiKey.BROKER_REGISTRATION, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
