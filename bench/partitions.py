"""One node with very many partitions: `python -m bench.partitions [--partitions 5000]`.

Measures the cost of an idle partition, and the effect of scrapes of all partitions on a producer.
The figures are the creation of the topic, a produce to each partition, memory, idle CPU, the stop,
and the start after a clean stop, after one with a cold page cache, and after kill -9. Producing is
measured in turns of some seconds, without and with a scrape every second, so that a shared
machine's drift affects both.

Prints a Markdown table; `--markdown FILE` writes it between the marks there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import uvloop

from bench.blast import record_batch
from bench.nodes import cpu_seconds, keep_bytecode, resident_mb
from bench.place import bench_place
from bench.report import put_between, shown
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.produce import ProduceRequest
from protocol.transport.client import Connection
from testkit.processes.ending import end_on_sigterm
from testkit.processes.nodes import KraftboxNode
from testkit.processes.ports import free_port

TOPIC = "many"
PRODUCE_VERSION = 11
CREATE_VERSION = 7
IN_FLIGHT = 5
RETRIABLE = frozenset({3, 6})
"""The broker does not know the partition yet, or does not lead it yet."""
RATE = 200.0
MARK = "partitions"


SCRAPER = """
import select, sys, time, urllib.request
print("ready", flush=True)
while True:
    began = time.monotonic()
    with urllib.request.urlopen(sys.argv[1], timeout=60) as reply:
        size = len(reply.read())
    print(time.monotonic() - began, size, flush=True)
    if select.select([sys.stdin], [], [], max(0.0, began + 1.0 - time.monotonic()))[0]:
        break
"""


class Figures:
    """Rows in the order of their measurement."""

    def __init__(self) -> None:
        self.rows: dict[str, float] = {}

    def note(self, row: str, value: float) -> None:
        """Record a figure and print it."""
        self.rows[row] = value
        print(f"{row}: {shown(value)}", flush=True)

    def table(self, partitions: int) -> str:
        """Return the table as Markdown."""
        lines = [f"| {partitions:,} partitions | |", "|---|---|"]
        return "\n".join(lines + [f"| {row} | {shown(v)} |" for row, v in self.rows.items()])


async def connect(node: KraftboxNode) -> Connection:
    """Open a client's connection to the node."""
    host, _, port = node.bootstrap.rpartition(":")
    return await Connection.connect(host, int(port), client_id="bench")


async def create(connection: Connection, partitions: int) -> None:
    """Create the topic. Raises RuntimeError for any error."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=partitions, replication_factor=1
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    response = await connection.request(request, timeout_ms=60_000, version=CREATE_VERSION)
    code = response.topics[0].error_code
    if code:
        raise RuntimeError(f"creating the topic failed with {code}")


async def produce(connection: Connection, index: int, batch: bytes) -> None:
    """Produce one batch with acks=all; retry while the partition is being created."""
    for _ in range(2_000):
        data = ProduceRequest.PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        response = await connection.request(request, timeout_ms=60_000, version=PRODUCE_VERSION)
        code = response.responses[0].partition_responses[0].error_code
        if not code:
            return
        if code not in RETRIABLE:
            raise RuntimeError(f"produce to partition {index} failed with {code}")
        await asyncio.sleep(0.01)
    raise RuntimeError(f"partition {index} did not appear in time")


async def produce_to_each(node: KraftboxNode, partitions: int) -> float:
    """Return the seconds for one record to each partition, with several requests in flight."""
    connection, batch = await connect(node), record_batch(170)
    begin = time.monotonic()
    indexes = iter(range(partitions))

    async def some() -> None:
        for index in indexes:
            await produce(connection, index, batch)

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
    took_s = time.monotonic() - begin
    await connection.close()
    return took_s


def scrape(address: str) -> tuple[float, int]:
    """Return (seconds, bytes) of one scrape."""
    begin = time.monotonic()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as reply:
        size = len(reply.read())
    return time.monotonic() - begin, size


async def probe(connection: Connection, seconds: float) -> list[float]:
    """Return the ms from the due time of each request to its response, at a fixed rate."""
    batch, latencies = record_batch(1024), []
    tasks: list[asyncio.Task[None]] = []

    async def one(due: float) -> None:
        await produce(connection, 0, batch)
        latencies.append((time.monotonic() - due) * 1000)

    due, ends = time.monotonic(), time.monotonic() + seconds
    while due < ends:
        tasks.append(asyncio.ensure_future(one(due)))
        due += 1 / RATE
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    await asyncio.gather(*tasks)
    return latencies


@asynccontextmanager
async def scraping(address: str, found: list[tuple[float, int]]) -> AsyncIterator[None]:
    """Scrape once per second in a separate process, so that the scraper's cost is not the
    node's.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRAPER, f"http://{address}/metrics"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield
    finally:
        output, _ = await process.communicate(b"end")
    for line in output.decode().splitlines():
        seconds, size = line.split()
        found.append((float(seconds), int(size)))


