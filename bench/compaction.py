"""Compaction of ten million records over a hundred thousand keys, by a running node.

    python -m bench.compaction [--records 10000000] [--keys 100000] [--probe-rate 100] [--json FILE]

One topic is loaded with prepared batches, at first without cleaning. Then two phases are measured
in the same way: produce requests (1 KB, acks=all) go to another topic at a fixed rate, while a
reader in a separate process repeatedly reads the compacted topic from its start and checks it. The
second phase begins with a topic configuration that starts the cleaner, and ends when the log is
clean.

The reader checks in every pass that offsets ascend, that the records of a key are in the order in
which they were written, and that the last record of each key is the last one written. At the end
there must be exactly one record per key.

Prints a Markdown table. Exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import uvloop
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.nodes import cpu_seconds
from bench.place import bench_place
from protocol.batch.header import HEADER_BYTES, MAGIC, NO_LEADER_EPOCH, BatchHeader, iter_batches
from protocol.batch.records import assemble, varint
from protocol.compression import Codec
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest
from protocol.transport.client import Connection
from storage.log.cleaning.walk import walk
from testkit.processes.ending import end_on_sigterm
from testkit.processes.nodes import KraftboxNode

TOPIC, PROBE = "compacted", "probe"
BATCH_RECORDS = 1000
VALUE_BYTES = 72
SENTINEL = b"end"
PRODUCE_VERSION = FETCH_VERSION = 11
FETCH_BYTES = 1 << 20
READER_BYTES_PER_SECOND = 30e6
LOADERS = 4
_sequence = struct.Struct(">Q")


# Loading -------------------------------------------------------------------------------------


def key_of(number: int) -> bytes:
    return b"key-%08d" % number


def build_batches(records: int, keys: int, newest: list[int]) -> Iterator[bytes]:
    """Yield batches of random keys; each value begins with the record's number.

    `newest` is filled with the last number of each key.
    """
    rng = random.Random(1)
    now_ms = time.time_ns() // 1_000_000
    padding = bytes(VALUE_BYTES - _sequence.size)
    deltas = [varint(delta) for delta in range(BATCH_RECORDS)]
    length = varint(VALUE_BYTES)
    for base in range(0, records, BATCH_RECORDS):
        count = min(BATCH_RECORDS, records - base)
        parts: list[bytes] = []
        for at in range(count):
            number = int(rng.random() * keys)
            newest[number] = base + at
            key = key_of(number)
            body = b"".join(
                (b"\0\0", deltas[at], varint(len(key)), key, length,
                 _sequence.pack(base + at), padding, b"\0")
            )  # fmt: skip
            parts += (varint(len(body)), body)
        yield whole_batch(b"".join(parts), count, now_ms)


def whole_batch(payload: bytes, count: int, now_ms: int) -> bytes:
    header = BatchHeader(
        0, 0, NO_LEADER_EPOCH, MAGIC, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count
    )
    return assemble(header, payload, Codec.NONE)


async def connect(bootstrap: str, name: str) -> Connection:
    host, _, port = bootstrap.rpartition(":")
    return await Connection.connect(host, int(port), client_id=name)


async def produce(connection: Connection, topic: str, batch: bytes, acks: int) -> None:
    """Produce one batch. Raises RuntimeError for any error."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)],
            )
        ],
    )
    response = await connection.request(request, timeout_ms=60_000, version=PRODUCE_VERSION)
    code = response.responses[0].partition_responses[0].error_code
    if code:
        raise RuntimeError(f"produce to {topic} failed with {code}")


async def load(bootstrap: str, batches: Iterator[bytes]) -> None:
    """Produce the batches in order, with several requests in flight."""
    connection = await connect(bootstrap, "load")
    waiting: set[asyncio.Task[None]] = set()
    for batch in batches:
        waiting.add(asyncio.ensure_future(produce(connection, TOPIC, batch, 1)))
        if len(waiting) >= LOADERS:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    await connection.close()


# Reading -------------------------------------------------------------------------------------


class Pass:
    """The result of one pass over the whole log."""

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0
        self.last_offset = -1
        self.seen: dict[bytes, int] = {}
        self.problems: list[str] = []

    def take(self, data: bytes) -> int:
        """Check whole batches; return the next offset to fetch."""
        following = -1
        for header, pos in iter_batches(data):
            following = header.next_offset
            payload = bytes(data[pos + HEADER_BYTES : pos + header.size_bytes])
            starts, keys, offsets = walk(payload, header)
            for key, offset, end in zip(keys, offsets, starts[1:], strict=True):
                # Only the number of headers follows the value in a record.
                (place,) = _sequence.unpack_from(payload, end - 1 - VALUE_BYTES)
                self._record(offset, bytes(key or b""), place)
            self.size_bytes += header.size_bytes
        return following

    def _record(self, offset: int, key: bytes, place: int) -> None:
        if offset <= self.last_offset:
            self.problems.append(f"offset {offset} after {self.last_offset}")
        self.last_offset = offset
        self.last_offset = offset
        self.records += 1
        if key == SENTINEL:
            return
        if place != offset or place < self.seen.get(key, -1):
            self.problems.append(f"{key!r} at {offset} is {place}, {self.seen.get(key)} was before")
        self.seen[key] = place

    def judge(self, newest: list[int]) -> None:
        """Check at the end that every key's last value is the last one written."""
        wrong = [
            number
            for number, place in enumerate(newest)
            if place >= 0 and self.seen.get(key_of(number)) != place
        ]
        if wrong:
            self.problems.append(f"{len(wrong)} keys have another last value, as {wrong[:3]}")


