"""Elections with a new replica, with and without KIP-1303: `python -m bench.fresh_leader`.

    python -m bench.fresh_leader [--quick] [--rounds 3] [--markdown FILE]
                                 [--json FILE]

There are one controller and three brokers over a bucket of versitygw. Broker 1 leads partitions
with ten closed segments on its disk and on that of broker 3; these and more are in the tier. Broker
2 gets a replica of each that begins at the end of the tier (KIP-1023), and is next in the
assignments. Then broker 1 is killed: with `leader.election.eligible.local.log.bytes` at half of
broker 3's local log, and without it. Consumers read the records of broker 1's disk from the new
leader. The figures are the duration of responses and the number of reads from the tier. No release
of Apache Kafka has KIP-1303.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from bench.clients import json_of
from bench.clusters import Kraftbox
from bench.new_replica import (
    EARLIEST_LOCAL,
    FREE_BYTES_MIN,
    KEY,
    LATEST,
    LEADER,
    LOCAL_SEGMENTS,
    NEW,
    TIERED,
    WAIT_S,
    Side,
    Size,
    topic_of,
)
from bench.nodes import keep_bytecode
from bench.place import bench_place
from bench.report import keep, options_of, shown
from bench.single_node import say
from client.addresses import parse_addresses
from client.admin import ConfigChange, ConfigOperation, ResourceType
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from testkit.processes.ending import end_on_sigterm
from testkit.processes.object_servers import versitygw_process

MARK = "fresh leader"
STOCKED = 3
THRESHOLD = "leader.election.eligible.local.log.bytes"
READS = re.compile(r"^kafka_server_brokertopicmetrics_remotefetchrequests_total\S* (\S+)", re.M)


class Scale(NamedTuple):
    """The amount of data, the number of consumers, and how long they read."""

    size: Size
    consumers: int
    seconds: float


FULL = Scale(Size("8 partitions", 8, 4 << 20, 200_000), 32, 10.0)
QUICK = Scale(Size("2 partitions", 2, 256 << 10, 32_000), 4, 2.0)


class Seen(NamedTuple):
    """The consumers' figures after one kill."""

    leader: int
    p99_ms: float
    mb_per_s: float
    tier_reads: float


