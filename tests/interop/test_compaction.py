"""Apache Kafka's cleaner and ours on the same logs; Kafka's tools read ours afterwards."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from protocol.batch.control import build_end_txn_marker
from protocol.batch.records import Producer, Record, build_batch
from protocol.compression import Codec
from runtime.clock import ManualClock
from storage.files import RealFiles
from storage.log.log import Log
from storage.log.producers import Origin
from testkit.kafka.jars import ORACLE, java_program, kafka_libs
from testkit.kafka.nodes import run_kafka_tool
from testkit.memory.cleaning import Cleaning, batches_of

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "java" / "CleanLogs.java"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CLEANER = ORACLE
"""The cleaner to agree with."""
PLACES = ("inside", "at", "behind")
"""Positions of the high watermark: in one of the closed segments, at the end of the last one, and
behind it. In the first case the round ends with the segment before."""
IN_CI = {1, 2, 3, 17, 25, 26, 35, 38, 42, 59}
"""Seeds in CI; 42 and 59 have an emptied batch that ends at the high watermark."""
SEEDS = range(1, 201)
ROUNDS = 4
HORIZON_MS = 100_000
TOPIC = {"segment.bytes": 1 << 20, "delete.retention.ms": HORIZON_MS, "cleanup.policy": "compact"}


@pytest.fixture(autouse=True)
def _need_kafka() -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")


class KafkasCleaner:
    """Apache Kafka's cleaner in a persistent JVM."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def clean(
        self, directory: Path, first_dirty: int, end: int, high_watermark: int, now_ms: int
    ) -> int:
        """Clean [first_dirty, end) of a log. Returns: the offset that it is clean up to."""
        assert self._process.stdin is not None and self._process.stdout is not None
        settings = " ".join(f"{key}={value}" for key, value in TOPIC.items())
        order = f"{directory} {first_dirty} {end} {high_watermark} {now_ms} {1 << 20} {settings}\n"
        self._process.stdin.write(order)
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("clean "):
                return int(line.split()[1])
        raise AssertionError("Kafka's cleaner ended")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.stdout.close()
        self._process.wait()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasCleaner]:
    if kafka_libs(CLEANER) is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    cleaner = KafkasCleaner(java_program(SOURCE, tmp_path_factory.mktemp("classes"), CLEANER))
    yield cleaner
    cleaner.close()


class Author:
    """An author of the same random history in several logs.

    It has keys, tombstones, producers that retry in epochs, and transactions that commit, abort, or
    stay open.
    """

    def __init__(self, seed: int, clock: ManualClock) -> None:
        self.rng = random.Random(seed)
        self.clock = clock
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.epoch = 0

    def batch(self) -> bytes:
        rng = self.rng
        producer_id = rng.choice([-1, -1, 1, 2, 3, 4])
        if producer_id in self.open and rng.random() < 0.4:
            self.open.discard(producer_id)
            return build_end_txn_marker(
                producer_id,
                0,
                commit=rng.random() < 0.5,
                coordinator_epoch=1,
                timestamp_ms=self.clock.now_ms(),
            )
        records = [
            Record(
                timestamp=self.clock.now_ms() + rng.randrange(-500, 500),
                key=b"key-%d" % rng.randrange(12) * rng.choice([1, 1, 20]),
                value=None if rng.random() < 0.25 else rng.randbytes(rng.randrange(0, 300)),
                headers=[("h", b"x")] if rng.random() < 0.2 else (),
            )
            for _ in range(rng.randrange(1, 6))
        ]
        producer = Producer()
        if producer_id > 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            transactional = producer_id > 2
            producer = Producer(producer_id, 0, sequence, transactional)
            if transactional:
                self.open.add(producer_id)
        return build_batch(
            records,
            producer=producer,
            compression=rng.choice(list(Codec)),
            log_append_time_ms=self.clock.now_ms() if rng.random() < 0.1 else None,
        )

    def write(self, logs: list[Log]) -> None:
        for _ in range(self.rng.randrange(10, 40)):
            batch = self.batch()
            self.epoch += self.rng.random() < 0.05
            for log in logs:
                log.append_as_leader(batch, self.epoch, self.clock.now_ms(), Origin.RAFT_LEADER)
            self.clock.advance(self.rng.randrange(1, 2000))
            if self.rng.random() < 0.1:
                for log in logs:
                    log.roll()


def begins_of_epochs(log: Log) -> set[int]:
    """Return base offsets of the empty batches that mark the start of a leader epoch."""
    found, epoch = set(), 0
    for header, records in batches_of(log):
        if header.leader_epoch > epoch and not records:
            found.add(header.base_offset)
        epoch = header.leader_epoch
    return found