async def read_once(bootstrap: str, newest: list[int], bytes_per_second: float) -> Pass:
    connection = await connect(bootstrap, "reader")
    found, offset, begin, fetched = Pass(), 0, time.monotonic(), 0
    while True:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            topics=[
                FetchRequest.FetchTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
                        )
                    ],
                )
            ],
        )
        response = await connection.request(request, timeout_ms=60_000, version=FETCH_VERSION)
        partition = response.responses[0].partitions[0]
        if partition.error_code:
            found.problems.append(f"fetch of {offset} failed with {partition.error_code}")
            break
        assert not isinstance(partition.records, list)
        records = bytes(partition.records or b"")
        following = found.take(records)
        if following <= offset:
            break
        offset = following
        fetched += len(records)
        due = begin + fetched / bytes_per_second
        if due > time.monotonic():
            await asyncio.sleep(due - time.monotonic())
    found.judge(newest)
    await connection.close()
    return found


def reader(bootstrap: str, newest: list[int], stop: Event, results: Any) -> None:
    """Read the log repeatedly until `stop` is set; the target of a process."""

    async def run() -> None:
        while not stop.is_set():
            found = await read_once(bootstrap, newest, READER_BYTES_PER_SECOND)
            results.put((found.records, found.size_bytes, found.problems[:5]))

    uvloop.run(run())


# Measuring -----------------------------------------------------------------------------------


@dataclass
class Phase:
    """Latencies of the probe in milliseconds, and the reader's figures of the same time."""

    seconds: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0
    requests: int = 0
    broker_core: float = 0.0
    passes: int = 0
    problems: list[str] = field(default_factory=list)


