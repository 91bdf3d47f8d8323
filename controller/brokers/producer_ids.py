"""Blocks of producer ids for brokers (KIP-730)."""

from __future__ import annotations

from typing import NamedTuple

from controller.brokers.registration import check_broker_epoch
from controller.decision import ControllerView, Decision
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.producer_ids_record import ProducerIdsRecord

BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """A block of `size` producer ids that begins at `first`."""

    first: int
    size: int


def decide_allocate_producer_ids(
    view: ControllerView, *, broker_id: int, broker_epoch: int
) -> Decision[ProducerIdBlock]:
    """Assign the next block to the broker; no other broker gets it.

    Raises:
        ApiError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR if no ids are left.
    """
    check_broker_epoch(view, broker_id, broker_epoch)
    first = max(view.image.next_producer_id, 0)
    if first > LAST_PRODUCER_ID - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision((record,), ProducerIdBlock(first, BLOCK_SIZE))
