"""Recovery of a log's producers: only from a copy that is this log's up to its end (T2, F21)."""

from __future__ import annotations

import pytest

from broker.tiering.restoring import restore_producers
from storage.tiered.cache import SegmentCache
from storage.tiered.states import SegmentState
from testkit.memory.logs import T0, fill
from testkit.memory.tier_brokers import TierWorld
from testkit.records.tier import PARTITION, segment, update


@pytest.mark.parametrize(
    ("last", "epochs"),
    [
        (1, {0: 0, 3: 1}),  # the log wrote offset 1 in epoch 0
        (1, {3: 0}),
        (2, {0: 0}),
        (0, {0: 0}),
    ],
)
async def test_restore_producers_without_own_copy_up_to_the_local_start_reads_nothing(
    world: TierWorld, last: int, epochs: dict[int, int]
) -> None:
    """T2: a copy that ends elsewhere, or in another lineage, has other producers."""
    broker = world.broker(local_retention_bytes=0)
    await broker.ready()
    fill(broker.log, 7, size=50)
    broker.commit()
    await broker.copy_all()
    broker.log.retention(T0)
    log = broker.log
    cache = SegmentCache(PARTITION)
    start = log.local_log_start_offset
    shift = start - 2
    moved = {epoch: at + shift if at else 0 for epoch, at in epochs.items()}
    cache.apply(0, segment(1, 0, last + shift, moved))
    cache.apply(1, update(1, SegmentState.COPY_FINISHED))
    assert not await restore_producers(log, cache, broker.store)