def shape(log: Log, but: Container[int] = ()) -> list[object]:
    """Return all that two cleaned logs must have in common, without the batches at these base
    offsets.

    It consists of segments, batches, records and aborted transactions.
    """
    found: list[object] = []
    for segment in log.segments:
        found.append((segment.base_offset, "aborted", segment.txn_index.entries()))
    for header, records in batches_of(log):
        if header.base_offset in but:
            continue
        found.append(
            (
                header.base_offset,
                header.last_offset,
                header.leader_epoch,
                bin(header.attributes),
                header.base_timestamp if header.has_delete_horizon else None,
                header.max_timestamp,
                (header.producer_id, header.producer_epoch, header.base_sequence),
                records,
            )
        )
    return found


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.soak] if n not in IN_CI else []) for n in SEEDS]
)
@pytest.mark.parametrize("place", PLACES)
async def test_kafkas_cleaner_leaves_what_ours_leaves(
    place: str, seed: int, tmp_path: Path, kafka: KafkasCleaner
) -> None:
    """An emptied batch stays if its next offset equals the high watermark, and else only as the
    last batch of its producer."""
    marks = random.Random(seed)
    high_watermark = 0
    clock = ManualClock(time.time_ns() // 1_000_000 - 3_600_000)
    author = Author(seed, clock)
    first_dirty = 0
    for _ in range(ROUNDS):
        ours, theirs = (
            Cleaning(
                RealFiles(),
                clock=clock,
                directory=str(tmp_path / name),
                segment_bytes=TOPIC["segment.bytes"],
                delete_retention_ms=HORIZON_MS,
            )
            for name in ("ours", "theirs")
        )
        author.write([ours.log, theirs.log])
        for each in (ours, theirs):
            each.roll()
        if place == "behind":
            beyond = author.batch()
            for each in (ours, theirs):
                each.log.append_as_leader(beyond, author.epoch, clock.now_ms(), Origin.RAFT_LEADER)
        if place == "inside":
            ends = [header.next_offset for header, _ in batches_of(ours.log)]
            high_watermark = marks.choice([end for end in ends if end > high_watermark])
        else:
            high_watermark = ours.log.log_end_offset
        ours.log.update_high_watermark(high_watermark)
        await theirs.manager.close()
        if await ours.clean():
            directory = tmp_path / "theirs" / "topic-0"
            # Kafka would also clean the segment that has the last stable offset (docs/gaps.md).
            end = ours.cleaner.checkpoints["topic", 0]
            assert end <= high_watermark
            their_end = kafka.clean(directory, first_dirty, end, high_watermark, clock.now_ms())
            first_dirty = end
            assert first_dirty == their_end
        theirs = Cleaning(RealFiles(), clock=clock, directory=str(tmp_path / "theirs"))
        # Kafka keeps such a batch only if it is its producer's last, or ends at the high watermark.
        begins = begins_of_epochs(ours.log) - begins_of_epochs(theirs.log)
        assert shape(ours.log, begins) == shape(theirs.log)
        for each in (ours, theirs):
            await each.manager.close()
        clock.advance(author.rng.choice([1_000, HORIZON_MS, 3 * HORIZON_MS]))


async def test_kafkas_tool_reads_a_cleaned_log_and_its_indexes(tmp_path: Path) -> None:
    clock = ManualClock(time.time_ns() // 1_000_000 - 3_600_000)
    author = Author(99, clock)
    ours = Cleaning(
        RealFiles(),
        clock=clock,
        directory=str(tmp_path),
        segment_bytes=20_000,
        index_interval_bytes=200,
        delete_retention_ms=HORIZON_MS,
    )
    for _ in range(6):
        author.write([ours.log])
        ours.log.update_high_watermark(ours.log.log_end_offset)
        await ours.roll_and_clean()
    expected = [r.offset for h, records in ours.batches() if not h.is_control for r in records]
    assert len(ours.log.segments) > 2
    await ours.manager.close()

    directory = tmp_path / "topic-0"
    printed = dump(directory, ".log")
    offsets = re.findall(r"^\| offset: (\d+) .*keySize: \d+ (?!.*endTxnMarker)", printed, re.M)
    assert [int(offset) for offset in offsets] == expected
    assert set(re.findall(r"isvalid: (\S+)", printed)) == {"true"}
    assert "deleteHorizonMs: OptionalLong[" in printed
    for suffix in (".index", ".timeindex"):
        output = dump(directory, suffix)
        assert "offset:" in output
        assert not re.search("[Mm]ismatch|not found|out of order", output), output
    assert "lastStableOffset" in dump(directory, ".txnindex")


def dump(directory: Path, suffix: str) -> str:
    """Return the output of Kafka's tool for the files with this suffix."""
    paths = sorted(str(path) for path in directory.iterdir() if path.suffix == suffix)
    done = run_kafka_tool(DUMP, "--print-data-log", "--files", ",".join(paths))
    assert done.returncode == 0, done.stderr
    return done.stdout