class Failovers:
    """The cluster and the steps of a failover."""

    def __init__(self, side: Side, cluster: Kraftbox, scale: Scale) -> None:
        self.side = side
        self.cluster = cluster
        self.scale = scale
        self.topic = topic_of(scale.size)
        self.partitions = [(self.topic, index) for index in range(scale.size.partitions)]

    async def one(self, on: bool) -> Seen:
        """Kill the leader, measure, and restore the initial state."""
        await self._switch(on)
        await self._replicas(LEADER, NEW, STOCKED)
        await self._until("the order is known", lambda: self._is_known(on))
        self.cluster.kill(LEADER)
        await self._until("another broker leads", lambda: self._is_led_by(NEW, STOCKED))
        seen = await asyncio.to_thread(self._read, await self._leader())
        await asyncio.to_thread(self.cluster.restart, LEADER)
        await self._until("all are in sync", lambda: self._in_sync(LEADER, NEW, STOCKED))
        await self._replicas(LEADER, STOCKED)
        await self.side.admin.elect_leaders(ElectionType.PREFERRED, self.partitions)
        await self._until("the first leads again", lambda: self._is_led_by(LEADER))
        while self.side.logs(self.topic):  # noqa: ASYNC110 - only the disk tells
            await asyncio.sleep(0.1)
        return seen

    def _read(self, leader: int) -> Seen:
        """Read the records that the previous leader had on its disk."""
        before = self._tier_reads()
        host, port = self.cluster.addresses()[leader]
        made = json_of(
            *("-m", "bench.tier_consumers", f"{host}:{port}", self.topic, str(self.end)),
            *("--start", str(self.start), "--partitions", str(len(self.partitions))),
            *("--consumers", str(self.scale.consumers), "--seconds", str(self.scale.seconds)),
        )
        reads = self._tier_reads() - before
        return Seen(leader, made["p99_ms"], made["mb_per_s"], reads)

    def _tier_reads(self) -> float:
        texts = [self.cluster.scrape(one) for one in (NEW, STOCKED)]
        return sum(float(found) for text in texts for found in READS.findall(text))

    async def learn_bounds(self) -> None:
        """Find the offsets that broker 1 has on its disk, for all partitions."""
        client, found = self.side.client, []
        for which in (EARLIEST_LOCAL, LATEST):
            requests = [client.list_offset(topic, index, which) for topic, index in self.partitions]
            found.append([one.offset for one in await asyncio.gather(*requests)])
        self.start, self.end = max(found[0]), min(found[1])

    async def _switch(self, on: bool) -> None:
        threshold = LOCAL_SEGMENTS * self.scale.size.segment_bytes // 2 if on else -1
        change = ConfigChange(THRESHOLD, ConfigOperation.SET, str(threshold))
        await self.side.admin.alter_configs(ResourceType.BROKER, "", [change])

    async def _replicas(self, *brokers: int) -> None:
        await self.side.reassign(self.topic, len(self.partitions), brokers)
        await self._until(f"an ISR of {brokers}", lambda: self._in_sync(*brokers))

    async def _until(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not await look():
            if time.monotonic() > deadline:
                raise TimeoutError(what)
            await asyncio.sleep(0.1)

    async def _in_sync(self, *brokers: int) -> bool:
        (described,) = await self.side.admin.describe_topics([self.topic])
        return all(set(one.isr_nodes) == set(brokers) for one in described.partitions)

    async def _is_led_by(self, *brokers: int) -> bool:
        (described,) = await self.side.admin.describe_topics([self.topic])
        return all(one.leader_id in brokers for one in described.partitions)

    async def _leader(self) -> int:
        (described,) = await self.side.admin.describe_topics([self.topic])
        (leader,) = {one.leader_id for one in described.partitions}
        return leader

    async def _is_known(self, on: bool) -> bool:
        """Return whether the controller knows the replicas' local logs, or has none without a
        threshold.
        """
        found = await self.side.admin.explain_elections(self.partitions)
        return all(
            (one.broker != NEW) is one.local_log.enough if one.local_log is not None else not on
            for partition in found
            for one in partition.candidates
        )


class Result(NamedTuple):
    """The figures with or without the key, as medians."""

    keys: str
    seen: list[Seen]

    def middle(self, name: str) -> float:
        return float(statistics.median(getattr(one, name) for one in self.seen))


async def measured(cluster: Kraftbox, scale: Scale, rounds: int) -> list[Result]:
    """Measure on a running cluster."""
    async with await ClusterClient.connect(parse_addresses(cluster.bootstrap)) as client:
        side = Side(cluster, client)
        await side.switch(on=True)
        await side.fill(scale.size, (LEADER, STOCKED))
        failovers = Failovers(side, cluster, scale)
        await failovers.learn_bounds()
        found = {False: Result("off", []), True: Result("on", [])}
        for _ in range(rounds):
            for on, result in found.items():
                result.seen.append(await failovers.one(on))
                say(f"{THRESHOLD} {result.keys}: {result.seen[-1]}")
        return list(found.values())


def table(results: Sequence[Result]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| keys | leads then: broker | p99 of an answer: ms | MB/s | reads of the tier |",
        "|---|---|---|---|---|",
    ]
    for one in results:
        leaders = ", ".join(str(seen.leader) for seen in one.seen)
        figures = (shown(one.middle(name)) for name in ("p99_ms", "mb_per_s", "tier_reads"))
        lines.append(f"| {one.keys} | {leaders} | {' | '.join(figures)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    options = options_of(parser, arguments)
    scale, rounds = (QUICK, 1) if options.quick else (FULL, options.rounds)
    with bench_place(FREE_BYTES_MIN) as place, versitygw_process(place) as (store, _):
        keep_bytecode(place)
        settings = {
            **TIERED,
            **{f"rsm.config.{name}": value for name, value in store.items()},
            "kraftbox.broker.connection.loss.fence.ms": "100",
            KEY: "true",
        }
        cluster = Kraftbox(place / "cluster", 1, 3, settings=settings)
        cluster.start()
        try:
            results = asyncio.run(measured(cluster, scale, rounds))
        finally:
            cluster.stop()
    text = table(results)
    print(text)
    keep(options, MARK, text, results)


if __name__ == "__main__":
    end_on_sigterm()
    main()
