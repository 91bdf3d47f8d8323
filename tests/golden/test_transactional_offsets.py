"""Offsets of transactions in a log of Apache Kafka 4.4.0, with the same answers here as there (T9).

`groups/transactions.py` recorded it.
"""

from __future__ import annotations

import asyncio
import random

from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group.shard import GroupShard
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.coordinators.replicated_log import ReplicatedCoordinatorLog
from testkit.memory.broker import NODE, OTHER, Harness
from testkit.memory.group_shard import SomeTopics
from tests.golden.groups.transactions import ANSWERS, LOG, TOPIC, line

TOPIC_ID = bytes.fromhex("d7c26e6e69ea442d863f6367871ff88b")
"""The topic id that Kafka recorded with commits outside of transactions."""


async def loaded() -> GroupShard:
    """Return a broker that followed the leader that wrote the log, and leads now."""
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    h.change(leader=OTHER)
    h.partition().log.append_as_follower(LOG.read_bytes())
    h.change(leader=NODE, isr=[NODE])
    log = ReplicatedCoordinatorLog("t", replicas=h.replicas, metadata=h.metadata, creator=h.creator)
    coordinator = GroupCoordinator(
        config=GroupConfig(),
        clock=h.clock,
        rng=random.Random(1),
        log=log,
        supervisor=h.supervisor,
        topics=SomeTopics({TOPIC: (TOPIC_ID, 2)}),
    )
    coordinator.start()
    for _ in range(1_000):
        shards, _ = coordinator.shards()
        if shards:
            return shards[0]
        await asyncio.sleep(0)
    raise AssertionError("the groups are not loaded")


async def test_offsets_of_transactions_are_those_of_kafka() -> None:
    shard = await loaded()
    recorded = ANSWERS.read_text().splitlines()
    groups = dict.fromkeys(each.split('"')[1] for each in recorded)
    said = []
    for group in groups:
        for stable in (False, True):
            for everything in (False, True):
                asked = None if everything else [(TOPIC, bytes(16), [0, 1])]
                found = shard.fetch_offsets(group, asked, require_stable=stable)
                facts = [
                    (topic.name, each.partition, each.offset, each.error_code.name)
                    for topic in found
                    for each in topic.partitions
                ]
                said.append(line(group, stable=stable, everything=everything, facts=facts))
    assert said == recorded
