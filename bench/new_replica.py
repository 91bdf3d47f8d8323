"""A new replica of a tiered topic, with and without KIP-1023: `python -m bench.new_replica`.

    python -m bench.new_replica [--kafka] [--quick] [--rounds 3]
                                [--markdown FILE] [--json FILE]

There are one controller and two brokers. Broker 1 leads topics with ten closed segments on its
disk; these and more are in the tier. Broker 2 gets a replica of each partition, with
`follower.fetch.last.tiered.offset.enable` off and on in turn. The figures are the bytes that it
copies and the time from the request until it is in the ISR.

This is done for one partition with large segments, for 200 at once with small segments, and for 200
with half of that, which shows the cost of 200 logs that does not depend on bytes. As many empty
replicas that are not tiered show the part that depends on neither. Another topic, replicated on
both brokers, is observed all the time: its ISRs must stay complete.

Each side has its own store in a folder: Kraftbox file://, Kafka
FolderStore. Ratios are of medians; nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.clusters import Cluster, Kafka, Kraftbox
from bench.nodes import keep_bytecode
from bench.place import bench_place
from bench.report import keep, options_of, shown
from bench.single_node import say
from client.addresses import parse_addresses
from client.admin import Admin, ConfigChange, ConfigOperation, NewTopic, ResourceType
from client.cluster_client import ClusterClient
from protocol.batch import Record, build_batch
from testkit.kafka.jars import kafka_libs, tiered_store
from testkit.processes.ending import end_on_sigterm

MARK = "new replica"
FREE_BYTES_MIN = 8 << 30
LEADER, NEW = 1, 2
LATEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -1, -4, -6
LOCAL_SEGMENTS = 10
SEGMENTS = 14
WAIT_S = 120.0
FILL_S = 600.0
"""Timeout for copying the topics' data on a busy machine."""
LOOK_S = 0.01
KEY = "follower.fetch.last.tiered.offset.enable"
TIERED = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    # Short enough to fill soon. With a tenth of it the leader of 200 partitions is busy without
    # work.
    "remote.log.manager.task.interval.ms": "2000",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "0",
}


class Size(NamedTuple):
    """The number of partitions, and for each the bytes of a segment and of a batch."""

    name: str
    partitions: int
    segment_bytes: int
    batch_bytes: int


FULL = (
    Size("1 partition", 1, 128 << 20, 900_000),
    Size("200 partitions at once", 200, 1280 << 10, 64 << 10),
    Size("200 small partitions at once", 200, 640 << 10, 64 << 10),
)
QUICK = (
    Size("1 partition", 1, 1 << 20, 100_000),
    Size("5 partitions at once", 5, 64 << 10, 8 << 10),
)


class Moved(NamedTuple):
    """The figures of one new replica per partition."""

    seconds: float
    copied_bytes: int
    shrunken: int
    """Number of checks at which a partition of the other topic had a replica outside its ISR."""
    late: int = 0
    """Partitions that were not in sync after `WAIT_S`."""


