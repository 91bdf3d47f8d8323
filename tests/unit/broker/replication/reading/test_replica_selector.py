"""Consumers that read from the replica in their rack (KIP-392)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replication.reading.replica_selector import RACK_AWARE, nearest_replica
from protocol.errors import ErrorCode
from protocol.metadata.fence_broker_record import FenceBrokerRecord
from testkit.memory.broker import settle
from testkit.memory.replicas import Cluster


class RackAware(Cluster):
    """Three brokers in three racks; `t` has all three replicas and two records."""

    def __init__(self) -> None:
        super().__init__(3, replica_selector_class=RACK_AWARE)
        self.create(1, 2, 3)
        self[1].append(b"a", b"b")
        for _ in range(3):
            self.fetch(2)
            self.fetch(3)

    def ask(self, rack: str, offset: int = 0, broker: int = 1, **fields: Any) -> Any:
        return self[broker].fetch(offset, rack_id=rack, **fields)


async def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    c = RackAware()
    data = c.ask("rack2", max_wait_ms=500)
    assert (data.preferred_read_replica, data.records, data.error_code) == (2, b"", 0)
    assert data.high_watermark == 2
    there = c.ask("rack2", broker=2)
    assert (there.preferred_read_replica, bool(there.records)) == (-1, True)


@pytest.mark.parametrize("rack", ["", "rack1", "elsewhere"])
async def test_others_read_from_the_leader(rack: str) -> None:
    data = RackAware().ask(rack)
    assert (data.preferred_read_replica, bool(data.records)) == (-1, True)


async def test_only_members_of_the_isr_that_are_alive_are_named() -> None:
    """Bug list 24 (KAFKA-14372, 15390): a replica out of the ISR or fenced is not preferred."""
    c = RackAware()
    c.change(isr=[1, 3])
    assert c.ask("rack2").preferred_read_replica == -1
    c.records.append(FenceBrokerRecord(id=3, epoch=103))
    c.catch_up()
    assert c.ask("rack3").preferred_read_replica == -1


async def test_a_replica_that_does_not_have_the_offset_is_not_named() -> None:
    c = RackAware()
    c[1].append(b"c")
    brokers = c[1].metadata.image.cluster.brokers
    partition = c[1].partition()
    assert nearest_replica(partition, "rack2", 2, brokers) == 2
    assert nearest_replica(partition, "rack2", 3, brokers) is None
    partition.remote[2].log_start = 1
    assert nearest_replica(partition, "rack2", 0, brokers) is None


@pytest.mark.parametrize(("ends", "nearest"), [((2, 1), 2), ((1, 2), 3), ((2, 2), 2)])
async def test_of_two_in_the_rack_the_one_that_has_more_is_named(
    ends: tuple[int, int], nearest: int
) -> None:
    c = RackAware()
    brokers = c[1].metadata.image.cluster.brokers
    together = {**brokers, 3: brokers[3]._replace(rack="rack2")}
    partition = c[1].partition()
    partition.remote[2].log_end, partition.remote[3].log_end = ends
    assert nearest_replica(partition, "rack2", 0, together) == nearest


async def test_fetch_without_a_replica_selector_names_no_preferred_replica() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    assert c[1].fetch(0, rack_id="rack2").preferred_read_replica == -1


async def test_a_follower_shows_what_is_below_its_high_watermark() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2)
    assert c[2].fetch(0).records == b""  # it has the record, which is not committed yet
    c.fetch(2)
    assert c[2].fetch(0).records != b""
    assert c[2].fetch(5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert c[2].fetch(0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_fetch_that_waits_at_a_follower_ends_when_it_has_replicated() -> None:
    """Bug list 25: KAFKA-14334. The fetch ends when the follower has replicated records."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    waiting = c[2].fetch(0, max_wait_ms=500)
    c[1].append(b"a")
    c.fetch(2, times=2)
    await settle()
    assert waiting.done()
    assert (await waiting).responses[0].partitions[0].records
