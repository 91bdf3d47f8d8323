"""Producer ids: unique, fetched in time, and requested again after a failure."""

from __future__ import annotations

import asyncio

import pytest

from broker.controller_link.producer_id_blocks import ProducerIds
from broker.controller_link.producer_ids import ProducerIdBlock, ProducerIdBlocks
from protocol.errors import ApiError, ErrorCode
from runtime.tasks import Supervisor


class TestBlocks:
    def test_ids_come_in_order_over_blocks(self) -> None:
        blocks = ProducerIdBlocks()
        assert blocks.take() is None
        blocks.add(ProducerIdBlock(1_000, 2))
        assert [blocks.take(), blocks.take(), blocks.take()] == [1_000, 1_001, None]
        blocks.add(ProducerIdBlock(5_000, 1))
        assert blocks.take() == 5_000

    def test_the_next_block_is_wanted_when_a_tenth_is_left(self) -> None:
        blocks = ProducerIdBlocks()
        assert blocks.wants_block
        blocks.add(ProducerIdBlock(0, 100))
        wanted = []
        for _ in range(100):
            blocks.take()
            wanted.append(blocks.wants_block)
        assert wanted.index(True) == 89
        blocks.add(ProducerIdBlock(100, 100))
        assert not blocks.wants_block

    @pytest.mark.parametrize(
        "block",
        [
            ProducerIdBlock(5, 10),
            ProducerIdBlock(10, 0),
            ProducerIdBlock(-1, 1),
            ProducerIdBlock(2**63 - 5, 10),
        ],
    )
    def test_blocks_that_would_repeat_ids_are_refused(self, block: ProducerIdBlock) -> None:
        blocks = ProducerIdBlocks()
        blocks.add(ProducerIdBlock(0, 10))
        blocks.take()
        with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
            blocks.add(block)


class Controller:
    def __init__(self, size: int) -> None:
        self.size = size
        self.asked = 0
        self.error: ApiError | None = None

    async def allocate(self) -> ProducerIdBlock:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return ProducerIdBlock((self.asked - 1) * self.size, self.size)


async def test_concurrent_takes_request_one_block() -> None:
    controller, supervisor = Controller(100), Supervisor()
    ids = ProducerIds(controller.allocate, supervisor)
    taken = await asyncio.gather(*(ids.take_or_wait() for _ in range(20)))
    assert sorted(taken) == list(range(20))
    assert controller.asked == 1
    await supervisor.close()


async def test_a_small_block_for_many() -> None:
    controller, supervisor = Controller(3), Supervisor()
    ids = ProducerIds(controller.allocate, supervisor)
    taken = await asyncio.gather(*(ids.take_or_wait() for _ in range(10)))
    assert sorted(taken) == list(range(10))
    await supervisor.close()


async def test_the_controller_fails() -> None:
    controller, supervisor = Controller(10), Supervisor()
    ids = ProducerIds(controller.allocate, supervisor)
    controller.error = ApiError(ErrorCode.STALE_BROKER_EPOCH, "later")
    with pytest.raises(ApiError) as raised:
        await ids.take_or_wait()
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ids.take() is None
    controller.error = None
    assert await ids.take_or_wait() == 10
    await supervisor.close()