class Side:
    """A cluster with a client."""

    def __init__(self, cluster: Cluster, client: ClusterClient) -> None:
        self.cluster = cluster
        self.client = client
        self.admin = Admin(client)

    async def fill(self, size: Size, replicas: Sequence[int] = (LEADER,)) -> None:
        """Fill a topic.

        All closed segments are then in the tier, ten of them on these brokers' disks.

        The first broker leads.
        """
        configs = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": str(size.segment_bytes),
            "local.retention.bytes": str((LOCAL_SEGMENTS + 1) * size.segment_bytes),
            "min.insync.replicas": "1",
        }
        topic = topic_of(size)
        assigned = dict.fromkeys(range(size.partitions), replicas)
        await self.admin.create_topics([NewTopic(topic, -1, -1, configs, assigned)])
        await self.client.topic(topic, is_new=True)
        now_ms = time.time_ns() // 1_000_000
        value = os.urandom(size.batch_bytes)
        batch = bytes(build_batch([Record(timestamp=now_ms, key=None, value=value)]))
        count = -(-SEGMENTS * size.segment_bytes // len(batch)) + 2
        for first in range(0, size.partitions, 50):
            some = range(first, min(first + 50, size.partitions))
            for _ in range(count):
                await asyncio.gather(*(self.client.produce(topic, i, batch, acks=1) for i in some))
        per_segment = size.segment_bytes // len(batch) + 1
        await self._until_tiered(size, per_segment)

    async def _until_tiered(self, size: Size, per_segment: int) -> None:
        topic, deadline = topic_of(size), time.monotonic() + FILL_S
        left = list(range(size.partitions))
        while left:
            index = left[-1]
            latest, local, pending = [
                (await self.client.list_offset(topic, index, one)).offset
                for one in (LATEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD)
            ]
            if local > 0 and latest - pending <= per_segment:
                left.pop()
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{index}: {latest}, {local}, {pending}")
            else:
                await asyncio.sleep(0.2)

    async def switch(self, on: bool) -> None:
        """Set the key for all brokers."""
        change = ConfigChange(KEY, ConfigOperation.SET, "true" if on else "false")
        await self.admin.alter_configs(ResourceType.BROKER, "", [change])
        await asyncio.sleep(1)  # both brokers have applied it

    async def make_empty(self, size: Size) -> None:
        """Create a topic with as many partitions and without records."""
        replicas = dict.fromkeys(range(size.partitions), (LEADER,))
        await self.admin.create_topics([NewTopic(empty_of(size), -1, -1, {}, replicas)])
        await self.client.topic(empty_of(size), is_new=True)

    async def move(self, topic: str, partitions: int) -> Moved:
        """Give broker 2 a replica of each partition, and remove it again."""
        began = time.monotonic()
        await self.reassign(topic, partitions, (LEADER, NEW))
        shrunken = 0
        while late := await self._not_in_isr(topic):
            shrunken += await self._not_in_isr("beside") > 0
            if time.monotonic() - began > WAIT_S:
                say(f"{topic}: {late} new replicas not in sync after {WAIT_S:.0f} s")
                break
            await asyncio.sleep(LOOK_S)
        seconds = time.monotonic() - began
        copied = self._copied(topic)
        await self.reassign(topic, partitions, (LEADER,))
        while self.logs(topic):  # noqa: ASYNC110 - only the disk tells
            await asyncio.sleep(0.1)
        return Moved(seconds, copied, shrunken, late)

    async def reassign(self, topic: str, partitions: int, replicas: Sequence[int]) -> None:
        """Reassign all partitions in one request, as Kafka's tool executes a plan."""
        wanted = dict.fromkeys([(topic, index) for index in range(partitions)], replicas)
        await self.admin.reassign_all(wanted)

    async def _not_in_isr(self, topic: str) -> int:
        (described,) = await self.admin.describe_topics([topic])
        return sum(NEW not in one.isr_nodes for one in described.partitions)

    def _copied(self, topic: str) -> int:
        """Return the bytes of broker 2's segments."""
        return sum(map(_size, self.logs(topic)))

    def logs(self, topic: str) -> list[Path]:
        """Return broker 2's segments, including those of replicas that are being deleted."""
        return [
            path
            for folder in self.cluster.folders(topic)
            if folder.parent.parent.name.endswith(f"-{NEW}")
            for path in _segments(folder)
        ]


def _segments(folder: Path) -> list[Path]:
    """Return the segments of a folder; none if the replica has been deleted since."""
    try:
        return list(folder.glob("*.log"))
    except FileNotFoundError:
        return []


def _size(path: Path) -> int:
    """Return the size of a file, 0 if its replica has been deleted since."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def topic_of(size: Size) -> str:
    return f"tiered-{size.partitions}"


def empty_of(size: Size) -> str:
    return f"empty-{size.partitions}"


class Result(NamedTuple):
    """The figures of one side and size, as medians."""

    side: str
    size: str
    segment_bytes: int
    off: Moved
    on: Moved
    empty: Moved

    @property
    def bytes_ratio(self) -> float:
        return self.on.copied_bytes / self.off.copied_bytes

    @property
    def time_ratio(self) -> float:
        return self.on.seconds / self.off.seconds


def middle(moves: Sequence[Moved]) -> Moved:
    return Moved(
        statistics.median(one.seconds for one in moves),
        round(statistics.median(one.copied_bytes for one in moves)),
        sum(one.shrunken for one in moves),
        max(one.late for one in moves),
    )


async def measured(cluster: Cluster, sizes: Sequence[Size], rounds: int) -> list[Result]:
    """Measure all sizes on one running cluster."""
    found = []
    async with await ClusterClient.connect(parse_addresses(cluster.bootstrap)) as client:
        side = Side(cluster, client)
        await side.admin.create_topic("beside", 10, 2)
        for size in sizes:
            await side.make_empty(size)
            await side.fill(size)
            moves: Mapping[bool, list[Moved]] = {False: [], True: []}
            empty: list[Moved] = []
            for _ in range(rounds):
                empty.append(await side.move(empty_of(size), size.partitions))
                for on, into in moves.items():
                    await side.switch(on)
                    into.append(await side.move(topic_of(size), size.partitions))
            one = Result(
                cluster.name,
                size.name,
                size.segment_bytes,
                middle(moves[False]),
                middle(moves[True]),
                middle(empty),
            )
            say(f"{one.side}, {one.size}: bytes {one.bytes_ratio:.2f}, time {one.time_ratio:.2f}")
            found.append(one)
            for topic in (topic_of(size), empty_of(size)):
                await side.admin.delete_topic(topic)
    return found


def settings_of(name: str, place: Path) -> dict[str, str]:
    if name == Kraftbox.name:
        store = {
            "rsm.config.url": f"file://{place}/bucket",
        }
        return {**TIERED, **store}
    if kafka_libs() is None:
        raise SystemExit("Kafka's jars cannot be had: they take Java and Maven")
    return {**TIERED, **tiered_store(place / "store")}


def table(results: Sequence[Result]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| | segment: MiB | off: MB | s | on: MB | s | bytes, on to off | time | empty: s "
        "| ISRs beside that shrank |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        off, on = one.off, one.on
        cells = [shown(one.segment_bytes / (1 << 20))]
        cells += [shown(off.copied_bytes / 1e6), _seconds(off)]
        cells += [shown(on.copied_bytes / 1e6), _seconds(on)]
        late = off.late or on.late
        cells += ["-", "-"] if late else [shown(one.bytes_ratio), shown(one.time_ratio)]
        cells.append(_seconds(one.empty))
        shrunken = off.shrunken + on.shrunken + one.empty.shrunken
        lines.append(f"| {one.side}, {one.size} | {' | '.join(cells)} | {shrunken} |")
    return "\n".join(lines)


def _seconds(moved: Moved) -> str:
    """Return the seconds, with the number of late partitions if there are any."""
    seconds = shown(moved.seconds)
    return f"> {seconds} ({moved.late} not in sync)" if moved.late else seconds


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too")
    options = options_of(parser, arguments)
    sizes, rounds = (QUICK, 1) if options.quick else (FULL, options.rounds)
    results: list[Result] = []
    with bench_place(FREE_BYTES_MIN) as place:
        keep_bytecode(place)
        for kind in (Kraftbox, Kafka) if options.kafka else (Kraftbox,):
            folder = place / kind.name
            folder.mkdir()
            settings = settings_of(kind.name, folder)
            cluster = kind(folder / "cluster", 1, 2, settings=settings)
            cluster.start()
            try:
                results += asyncio.run(measured(cluster, sizes, rounds))
            finally:
                cluster.stop()
    text = table(results)
    print(text)
    keep(options, MARK, text, results)


if __name__ == "__main__":
    end_on_sigterm()
    main()
