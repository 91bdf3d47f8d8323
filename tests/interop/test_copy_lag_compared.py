"""Segments that Apache Kafka's tier and ours select for copies, on the same logs (KIP-1241).

Random schedules of appends, rolls, leader changes, changed lags and retentions, and jumps of the
clock. After each step Kafka's own copy task selects from a copy of our log's directory.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.tiering.led import ClosedSegments
from protocol.batch.records import Record, build_batch
from runtime.clock import ManualClock
from storage.files import RealFiles
from storage.log.config import LogConfig
from storage.log.log import Log
from storage.log.producers import Origin
from storage.tiered.cache import SegmentCache
from storage.tiered.copying import CopyLag, Delay, plan_copy_steps
from storage.tiered.lineage import Lineage
from testkit.kafka.jars import ORACLE, java_program, kafka_libs
from testkit.memory.cleaning import Cleaning
from testkit.memory.logs import T0
from testkit.records.tier import PARTITION

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]

SOURCE = Path(__file__).parent / "java" / "CopyCandidates.java"
IN_CI = 20
SEEDS = range(1, 201)
STEPS = 8
DAY_MS = 86_400_000


class KafkasCopyTask:
    """Apache Kafka's copy task in a persistent JVM."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def select(
        self, directory: Path, start: int, stable: int, now_ms: int, config: LogConfig
    ) -> list[int]:
        """Return the base offsets of the segments to copy."""
        assert self._process.stdin is not None and self._process.stdout is not None
        settings = {
            "remote.storage.enable": "true",
            "segment.bytes": 1 << 20,
            "retention.ms": config.retention_ms,
            "retention.bytes": config.retention_bytes,
            "local.retention.ms": config.local_retention_ms,
            "local.retention.bytes": config.local_retention_bytes,
            "remote.copy.lag.ms": config.remote_copy_lag_ms,
            "remote.copy.lag.bytes": config.remote_copy_lag_bytes,
        }
        given = " ".join(f"{key}={value}" for key, value in settings.items())
        self._process.stdin.write(f"{directory} {start} {stable} {now_ms} {given}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("candidates"):
                return [int(one) for one in line.split()[1:]]
        raise AssertionError("Kafka's copy task ended")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.stdout.close()
        self._process.wait()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasCopyTask]:
    task = KafkasCopyTask(java_program(SOURCE, tmp_path_factory.mktemp("classes"), ORACLE))
    yield task
    task.close()


def ours(log: Log, start: int, now_ms: int, config: LogConfig) -> list[int]:
    """Return the base offsets that the leader's plan has, as `Copier` makes it."""
    segments = list(log.segments)
    planning = plan_copy_steps(
        SegmentCache(PARTITION),
        Lineage(log.epochs.entries, log.log_end_offset),
        ClosedSegments(segments),
        log_start_offset=start,
        last_stable_offset=log.last_stable_offset,
        delay=Delay(
            CopyLag(config.effective_copy_lag_ms, config.effective_copy_lag_bytes),
            now_ms,
            segments[-1].size_bytes,
            lambda place: segments[place].largest_timestamp_ms(),
        ),
    )
    while True:
        try:
            next(planning)
        except StopIteration as end:
            return [one.segment.base_offset for one in end.value.segments]


def drawn(rng: random.Random, config: LogConfig) -> LogConfig:
    """Return other limits; a positive lag is at most the local retention, as Kafka requires."""
    local_ms = rng.choice([-2, -1, 500, 5_000])
    local_bytes = rng.choice([-2, -1, 400, 4_000])
    config = replace(
        config,
        retention_ms=rng.choice([-1, 5_000, DAY_MS]),
        retention_bytes=rng.choice([-1, 4_000, 1 << 20]),
        local_retention_ms=local_ms,
        local_retention_bytes=local_bytes,
    )

    def lag(limit: int, *values: int) -> int:
        return rng.choice([-1, 0, *(one for one in values if limit < 0 or one <= limit)])

    return replace(
        config,
        remote_copy_lag_ms=lag(config.effective_local_retention_ms, 1, 300, 3_000),
        remote_copy_lag_bytes=lag(config.effective_local_retention_bytes, 1, 300, 3_000),
    )


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.soak] if n > IN_CI else []) for n in SEEDS]
)
async def test_copy_plan_selects_the_segments_that_kafka_selects(
    seed: int, tmp_path: Path, kafka: KafkasCopyTask
) -> None:
    rng = random.Random(seed)
    clock = ManualClock(T0)
    config = drawn(rng, LogConfig())
    copied_to = epoch = 0
    for step in range(STEPS):
        room = Cleaning(
            RealFiles(), clock=clock, directory=str(tmp_path / "data"), cleanup_policy="delete"
        )
        log = room.log
        for _ in range(rng.randrange(1, 8)):
            records = [
                Record(timestamp=clock.now_ms() + rng.randrange(-2_000, 2_000), value=bytes(size))
                for size in rng.choices([0, 50, 500], k=rng.randrange(1, 4))
            ]
            log.append_as_leader(build_batch(records), epoch, clock.now_ms(), Origin.RAFT_LEADER)
            clock.advance(rng.randrange(1, 1_000))
            if rng.random() < 0.5:
                log.roll()
        log.update_high_watermark(log.log_end_offset)
        if rng.random() < 0.5:
            config = drawn(rng, config)
        if rng.random() < 0.2:
            epoch += 1  # another leader, which finds the copied end in the tier
        now_ms = clock.now_ms() + rng.choice([0, 0, -3_000, 3_000, -DAY_MS, DAY_MS])
        found = ours(log, copied_to, now_ms, config)
        stable, ends = log.last_stable_offset, [one.base_offset for one in log.segments][1:]
        await room.manager.close()
        place = tmp_path / f"theirs-{step}" / "topic-0"
        shutil.copytree(tmp_path / "data" / "topic-0", place)
        assert found == kafka.select(place, copied_to, stable, now_ms, config), (step, config)
        if found:
            count = rng.randrange(1, len(found) + 1)
            copied_to = min(end for end in ends if end > found[count - 1])
