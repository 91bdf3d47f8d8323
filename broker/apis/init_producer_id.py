"""InitProducerId (key 22), versions 0-5; 6 is unstable in Kafka and not offered.

Behaviour: gives an idempotent producer an id with epoch 0. A producer that names its earlier id and
epoch (version 3, KIP-360) gets a new id, too. Without a transactional id no broker remembers the
old one, and sequences start again.

Transactions are not implemented: a transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
producers treat as final. This response has no message; FindCoordinator, which they call first, has
one.

Errors: INVALID_REQUEST (only one of id and epoch given, or an empty transactional id),
COORDINATOR_LOAD_IN_PROGRESS (no id available and no controller reachable; retriable).
"""

from __future__ import annotations

from typing import Final

from broker.controller_link.producer_id_blocks import ProducerIds
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 0
MAX_VERSION: Final = 5

_NONE: Final = -1


def register(table: HandlerTable, producer_ids: ProducerIds) -> None:
    def handle(_context: RequestContext, request: InitProducerIdRequest) -> Reply:
        code = _refusal(request)
        if code is not None:
            return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)
        producer_id = producer_ids.take()
        if producer_id is not None:
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        return _wait(producer_ids)

    table.register(
        ApiKey.INIT_PRODUCER_ID, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )


def _refusal(request: InitProducerIdRequest) -> ErrorCode | None:
    if request.transactional_id is not None:
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return ErrorCode.INVALID_REQUEST
    return None


async def _wait(producer_ids: ProducerIds) -> InitProducerIdResponse:
    try:
        producer_id = await producer_ids.take_or_wait()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=_NONE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
