"""InitProducerId: ids for idempotent producers, a final refusal for transactional ones."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from broker.apis import init_producer_id
from broker.controller_link.producer_id_blocks import ProducerIds
from broker.controller_link.producer_ids import ProducerIdBlock
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.transport.dispatch import HandlerTable
from runtime.tasks import Supervisor


class Api:
    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.supervisor = Supervisor()
        self.table = HandlerTable()
        producer_ids = ProducerIds(self.allocate, self.supervisor)
        init_producer_id.register(self.table, producer_ids)

    async def allocate(self) -> ProducerIdBlock:
        if self.error is not None:
            raise self.error
        return ProducerIdBlock(7_000, 1_000)

    async def ask(self, version: int, **fields: Any) -> tuple[ErrorCode, int, int]:
        request = InitProducerIdRequest(**{"transactional_id": None, **fields})
        context: Any = None
        reply: Any = self.table.entries[ApiKey.INIT_PRODUCER_ID].handler(context, request)
        response = await reply if isinstance(reply, Awaitable) else reply
        assert isinstance(response, InitProducerIdResponse)
        assert encode(response, version)
        return ErrorCode(response.error_code), response.producer_id, response.producer_epoch


async def test_new_ids() -> None:
    api = Api()
    for version in range(6):
        assert await api.ask(version) == (ErrorCode.NONE, 7_000 + version, 0)


async def test_an_old_id_is_replaced_by_a_new_one() -> None:
    assert await Api().ask(3, producer_id=5, producer_epoch=3) == (ErrorCode.NONE, 7_000, 0)


@pytest.mark.parametrize(
    "fields", [{"producer_id": 5}, {"producer_epoch": 3}, {"transactional_id": ""}]
)
async def test_invalid_requests(fields: dict[str, Any]) -> None:
    assert await Api().ask(5, **fields) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_transactional_producers_are_refused_for_good() -> None:
    code, producer_id, _ = await Api().ask(5, transactional_id="t", transaction_timeout_ms=1)
    assert (code, producer_id) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


async def test_no_controller() -> None:
    api = Api()
    api.error = ApiError(ErrorCode.REQUEST_TIMED_OUT, None)
    assert await api.ask(5) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    await api.supervisor.close()


def test_version_6_is_not_offered() -> None:
    entry = Api().table.entries[ApiKey.INIT_PRODUCER_ID]
    assert (entry.version_min, entry.version_max) == (0, 5)