async def with_and_without(
    node: KraftboxNode, address: str, rounds: int, seconds: float, figures: Figures
) -> None:
    """Measure the produce p99 in turns, without and with scrapes."""
    connection = await connect(node)
    await probe(connection, min(seconds, 2.0))
    first_s, size_bytes = await asyncio.to_thread(scrape, address)
    figures.note("scrape: MB", size_bytes / 1e6)
    figures.note("the first scrape: ms", first_s * 1000)
    latencies: dict[bool, list[float]] = {False: [], True: []}
    scrapes: list[tuple[float, int]] = []
    for _ in range(rounds):
        for scraped in (False, True):
            async with scraping(address, scrapes) if scraped else nullcontext():
                latencies[scraped] += await probe(connection, seconds)
    await connection.close()
    scrapes.sort()
    figures.note("scrape: median ms", scrapes[len(scrapes) // 2][0] * 1000)
    for percent in (50, 99):
        for scraped, text in ((False, "without"), (True, "with")):
            ordered = sorted(latencies[scraped])
            value = ordered[int(len(ordered) * percent / 100)]
            figures.note(f"produce p{percent} {text} scrapes: ms", value)


def timed(step: Callable[[], object]) -> float:
    """Return the seconds that a step takes."""
    begin = time.monotonic()
    step()
    return time.monotonic() - begin


def forget_pages(folder: Path) -> None:
    """Drop the folder's files from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def note_start(node: KraftboxNode, what: str, figures: Figures) -> None:
    """Start the node and record the duration."""
    figures.note(f"start {what}: s", timed(node.start))
    figures.note(f"start {what}: CPU s", cpu_seconds(node.pid))


def measure(place: Path, options: argparse.Namespace, figures: Figures) -> None:
    """Measure everything on one node."""
    keep_bytecode(place)
    address = f"127.0.0.1:{free_port()}"
    settings = {"kraftbox.http.listener": address}
    node = KraftboxNode(place / "node", settings=settings, stop_timeout_s=180)
    try:
        node.start()
        node.stop()
        note_start(node, "without topics", figures)
        figures.note("resident without topics: MiB", resident_mb(node.pid))

        async def fill() -> None:
            connection = await connect(node)
            begin = time.monotonic()
            await create(connection, options.partitions)
            figures.note("create the topic: s", time.monotonic() - begin)
            await connection.close()
            figures.note("produce to each, from then on: s", await again())

        async def again() -> float:
            return await produce_to_each(node, options.partitions)

        uvloop.run(fill())
        figures.note("produce to each, once more: s", uvloop.run(again()))
        figures.note("resident: MiB", resident_mb(node.pid))
        time.sleep(2.0)
        before = cpu_seconds(node.pid)
        time.sleep(options.idle)
        used = cpu_seconds(node.pid) - before
        figures.note("idle: % of a core", 100 * used / options.idle)
        uvloop.run(with_and_without(node, address, options.rounds, options.seconds, figures))
        figures.note("stop: s", timed(node.stop))
        note_start(node, "after a clean stop", figures)
        figures.note("produce to each after a start: s", uvloop.run(again()))
        figures.note("resident after a start: MiB", resident_mb(node.pid))
        figures.note("stop once more: s", timed(node.stop))
        forget_pages(node.directory)
        note_start(node, "after a clean stop, page cache cold", figures)
        uvloop.run(again())
        node.kill()
        note_start(node, "after kill -9", figures)
        uvloop.run(again())
    finally:
        node.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of the idle phase")
    parser.add_argument("--rounds", type=int, default=4, help="rounds without and with scrapes")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of a round")
    parser.add_argument("--quick", action="store_true", help="run every step once, without figures")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.partitions, options.idle, options.rounds, options.seconds = 200, 2.0, 1, 1.0
    figures = Figures()
    with bench_place(1 << 30) as place:
        measure(place, options, figures)
    text = figures.table(options.partitions)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(figures.rows, indent=1))
    if options.markdown:
        put_between(options.markdown, MARK, text)


if __name__ == "__main__":
    end_on_sigterm()
    main()
