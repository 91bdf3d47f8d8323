"""CPU cost of a produce request in the broker: `python -m bench.produce_path [--profile]`.

It measures the whole path without the socket: bytes to frames, header, body, checks, the append to
a real file in a temporary folder, the high watermark, the bytes of the response. Prints
microseconds of CPU, user time and system time separately. They are the best of several rounds, so
that the machine's other load has little effect.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import resource
import tempfile

import uvloop

from bench.blast import request_frame
from bench.transport import NullTransport
from broker.apis import produce as produce_api
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable
from protocol.transport.server import Server
from runtime.clock import SystemClock
from storage.files import RealFiles
from testkit.memory.broker import Harness

ROUNDS = 12
TOGETHER = 5
"""Small requests that arrive in one read."""


def spent() -> tuple[float, float]:
    """Return the user and system seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


def feed(connection: ServerConnection, data: bytes) -> None:
    """Pass data to a connection in the same way as the event loop."""
    at = 0
    while at < len(data):
        room = connection.get_buffer(-1)
        taken = min(len(room), len(data) - at)
        room[:taken] = data[at : at + taken]
        connection.buffer_updated(taken)
        at += taken


def connect(folder: str, partitions: int) -> ServerConnection:
    """Return a connection to a broker with its logs in `folder`."""
    broker = Harness(files=RealFiles(), log_dir=folder, clock=SystemClock())
    broker.create_topic(partitions=partitions)
    table = HandlerTable()
    produce_api.register(table, broker.context)
    connection = ServerConnection(Server(table, clock=broker.clock, listener="BENCH"), 1)
    connection.connection_made(NullTransport())
    return connection


async def measure(batch_bytes: int, together: int, times: int, acks: int) -> tuple[float, float]:
    """Return (user, system) microseconds per request."""
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as folder:
        connection = connect(folder, 1)
        data = request_frame("t", 0, batch_bytes, acks) * together
        best = (float("inf"), float("inf"))
        for _ in range(ROUNDS):
            before = spent()
            for _ in range(times // together):
                feed(connection, data)
                while connection.exchange.holds:  # noqa: ASYNC110
                    # A request took the time of an iteration: the machine was busy.
                    await asyncio.sleep(0)
            after = spent()
            best = min(best, (after[0] - before[0], after[1] - before[1]), key=sum)
    return best[0] / times * 1e6, best[1] / times * 1e6


async def profile(batch_bytes: int) -> None:
    """Print the time inside each function; most of it is the cost of the profiler itself."""
    with tempfile.TemporaryDirectory(prefix="kraftbox-bench-") as folder:
        connection = connect(folder, 1)
        data = request_frame("t", 0, batch_bytes, -1) * TOGETHER
        profiler = cProfile.Profile()
        profiler.enable()
        for _ in range(4_000):
            feed(connection, data)
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    if parser.parse_args().profile:
        await profile(170)
        return
    rows = (
        ("one record of 100 B, acks=all", 170, TOGETHER, 10_000, -1),
        ("one record of 100 B, acks=1", 170, TOGETHER, 10_000, 1),
        ("a batch of 64 KB, acks=all", 65_536, 1, 1_000, -1),
    )
    for name, *arguments in rows:
        user, system = await measure(*arguments)
        print(f"{name:40s} {user:7.1f} us user {system:7.1f} us system {user + system:7.1f} us")


if __name__ == "__main__":
    uvloop.run(main())
