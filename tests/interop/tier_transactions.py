"""A log with transactions that Kafka wrote, read through our tier."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.tiering.index_cache import IndexCache
from broker.tiering.reader import RemoteReader
from client.cluster_client import ClusterClient
from protocol.batch.header import iter_batches
from storage.files import RealFiles
from storage.log.config import LogConfig
from storage.log.log import Log
from storage.tiered.segment_store import SegmentStore
from testkit.kafka.jars import java_program
from testkit.memory.tier import NO_QUOTA, READS, done
from testkit.memory.tier_brokers import TierWorld

SOURCE: Final = Path(__file__).parent / "java/kafka-tools/Transactions.java"
RUN_TIMEOUT_S: Final = 60
LIMIT: Final = 1 << 20
"""More bytes than a segment has."""


class Read(NamedTuple):
    """A read_committed consumer's answer from one offset on."""

    records: bytes
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset."""

    @property
    def in_order(self) -> Read:
        """Sort Kafka's aborted transactions, which it returns from its tier in no order."""
        return Read(self.records, tuple(sorted(self.aborted)))


def interleaved(rng: random.Random, transactions: int, producers: int) -> list[str]:
    """Yield steps of Transactions.java: up to `producers` transactions at once.

    Two thirds are aborted, many of them long after their records.
    """
    open_now: set[str] = set()
    steps: list[str] = []
    while transactions or open_now:
        name = f"p{rng.randrange(producers)}"
        if name not in open_now:
            if not transactions:
                continue
            transactions -= 1
            open_now.add(name)
            steps.append(f"begin {name}")
        if rng.random() < 0.7:
            steps.append(f"send {name} {rng.randint(1, 8)}")
        else:
            open_now.discard(name)
            steps.append(f"{rng.choice(('abort', 'abort', 'commit'))} {name}")
    return steps


def write(bootstrap: str, topic: str, steps: Sequence[str], folder: Path) -> None:
    """Write the log with Kafka's producers; the program is compiled into `folder`."""
    command = [*java_program(SOURCE, folder), bootstrap, topic]
    given = "".join(f"{step}\n" for step in steps)
    done = subprocess.run(
        command, input=given, text=True, capture_output=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


async def kafkas(client: ClusterClient, topic: str, offsets: Sequence[int]) -> dict[int, Read]:
    """Return Kafka's answers at these offsets."""
    found = {}
    for offset in offsets:
        one = await client.fetch(topic, 0, offset, max_bytes=LIMIT, read_committed=True)
        found[offset] = Read(bytes(one.records), tuple(one.aborted))
    return found


async def ours(folder: Path, offsets: Sequence[int]) -> dict[int, Read]:
    """Return our tier's answers for the log in that folder, at the offsets that they have.

    Its closed segments are copied and removed from the disk first.
    """
    world = TierWorld()
    config = LogConfig(remote_storage_enable=True, retention_ms=-1, local_retention_bytes=0)
    log = Log.open(RealFiles(), str(folder), config, world.clock)
    broker = world.broker(log=log)
    try:
        await broker.ready()
        broker.commit()
        await broker.copy_all()
        log.retention(world.clock.now_ms())
        indexes = IndexCache(
            RealFiles(),
            str(folder.parent),
            SegmentStore(world.bucket),
            world.supervisor,
            monotonic_ms=world.clock.monotonic_ms,
            max_bytes=lambda: LIMIT,
            ttl_ms=lambda: -1,
        )
        indexes.load()
        reader = RemoteReader(
            SegmentStore(world.bucket),
            indexes,
            lambda partition: broker.known,
            settings=lambda: READS,
            quota=lambda: NO_QUOTA,
            files=RealFiles(),
            supervisor=world.supervisor,
            clock=world.clock,
        )
        found = {}
        for offset in offsets:
            if offset >= log.local_log_start_offset:
                break
            one = reader.read(log, offset, LIMIT, committed=True)
            await done(one)
            assert one.error is None, one.error
            assert one.window is not None
            cut = one.window.cut(offset, LIMIT)
            assert cut is not None
            aborted = tuple((txn.producer_id, txn.first_offset) for txn in cut.aborted)
            found[offset] = Read(bytes(cut.records), aborted)
        return found
    finally:
        await world.close()
        log.close()


def lifespan(reads: Mapping[int, Read], bases: Sequence[int]) -> int:
    """Return the number of segments, with these `bases`, that the longest aborted transaction
    spans."""
    listed = [(txn[1], offset) for offset, read in reads.items() for txn in read.aborted]
    return max(1 + sum(first < base <= offset for base in bases) for first, offset in listed)


def batch_offsets(reads: Mapping[int, Read]) -> list[int]:
    """Return the first offsets of all batches that were read."""
    found = (header for one in reads.values() for header, _ in iter_batches(one.records))
    return sorted({header.base_offset for header in found})
