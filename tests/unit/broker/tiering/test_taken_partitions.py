"""Partitions that components have taken on: counts, readiness, notifications."""

from __future__ import annotations

import asyncio

from broker.tiering.taken_partitions import TakenPartitions
from protocol.ids import TopicId
from storage.tiered.values import RemotePartition
from testkit.records.tier import PARTITION

OTHER = PARTITION._replace(topic_id=TopicId(bytes(16)))


def test_partition_stays_until_each_component_has_released_it() -> None:
    """S6: a copier and a remover may use the same partition."""
    taken = TakenPartitions()
    assert taken.add(PARTITION) and not taken.add(PARTITION)
    assert taken.count(PARTITION) == 2
    assert not taken.remove(PARTITION) and PARTITION in taken
    assert taken.remove(PARTITION) and PARTITION not in taken
    assert not taken.remove(PARTITION), "one release too many is ignored"


def test_released_partition_is_not_unready() -> None:
    taken = TakenPartitions()
    for partition in (PARTITION, OTHER):
        taken.add(partition)
        taken.add_unready(3, partition)
    taken.remove(PARTITION)
    assert list(taken.unready(3)) == [OTHER]
    assert not taken.unready(4)


def test_subscribers_receive_taken_partitions_alone() -> None:
    taken, received = TakenPartitions(), list[RemotePartition]()
    taken.subscribe(received.append)
    taken.add(PARTITION)
    taken.add_unready(0, PARTITION)
    taken.become_ready(0, PARTITION)
    taken.notify(OTHER)
    assert received == [PARTITION]
    assert not taken.unready(0)


async def test_wake_ends_waits_that_began_before() -> None:
    taken = TakenPartitions()
    waiting = asyncio.ensure_future(taken.moved())
    await asyncio.sleep(0)
    taken.wake()
    later = asyncio.ensure_future(taken.moved())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.done() and not later.done()
    later.cancel()
