"""Very many consumers of records that only the tier has.

    python -m bench.tier_consumers BOOTSTRAP TOPIC END --consumers N --seconds S [--start OFFSET]

Each has a connection and begins at its own offset below END of a partition of the topic. It fetches
as much as usual clients do, and fetches again at once. Prints as JSON how much they read, how often
the broker returned a retriable error, and how long responses took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence

import uvloop

from protocol.batch.header import iter_batches
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.client import Connection
from testkit.processes.ending import end_on_sigterm

VERSION = 12
"""The last version with topic names."""
PART_BYTES = 1 << 20
ANSWER_BYTES = 50 << 20
WAIT_MS = 500
TIMEOUT_MS = 60_000
RETRY_S = 0.5
"""librdkafka's wait before it retries a failed fetch."""
BEGIN_S = 2.0
"""The time within which they begin: they are many clients, not one with a thousand requests at
once.
"""
AT_ONCE = 50
"""Connections that are opened at the same time."""


class Consumers:
    """All consumers and their figures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rng = random.Random(1_000)
        self.read_bytes = 0
        self.tries_again = 0
        self.answer_s: list[float] = []
        self.served: set[int] = set()

    async def run(self) -> dict[str, float]:
        host, _, port = self.options.bootstrap.rpartition(":")
        gate = asyncio.Semaphore(AT_ONCE)

        async def connect() -> Connection:
            async with gate:
                return await Connection.connect(host, int(port), "consumer", TIMEOUT_MS)

        count = range(self.options.consumers)
        connections = await asyncio.gather(*(connect() for _ in count))
        begin = time.monotonic()
        end = begin + self.options.seconds
        await asyncio.gather(*(self._one(number, connections[number], end) for number in count))
        took_s = time.monotonic() - begin
        for connection in connections:
            connection.abort()
        self.answer_s.sort()
        return {
            "mb_per_s": self.read_bytes / 1e6 / took_s,
            "answers": len(self.answer_s),
            "tries_again": self.tries_again,
            "served": len(self.served),
            "p99_ms": 1e3 * self.answer_s[int(len(self.answer_s) * 0.99)],
        }

    async def _one(self, number: int, connection: Connection, end: float) -> None:
        partition = number % self.options.partitions
        offset = self.rng.randrange(self.options.start, self.options.end)
        await asyncio.sleep(self.rng.uniform(0.0, BEGIN_S))
        while time.monotonic() < end:
            begun_s = time.monotonic()
            answer = await connection.request(
                _request(self.options.topic, partition, offset), TIMEOUT_MS, VERSION
            )
            self.answer_s.append(time.monotonic() - begun_s)
            data = answer.responses[0].partitions[0]
            if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                self.tries_again += 1
                await asyncio.sleep(RETRY_S)
                continue
            if data.error_code:
                raise SystemExit(f"the broker answers {ErrorCode(data.error_code).name}")
            read, offset = _behind(data, offset)
            self.read_bytes += read
            if read:
                self.served.add(number)
            if offset >= self.options.end:
                offset = self.rng.randrange(self.options.start, self.options.end)


def _request(topic: str, partition: int, offset: int) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=PART_BYTES
    )
    return FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=ANSWER_BYTES,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )


def _behind(data: FetchResponse.PartitionData, offset: int) -> tuple[int, int]:
    """Return the bytes of records, and the offset after them."""
    content = data.records
    if not content or isinstance(content, list):
        return 0, offset
    for header, _ in iter_batches(content):
        offset = header.next_offset
    return len(content), offset


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("end", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--consumers", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    uvloop.install()
    print(json.dumps(asyncio.run(Consumers(parser.parse_args(arguments)).run())))


if __name__ == "__main__":
    end_on_sigterm()
    main()
