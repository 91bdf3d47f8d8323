"""Local retention: only segments with finished copies of the replica's lineage are removed (S2,
S9)."""

from __future__ import annotations

from broker.tiering.local_cleaning import note_copied
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import PartitionDeletion
from testkit.memory.logs import T0, append, batch, fill
from testkit.memory.tier_brokers import TierBroker, TierWorld
from testkit.records.tier import PARTITION, segment, update


async def replica_with(world: TierWorld, batches: int = 7) -> TierBroker:
    """Return a replica with two records per segment, whose local retention keeps no tiered
    segment."""
    broker = world.broker(local_retention_bytes=0)
    await broker.ready()
    fill(broker.log, batches, size=50)
    broker.commit()
    return broker


async def test_s2_a_copy_counts_when_it_is_finished(world: TierWorld) -> None:
    replica = await replica_with(world)
    await replica.write(segment(1, 0, 1))
    assert replica.log.bounds.copied_to == 0
    assert replica.log.retention(T0) == 0
    await replica.write(update(1, SegmentState.COPY_FINISHED))
    assert replica.log.bounds.copied_to == 2
    assert replica.log.retention(T0) == 1
    assert (replica.log.log_start_offset, replica.log.local_log_start_offset) == (0, 2)


async def test_s2_a_copy_that_is_deleted_counts_no_more(world: TierWorld) -> None:
    replica = await replica_with(world)
    for state in (SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED):
        await replica.write(
            segment(1, 0, 1) if state is SegmentState.COPY_STARTED else update(1, state)
        )
    await replica.write(update(1, SegmentState.DELETE_STARTED))
    assert replica.log.bounds.copied_to == 0
    assert replica.log.retention(T0) == 0


async def test_s2_copies_of_another_lineage_do_not_count(world: TierWorld) -> None:
    """S2: the highest offset in the tier may belong to a log that lost."""
    replica = await replica_with(world)
    await replica.write(segment(1, 0, 3, {3: 0}))
    await replica.write(update(1, SegmentState.COPY_FINISHED))
    assert replica.log.bounds.copied_to == 0
    await replica.write(segment(2, 0, 5, {0: 0, 3: 3}))
    await replica.write(update(2, SegmentState.COPY_FINISHED))
    assert replica.log.bounds.copied_to == 3, "as far as both have it from the same leader"
    assert replica.log.retention(T0) == 1


async def test_s2_nothing_behind_a_gap(world: TierWorld) -> None:
    replica = await replica_with(world)
    for number, first in ((1, 0), (2, 4)):
        await replica.write(segment(number, first, first + 1))
        await replica.write(update(number, SegmentState.COPY_FINISHED))
    assert replica.log.bounds.copied_to == 2


async def test_copied_end_of_a_log_without_its_first_copies_counts_from_the_local_start(
    world: TierWorld,
) -> None:
    """S2: a copy below the local start that is deleted holds back no local segment."""
    replica = await replica_with(world)
    for number, first in ((1, 0), (2, 2)):
        await replica.write(segment(number, first, first + 1))
        await replica.write(update(number, SegmentState.COPY_FINISHED))
        replica.log.retention(T0)
    assert replica.log.local_log_start_offset == 4
    await replica.write(update(1, SegmentState.DELETE_STARTED))
    await replica.write(segment(3, 4, 5))
    await replica.write(update(3, SegmentState.COPY_FINISHED))
    assert replica.log.log_start_offset == 0
    assert replica.log.bounds.copied_to == 6


async def test_s9_what_is_not_known_lets_nothing_go(world: TierWorld) -> None:
    replica = await replica_with(world)
    await replica.copy_all()
    assert replica.log.bounds.copied_to > 0
    note_copied(replica.log, None)
    assert replica.log.bounds.copied_to == 0
    assert replica.log.retention(T0) == 0


async def test_nothing_of_a_partition_that_is_being_removed(world: TierWorld) -> None:
    replica = await replica_with(world)
    await replica.copy_all()
    removal = PartitionDeletion(
        partition=PARTITION,
        broker_id=1,
        event_timestamp_ms=0,
        state=PartitionDeleteState.MARKED,
    )
    await replica.write(removal)
    assert replica.log.bounds.copied_to == 0
    assert replica.led.known(replica) is None


async def test_follower_uses_its_own_view_of_the_metadata(world: TierWorld) -> None:
    leader = await replica_with(world)
    follower = world.broker(local_retention_bytes=0, segment_bytes=450)
    await follower.ready()
    follower.follow(leader)
    assert follower.log.retention(T0) == 0
    await leader.copy_all()
    await follower.sees_all()
    assert follower.log.bounds.copied_to == leader.log.bounds.copied_to
    assert follower.log.retention(T0) > 0
    assert follower.log.segments.first_base_offset <= follower.log.bounds.copied_to


async def test_a_truncated_replica_counts_only_what_it_still_has(world: TierWorld) -> None:
    """An unclean election replaced copied records by others."""
    leader = await replica_with(world)
    await leader.copy_all()
    leader.log.truncate_to(3)
    leader.log.history.lead(4)
    for _ in range(6):
        append(leader.log, batch(size=50), epoch=4)
    leader.commit()
    note_copied(leader.log, leader.known)
    assert leader.log.bounds.copied_to == 3
    leader.log.retention(T0)
    assert leader.log.local_log_start_offset == 2
