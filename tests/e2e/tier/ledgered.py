"""A tiered topic of one partition, written and read all the time under a ledger."""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import Callable

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from client.addresses import parse_addresses
from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer
from client.offsets import offsets_at
from kraftbox.chaos.checks import is_broken, judge, summary
from kraftbox.chaos.history import value_bytes, value_of
from kraftbox.chaos.ledger import Ledger
from kraftbox.chaos.run import history_clock
from kraftbox.chaos.workload import CLIENT, Load, Workload
from protocol.ids import uuid_to_text
from testkit.processes.waiting import WAIT_S

SEGMENT_BYTES = 8192
VALUE_BYTES = 100
RECORDS_PER_S = 100


class LedgeredTopic:
    """The topic, its clients, and their history."""

    def __init__(self, bootstrap: str, topic: str, replicas: int = 1) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.ledger = Ledger(history_clock())
        load = Load(
            topic=topic,
            partitions=1,
            replication_factor=replicas,
            min_insync_replicas=1,
            producers=1,
            consumers=1,
            records_per_s=RECORDS_PER_S,
            record_bytes=VALUE_BYTES,
            topic_settings=(
                ("remote.storage.enable", "true"),
                ("internal.segment.bytes", str(SEGMENT_BYTES)),
                ("local.retention.bytes", "1"),
            ),
        )
        seed = zlib.crc32(topic.encode())
        self.workload = Workload(parse_addresses(bootstrap), self.ledger, load, random.Random(seed))
        self.log_start = 0

    @property
    def topic_id(self) -> str:
        return uuid_to_text(self.ledger.history.topics[0].topic_id)

    def delete_records(self, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(self.topic, 0, before)]).values():
            self.log_start = future.result(WAIT_S).low_watermark

    async def read_back(self) -> None:
        """S1: check all records of the log, from tier and disk, byte for byte."""
        place = (self.ledger.process("reader", CLIENT), 0, 0)
        partition = (self.topic, 0)
        async with await ClusterClient.connect(self.bootstrap) as client:
            begin_us = self.ledger.now_us()
            start = (await offsets_at(client, [partition], EARLIEST))[partition]
            end = (await offsets_at(client, [partition], LATEST))[partition]
            assert start == self.log_start
            self.ledger.assigned(place, start)
            consumer = Consumer(client)
            consumer.assign({partition: start})
            found = []
            deadline = time.monotonic() + WAIT_S
            while consumer.positions[partition] < end:
                found += await consumer.poll()
                assert time.monotonic() < deadline, f"{consumer.positions}, the end is {end}"
        assert [one.offset for one in found] == list(range(start, end))
        values = [value_of(one.value) for one in found]
        assert [one.value for one in found] == [value_bytes(one, VALUE_BYTES) for one in values]
        self.ledger.polled(place, begin_us, list(range(start, end)), values, final=True)
        self.ledger.ended(place, begin_us, end, final=True)

    def judged(self) -> None:
        """Check H1-H12 for records that were not deleted by request."""
        history = self.ledger.history
        history.sends = [one for one in history.sends if not 0 <= one.offset < self.log_start]
        for number, poll in enumerate(history.polls):
            kept = [at for at, offset in enumerate(poll.offsets) if offset >= self.log_start]
            history.polls[number] = poll._replace(
                offsets=[poll.offsets[at] for at in kept], values=[poll.values[at] for at in kept]
            )
        findings = judge(history)
        assert not is_broken(findings), findings
        counts = summary(history)
        assert counts["failed"] == counts["unknown"] == 0 < counts["ok"]


async def until(what: Callable[[], str], look: Callable[[], object]) -> None:
    """Wait as `waiting.until` does, in a loop with clients; `what` describes the current state."""
    deadline = time.monotonic() + WAIT_S
    while not look():
        assert time.monotonic() < deadline, f"did not come true: {what()}"
        await asyncio.sleep(0.05)
