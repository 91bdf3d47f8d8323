from __future__ import annotations

import pytest

from controller.brokers.producer_ids import (
    LAST_PRODUCER_ID,
    ProducerIdBlock,
    decide_allocate_producer_ids,
)
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.producer_ids_record import ProducerIdsRecord
from testkit.memory.controller import Cluster


def allocate(cluster: Cluster, broker_id: int, epoch: int) -> ProducerIdBlock:
    return cluster.run(
        lambda view: decide_allocate_producer_ids(view, broker_id=broker_id, broker_epoch=epoch)
    )


def test_blocks_follow_each_other() -> None:
    cluster = Cluster()
    one, two = cluster.register(1), cluster.register(2)
    blocks = [allocate(cluster, 1, one), allocate(cluster, 2, two), allocate(cluster, 1, one)]
    assert [tuple(block) for block in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]


def test_a_stale_broker_gets_none() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    for broker_id, stale in ((1, epoch + 1), (2, epoch)):
        with pytest.raises(ApiError) as refusal:
            allocate(cluster, broker_id, stale)
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_the_end_of_all_ids() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    cluster.apply([ProducerIdsRecord(next_producer_id=LAST_PRODUCER_ID - 1000)])
    assert allocate(cluster, 1, epoch).first == LAST_PRODUCER_ID - 1000
    with pytest.raises(ApiError) as refusal:
        allocate(cluster, 1, epoch)
    assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
