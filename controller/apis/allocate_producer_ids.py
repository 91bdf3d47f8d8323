"""AllocateProducerIds (key 67), version 0.

Behaviour: gives a broker the next 1000 producer ids (KIP-730); no id is ever assigned twice.

Errors: STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR (none left), NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.brokers.producer_ids import decide_allocate_producer_ids
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 0
MAX_VERSION = 0


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> Reply:
        return controller.submit(
            lambda view: decide_allocate_producer_ids(
                view, broker_id=request.broker_id, broker_epoch=request.broker_epoch
            ),
            lambda block: AllocateProducerIdsResponse(
                producer_id_start=block.first, producer_id_len=block.size
            ),
        )

    table.register(
        ApiKey.ALLOCATE_PRODUCER_IDS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