async def probe(bootstrap: str, rate: float, until: asyncio.Event, node_pid: int) -> Phase:
    """Produce at a fixed rate (open loop) until the event is set."""
    connection = await connect(bootstrap, "probe")
    batch = whole_batch(_one_record(bytes(1000)), 1, time.time_ns() // 1_000_000)
    latencies: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one() -> None:
        begin = time.perf_counter()
        await produce(connection, PROBE, batch, -1)
        latencies.append((time.perf_counter() - begin) * 1000)

    begin, cpu = time.monotonic(), cpu_seconds(node_pid)
    due = begin
    while not until.is_set():
        task = asyncio.ensure_future(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due += 1 / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.gather(*tasks)
    await connection.close()
    took = time.monotonic() - begin
    ordered = sorted(latencies)
    return Phase(
        seconds=took,
        p50_ms=statistics.median(ordered),
        p99_ms=ordered[int(len(ordered) * 0.99)],
        worst_ms=ordered[-1],
        requests=len(ordered),
        broker_core=(cpu_seconds(node_pid) - cpu) / took,
    )


def _one_record(value: bytes, key: bytes = b"k") -> bytes:
    body = b"".join((b"\0\0\0", varint(len(key)), key, varint(len(value)), value, b"\0"))
    return varint(len(body)) + body


class Cluster:
    """The node under test and its topics."""

    def __init__(self, node: KraftboxNode) -> None:
        self.node = node
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap})
        compacted = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "1.0",
            "segment.bytes": str(128 << 20),
            "max.message.bytes": str(4 << 20),
        }
        topics = [NewTopic(TOPIC, 1, 1, config=compacted), NewTopic(PROBE, 1, 1)]
        for future in self.admin.create_topics(topics).values():
            future.result()

    def alter(self, **settings: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result()

    @property
    def folder(self) -> Path:
        return next(self.node.directory.rglob(f"{TOPIC}-0"))

    def log_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.log"))

    def cleaned_until(self) -> int:
        """Return the topic's offset in cleaner-offset-checkpoint."""
        path = self.folder.parent / "cleaner-offset-checkpoint"
        if path.exists():
            for line in path.read_text().splitlines():
                if line.startswith(f"{TOPIC} 0 "):
                    return int(line.split()[2])
        return 0

    def helper_pid(self) -> int | None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_text()
                    command = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                parent = int(stat.rpartition(")")[2].split()[1])
                if parent == self.node.pid and b"runtime.helper" in command:
                    return int(entry.name)
        return None

    def look_at_helper(self, figures: Figures) -> None:
        pid = self.helper_pid()
        if pid is None:
            return
        figures.helper_cpu_s = cpu_seconds(pid)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                figures.helper_peak_mb = int(line.split()[1]) / 1024


@dataclass
class Figures:
    """All figures of a run."""

    records: int
    keys: int
    load_s: float = 0.0
    bytes_before: int = 0
    bytes_after: int = 0
    clean_s: float = 0.0
    helper_cpu_s: float = 0.0
    helper_peak_mb: float = 0.0
    left: int = 0
    before: Phase = field(default_factory=Phase)
    during: Phase = field(default_factory=Phase)
    problems: list[str] = field(default_factory=list)


async def measured(cluster: Cluster, rate: float, newest: list[int], wait: Any) -> Phase:
    """Run the probe and a reader until `wait` is done."""
    context = multiprocessing.get_context("spawn")
    stop, results, until = context.Event(), context.Queue(), asyncio.Event()
    process = context.Process(target=reader, args=(cluster.node.bootstrap, newest, stop, results))
    process.start()
    probing = asyncio.ensure_future(probe(cluster.node.bootstrap, rate, until, cluster.node.pid))
    await wait
    until.set()
    phase = await probing
    stop.set()
    while process.is_alive() or not results.empty():
        if results.empty():
            await asyncio.sleep(0.05)
            continue
        _, _, problems = results.get()
        phase.passes += 1
        phase.problems += problems
    process.join()
    return phase


async def cleaned(cluster: Cluster, end: int, figures: Figures) -> None:
    """Start the cleaner, and wait until the log is clean up to `end`."""
    await asyncio.to_thread(cluster.alter, min_cleanable_dirty_ratio="0.0")
    begin = time.monotonic()
    while cluster.cleaned_until() < end:
        await asyncio.sleep(0.2)
        cluster.look_at_helper(figures)
    figures.clean_s = time.monotonic() - begin


async def measure(cluster: Cluster, options: argparse.Namespace) -> Figures:
    figures = Figures(options.records, options.keys)
    bootstrap, newest = cluster.node.bootstrap, [-1] * options.keys
    begin = time.monotonic()
    await load(bootstrap, build_batches(options.records, options.keys, newest))
    figures.load_s = time.monotonic() - begin
    # The active segment is never cleaned, so one more record starts a new segment.
    await asyncio.to_thread(cluster.alter, segment_ms="1")
    connection = await connect(bootstrap, "sentinel")
    for _ in range(2):
        await asyncio.sleep(1)
        payload = _one_record(bytes(VALUE_BYTES), SENTINEL)
        sentinel = whole_batch(payload, 1, time.time_ns() // 1_000_000)
        await produce(connection, TOPIC, sentinel, -1)
    await connection.close()
    await asyncio.to_thread(cluster.alter, segment_ms="604800000")
    figures.bytes_before = cluster.log_bytes()
    figures.before = await measured(
        cluster, options.probe_rate, newest, asyncio.sleep(options.seconds)
    )
    wait = cleaned(cluster, options.records + 1, figures)
    figures.during = await measured(cluster, options.probe_rate, newest, wait)
    figures.bytes_after = cluster.log_bytes()
    last = await read_once(bootstrap, newest, 1e12)
    figures.left = last.records - 2
    keys_written = sum(place >= 0 for place in newest)
    figures.problems = last.problems + figures.before.problems + figures.during.problems
    if figures.left != keys_written:
        figures.problems.append(f"{figures.left} records are left of {keys_written} keys")
    return figures


def table(figures: Figures) -> str:
    before, during = figures.before, figures.during
    rows = [
        ("records, keys", f"{figures.records:,} over {figures.keys:,}"),
        ("loaded in", f"{figures.load_s:.1f} s"),
        ("log before, after", f"{figures.bytes_before / 1e6:,.0f} MB, "
                              f"{figures.bytes_after / 1e6:,.1f} MB"),
        ("cleaned in", f"{figures.clean_s:.1f} s ({figures.helper_cpu_s:.1f} CPU s in the helper, "
                       f"{figures.helper_peak_mb:.0f} MB)"),
        ("records left", f"{figures.left:,}, problems: {len(figures.problems)}"),
        ("passes of the reader", f"{before.passes} before, {during.passes} during"),
        ("produce p50 before, during", f"{before.p50_ms:.2f} ms, {during.p50_ms:.2f} ms"),
        ("produce p99 before, during", f"{before.p99_ms:.2f} ms, {during.p99_ms:.2f} ms "
                                       f"({during.p99_ms / before.p99_ms:.2f} x)"),
        ("worst before, during", f"{before.worst_ms:.1f} ms, {during.worst_ms:.1f} ms"),
        ("broker CPU before, during", f"{before.broker_core:.2f}, {during.broker_core:.2f} cores"),
    ]  # fmt: skip
    return "\n".join(["| compaction | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Compaction by a running node.")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--probe-rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of the first phase")
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args()
    with bench_place(4 << 30) as place:
        settings = {"log.cleaner.backoff.ms": "500", "kraftbox.http.listener": ""}
        node = KraftboxNode(place / "node", settings=settings).start()
        try:
            figures = uvloop.run(measure(Cluster(node), options))
        finally:
            node.stop()
    print(table(figures))
    for problem in figures.problems[:10]:
        print("problem:", problem)
    if options.json:
        Path(options.json).write_text(json.dumps(asdict(figures), indent=1))
    return 1 if figures.problems else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
