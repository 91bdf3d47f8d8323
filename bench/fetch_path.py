"""CPU cost of a fetch in the broker: `python -m bench.fetch_path [--profile]`.

It measures the whole path without the socket, as `bench.produce_path` does for Produce. A consumer
with a session is at the end of the log: its Fetch waits, a batch arrives, the response is sent.
Prints microseconds of CPU per batch, the best of several rounds, with and without that consumer:
the difference is its cost. Then the same for a follower, which reports its offset with each Fetch,
and with a threshold of KIP-1303 also its local log.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import struct
import tempfile
from collections.abc import Awaitable, Callable

import uvloop

from bench.blast import record_batch, request_frame
from bench.produce_path import feed, spent
from bench.transport import NullTransport
from broker.apis import fetch as fetch_api
from broker.apis import produce as produce_api
from protocol.api_keys import ApiKey
from protocol.batch.header import parse_header
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.fetch import FetchRequest
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable
from protocol.transport.own_names import Own
from protocol.transport.server import Server
from runtime.clock import SystemClock
from storage.files import RealFiles
from testkit.memory.broker import NODE, OTHER, Harness, topic_id

VERSION = 17
FOLLOWERS_VERSION = 18
LOCAL_LOGS_VERSION = 19
READERS = (
    ("", 0, -1),
    (" and its Fetch at the tail", VERSION, -1),
    (" and a follower's Fetch", FOLLOWERS_VERSION, -1),
    (" and the same with its local log", LOCAL_LOGS_VERSION, 1 << 60),
)
"""The cases: the kind of Fetch, its version, and the threshold of local logs in bytes."""
ROUNDS = 12
TIMES = 1_000
MAX_BYTES = 1 << 20


class Fetching:
    """One broker with the connections of a producer and a consumer."""

    def __init__(self, folder: str, batch_bytes: int, version: int, threshold: int) -> None:
        self.version = version
        self.follows = version >= FOLLOWERS_VERSION
        self.broker = Harness(files=RealFiles(), log_dir=folder, clock=SystemClock())
        if threshold > 0:
            key = "leader.election.eligible.local.log.bytes"
            self.broker.create_topic(replicas=(NODE, OTHER), configs={key: str(threshold)})
        else:
            self.broker.create_topic(replicas=(NODE, OTHER) if self.follows else (NODE,))
        table = HandlerTable(own_kind=lambda _: Own.BROKER)
        produce_api.register(table, self.broker.context)
        fetch_api.register(table, self.broker.context)
        server = Server(table, clock=self.broker.clock, listener="BENCH")
        self.producer, self.consumer = ServerConnection(server, 1), ServerConnection(server, 2)
        for connection in (self.producer, self.consumer):
            connection.connection_made(NullTransport())
        self.produced = request_frame("t", 0, batch_bytes, 1 if self.follows else -1)
        self.per_batch = parse_header(record_batch(batch_bytes)).record_count
        self.session_id = self.epoch = self.offset = 0
        self.frames: list[bytes] = []

    def begin_session(self) -> None:
        """Read the existing records as the consumer, which creates its session."""
        feed(self.consumer, self._fetch(max_wait_ms=0))
        (self.session_id,) = [s.session_id for s in self.broker.context.sessions]

    def _fetch(self, max_wait_ms: int) -> bytes:
        wanted = FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=0,
            fetch_offset=self.offset,
            partition_max_bytes=MAX_BYTES,
        )
        if self.version >= LOCAL_LOGS_VERSION:
            wanted.local_log_start_timestamp = 1_700_000_000_000
            wanted.local_log_size_bytes = self.offset + 1
        topic = FetchRequest.FetchTopic(topic_id=topic_id(1), partitions=[wanted])
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=50 * MAX_BYTES,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[topic],
        )
        if self.follows:
            request.replica_state = FetchRequest.ReplicaState(
                replica_id=OTHER, replica_epoch=100 + OTHER
            )
        self.epoch += 1
        header = RequestHeader(ApiKey.FETCH, self.version, 0, "consumer-1")
        body = encode_request_header(header) + encode(request, self.version)
        return struct.pack(">i", len(body)) + body

    def prepare(self) -> None:
        """Encode the frames of a round before it is measured."""
        self.frames = []
        for _ in range(TIMES):
            self.frames.append(self._fetch(max_wait_ms=500))
            self.offset += self.per_batch

    async def produce(self) -> None:
        for _ in range(TIMES):
            feed(self.producer, self.produced)
            await asyncio.sleep(0)

    async def tail(self) -> None:
        """Produce batches, each of which completes a waiting Fetch."""
        for frame in self.frames:
            feed(self.consumer, frame)
            feed(self.producer, self.produced)
            await asyncio.sleep(0)
            await asyncio.sleep(0)


async def best_of(
    prepare: Callable[[], None], body: Callable[[], Awaitable[None]]
) -> tuple[float, float]:
    """Return (user, system) microseconds for each of `TIMES`."""
    best = (float("inf"), float("inf"))
    for _ in range(ROUNDS):
        prepare()
        before = spent()
        await body()
        after = spent()
        best = min(best, (after[0] - before[0], after[1] - before[1]), key=sum)
    return best[0] / TIMES * 1e6, best[1] / TIMES * 1e6


async def measure(batch_bytes: int, version: int, threshold: int) -> tuple[float, float]:
    """Return the cost of a batch with a Fetch of this version; version 0 means no Fetch."""
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as folder:
        one = Fetching(folder, batch_bytes, version, threshold)
        if not version:
            return await best_of(lambda: None, one.produce)
        one.begin_session()
        return await best_of(one.prepare, one.tail)


async def profile(batch_bytes: int) -> None:
    """Print the time inside each function; most of it is the cost of the profiler itself."""
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as folder:
        one = Fetching(folder, batch_bytes, VERSION, -1)
        one.begin_session()
        one.prepare()
        profiler = cProfile.Profile()
        profiler.enable()
        await one.tail()
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    if parser.parse_args().profile:
        await profile(65_536)
        return
    for name, batch_bytes in (("a record of 100 B", 170), ("a batch of 64 KB", 65_536)):
        for what, version, threshold in READERS:
            user, system = await measure(batch_bytes, version, threshold)
            print(
                f"{name + what:45s} {user:7.1f} us user {system:7.1f} us system "
                f"{user + system:7.1f} us"
            )


if __name__ == "__main__":
    uvloop.run(main())
