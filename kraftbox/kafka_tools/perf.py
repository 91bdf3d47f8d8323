"""kafka-producer-perf-test.sh: measure the produce rate of this client.

The client is written in Python and is often slower than the broker; for the broker's own limits use
Kafka's tool of this name.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence

from client.cluster_client import ClusterClient
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import (
    check_client_properties,
    file_properties,
    pairs,
    parser,
)
from protocol.batch.records import Record, build_batch
from protocol.compression import Codec
from protocol.errors import ApiError

BATCH_BYTES = 16_384
INFLIGHT_MAX = 5
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
QUANTILES = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, (__doc__ or "").partition("\n")[0])
    options.add_argument("--topic", required=True)
    options.add_argument("--num-records", type=int, required=True)
    size = options.add_mutually_exclusive_group(required=True)
    size.add_argument("--record-size", type=int)
    size.add_argument("--payload-file")
    options.add_argument("--payload-delimiter", default="\\n")
    options.add_argument(
        "--throughput", type=float, required=True, help="records per second; -1: unlimited"
    )
    options.add_argument("--producer-props", nargs="+", action="extend", metavar="NAME=VALUE")
    options.add_argument("--command-property", action="append", metavar="NAME=VALUE")
    options.add_argument("--producer.config", "--command-config", dest="producer_config")
    options.add_argument("--bootstrap-server")
    options.add_argument("--print-metrics", action="store_true", help="accepted, without effect")
    given = options.parse_args(arguments)
    properties = file_properties(given.producer_config) if given.producer_config else {}
    properties |= pairs(given.producer_props, "--producer-props")
    properties |= pairs(given.command_property, "--command-property")
    check_client_properties(properties)
    bootstrap = given.bootstrap_server or properties.get("bootstrap.servers")
    if bootstrap is None:
        raise CommandFailed("missing option --bootstrap-server")
    run(bootstrap, lambda client: _Run(client, given, properties).run())
    return 0


def payloads(options: argparse.Namespace) -> list[bytes]:
    """Return the record values, to be used in turn. Raises CommandFailed."""
    if options.payload_file is None:
        rng = random.Random(0)
        return [bytes(rng.randrange(65, 91) for _ in range(options.record_size))]
    delimiter = options.payload_delimiter.encode().decode("unicode_escape")
    try:
        with open(options.payload_file, encoding="utf-8") as file:
            found = [line.encode() for line in file.read().split(delimiter) if line]
    except OSError as error:
        raise CommandFailed(f"{options.payload_file}: {error.strerror}") from None
    if not found:
        raise CommandFailed(f"{options.payload_file} is empty")
    return found


class _Run:
    """One measurement: batches to all partitions in turn, with up to INFLIGHT_MAX in flight."""

    def __init__(
        self, client: ClusterClient, options: argparse.Namespace, properties: dict[str, str]
    ) -> None:
        self._client = client
        self._options = options
        self._acks = ACKS.get(properties.get("acks", "all"), -1)
        try:
            self._codec = Codec[properties.get("compression.type", "none").upper()]
            self._batch_bytes = int(properties.get("batch.size", BATCH_BYTES))
        except (KeyError, ValueError) as error:
            raise CommandFailed(f"not a value: {error}") from None
        self._latencies_ms: list[tuple[float, int]] = []
        self._bytes = 0
        self._failure: CommandFailed | None = None

    async def run(self) -> None:
        options = self._options
        partitions = len((await self._client.topic(options.topic, create=True)).partitions)
        contents = payloads(options)
        per_batch = max(1, self._batch_bytes // max(1, len(contents[0])))
        begun = time.monotonic()
        places = asyncio.Semaphore(INFLIGHT_MAX)
        sent = turn = 0
        tasks: set[asyncio.Task[None]] = set()
        while sent < options.num_records and self._failure is None:
            count = min(per_batch, options.num_records - sent)
            values = [contents[(sent + at) % len(contents)] for at in range(count)]
            await places.acquire()
            tasks.add(asyncio.create_task(self._send(turn % partitions, values, places)))
            sent += count
            turn += 1
            if options.throughput > 0:
                due = begun + sent / options.throughput
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        await asyncio.gather(*tasks)
        if self._failure is not None:
            raise self._failure
        self._report(time.monotonic() - begun)

    async def _send(self, partition: int, values: list[bytes], places: asyncio.Semaphore) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(0, now_ms, None, value) for value in values], compression=self._codec
        )
        begun = time.monotonic()
        topic = self._options.topic
        try:
            await self._client.produce(topic, partition, batch, acks=self._acks)
        except (ApiError, OSError) as error:
            self._failure = CommandFailed(f"{topic}-{partition}: {error}")
            return
        finally:
            places.release()
        self._latencies_ms.append(((time.monotonic() - begun) * 1000, len(values)))
        self._bytes += sum(map(len, values))

    def _report(self, seconds: float) -> None:
        found = sorted(self._latencies_ms)
        records = sum(count for _, count in found)
        mean = sum(ms * count for ms, count in found) / max(1, records)

        def quantile(part: float) -> float:
            passed = 0
            for ms, count in found:
                passed += count
                if passed >= part * records:
                    return ms
            return 0.0

        tail = ", ".join(f"{quantile(part):.0f} ms {name}" for part, name in QUANTILES)
        say(
            f"{records} records sent, {records / seconds:.6f} records/sec "
            f"({self._bytes / seconds / 1048576:.2f} MB/sec), {mean:.2f} ms avg latency, "
            f"{found[-1][0] if found else 0:.2f} ms max latency, {tail}."
        )
