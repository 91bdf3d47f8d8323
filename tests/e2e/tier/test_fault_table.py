"""F33 on a real node, as a table: each fault of a store with each operation of a broker there.

Five topics for the five operations: a segment is copied, read, searched, deleted, and its manifest
is written and read. All are written and read all the time, under a ledger; a second client reads
from the tier's start while the fault is on. It stays until it has hit each operation several times,
and for several intervals of the tasks, with their retries. Then:

- No acknowledged record is lost, doubled or out of order (H1-H12).
- The log between log start and high watermark has the bytes that were sent.
- Producing was not delayed (S9).
- The store has exactly the objects of finished segments (S3).

A fault of a minute differs from one of seconds only in the growth of the retry backoff. The backoff
is a few tenths of a second here, so that the short fault reaches its maximum, too; `soak` runs the
minute all the same.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kraftbox.chaos.history import SendOutcome
from kraftbox.chaos.librdkafka import ConfluentClients
from testkit.processes.nodes import KraftboxNode
from testkit.processes.object_servers import Servers
from testkit.processes.store_proxy import Operation, StoreFault, StoreProxy
from testkit.processes.waiting import WAIT_S
from tests.e2e.tier.ledgered import SEGMENT_BYTES, VALUE_BYTES, LedgeredTopic, until
from tests.e2e.tier.node import TASK_MS, is_clean, segments, store_of, tier, tier_settings

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

OPERATIONS = [one for one in Operation if one is not Operation.OTHER]
HITS = 3
"""A fault hits each operation at least this often."""
FAULT_S = 10 * TASK_MS / 1000
LONG_S = 60.0
WARM_RECORDS = (HITS + 1) * SEGMENT_BYTES // VALUE_BYTES
"""Records that are only in the tier when the fault begins.

These are more than `HITS` segments hold, since each deleted segment is one request.
"""
CLEAN_S = WAIT_S
"""Limit for a clean store, on a busy machine too; the time it took is printed."""
GAP_S_MAX = 10.0
"""Limit without an acknowledgement."""
SLOW_S = 1.0
BELIEVES = "moto"
"""A server that does not compare received data with its checksum; versitygw does, like S3.

It keeps data that was truncated on the way, and the broker has to find out by itself.
"""


class LateReader(ConfluentClients):
    """librdkafka's consumer alone, from the start on."""

    def _send(self) -> None:
        self._stop_sending.wait()


class Cell(LedgeredTopic):
    """One topic, with the broker's operation on it while the fault is on."""

    def __init__(self, node: KraftboxNode, operation: Operation) -> None:
        super().__init__(node.bootstrap, f"to-{operation.value}")
        self.node = node
        self.operation = operation
        self.late: LateReader | None = None

    @property
    def is_warm(self) -> bool:
        """Return whether enough records are only in the tier."""
        local = segments(self.node, self.topic)
        return len(local) > 0 and local[0] >= WARM_RECORDS

    def begin_reading_from_the_start(self) -> None:
        if self.operation is not Operation.DELETE:
            self.late = LateReader(self.ledger, self.node.bootstrap, self.topic, 1)
            self.late.__enter__()

    def begin_deleting(self) -> None:
        """Begin to delete the cold records except for the last ones."""
        if self.operation is Operation.DELETE:
            self.delete_records(segments(self.node, self.topic)[0] - 20)

    def late_at(self) -> int:
        """Return the last offset that the consumer from the start has read."""
        reader = max(p.process for p in self.ledger.history.processes if p.role == "consumer")
        polls = [poll for poll in self.ledger.history.polls if poll.process == reader]
        return polls[-1].offsets[-1] if polls else -1

    def late_has(self, offset: int) -> bool:
        return self.late is None or self.late_at() >= offset

    def acknowledged_to(self) -> int:
        return max(one.offset for one in self.ledger.history.sends)

    async def stop(self) -> None:
        await self.workload.stop()
        if self.late is not None:
            await asyncio.to_thread(self.late.stop)
            assert self.late.fatal == []

    def latencies_ms(self, begin_us: int, end_us: int) -> list[float]:
        """Return latencies of sends that began in between, in ms."""
        return [
            (one.end_us - one.begin_us) / 1000
            for one in self.ledger.history.sends
            if begin_us <= one.begin_us < end_us and one.outcome is SendOutcome.OK
        ]


class Latency(NamedTuple):
    """Latencies of acknowledgements."""

    median_ms: float
    p99_ms: float

    @classmethod
    def of(cls, cells: list[Cell], spans: list[tuple[int, int]]) -> Latency:
        found = [
            each
            for cell, span in zip(cells, spans, strict=True)
            for each in cell.latencies_ms(*span)
        ]
        return cls(statistics.median(found), statistics.quantiles(found, n=100)[98])


class Row:
    """One fault: a node, its five topics, and the proxy in front of its store."""

    def __init__(self, node: KraftboxNode, proxy: StoreProxy, fault: StoreFault) -> None:
        self.node = node
        self.proxy = proxy
        self.fault = fault
        self.cells = [Cell(node, operation) for operation in OPERATIONS]

    def now_us(self) -> list[int]:
        return [cell.ledger.now_us() for cell in self.cells]

    async def go(self, fault_s: float) -> None:
        began = await self.warm_up()
        failing = self.now_us()
        for cell in self.cells:
            self.proxy.fail(self.fault, cell.operation, cell.topic_id)
        await asyncio.to_thread(self.work_on)
        least = time.monotonic() + fault_s
        await until(lambda: f"hits: {self.hits()}", lambda: min(self.hits().values()) >= HITS)
        await asyncio.sleep(least - time.monotonic())
        healed = self.now_us()
        hits = self.hits()
        self.proxy.heal()
        clean_s = await self.recover(failing)
        for cell in self.cells:
            await cell.read_back()
            cell.judged()
        before = Latency.of(self.cells, list(zip(began, failing, strict=True)))
        during = Latency.of(self.cells, list(zip(failing, healed, strict=True)))
        columns = "".join(f" {one.value} {hits[one]:>4}" for one in OPERATIONS)
        print(
            f"\n| {self.fault.value:<19} |{columns} | clean after {clean_s:.1f} s "
            f"| p50 {before.median_ms:.1f} -> {during.median_ms:.1f} ms "
            f"| p99 {before.p99_ms:.1f} -> {during.p99_ms:.1f} ms |"
        )
        assert during.median_ms < 5 * before.median_ms + 100

    async def warm_up(self) -> list[int]:
        for cell in self.cells:
            await cell.workload.prepare()
            cell.workload.start()
        await until(
            lambda: f"all are in the tier: {[segments(self.node, c.topic) for c in self.cells]}",
            lambda: all(c.is_warm for c in self.cells),
        )
        began = self.now_us()
        await asyncio.sleep(1.0)
        return began

    def work_on(self) -> None:
        for cell in self.cells:
            cell.begin_reading_from_the_start()
            cell.ledger.gaps.begin(cell.ledger.now_us())
            cell.begin_deleting()

    def hits(self) -> dict[Operation, int]:
        return {c.operation: self.proxy.hits(c.operation, c.topic_id) for c in self.cells}

    async def recover(self, failing: list[int]) -> float:
        """Wait until the state is correct, and return the seconds that took."""
        healed_s = time.monotonic()
        for cell, begin_us in zip(self.cells, failing, strict=True):
            cell.ledger.fault(self.fault.value, [1], begin_us, cell.operation.value)
        ends = [cell.acknowledged_to() for cell in self.cells]
        await until(
            lambda: f"who reads from the start is at {ends}: {[c.late_at() for c in self.cells]}",
            lambda: all(c.late_has(end) for c, end in zip(self.cells, ends, strict=True)),
        )
        for cell in self.cells:
            assert cell.ledger.gaps.until(cell.ledger.now_us()) < GAP_S_MAX * 1e6
            await cell.stop()
        stopped_s = time.monotonic()
        await asyncio.sleep(2 * TASK_MS / 1000)
        while True:
            told = await asyncio.to_thread(tier, self.node, "verify")
            if is_clean(told):
                return time.monotonic() - healed_s
            assert time.monotonic() - stopped_s < CLEAN_S, told

    async def close(self) -> None:
        for cell in self.cells:
            await cell.workload.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KraftboxNode]:
    made = KraftboxNode(tmp_path / "node")
    yield made
    made.kill()


def play(node: KraftboxNode, servers: Servers, fault: StoreFault, fault_s: float) -> None:
    store = store_of(servers, BELIEVES if fault is StoreFault.TRUNCATED else "versitygw")
    with StoreProxy(store["endpoint"], slow_s=SLOW_S) as proxy:
        given = {**store, "endpoint": proxy.endpoint, "retries": "1", "timeout.ms": "5000"}
        node.settings = {
            **tier_settings(given),
            # One segment's indexes are cached, so that each read has to fetch them.
            "remote.log.index.file.cache.total.size.bytes": "1",
        }
        node.start()

        async def story() -> None:
            row = Row(node, proxy, fault)
            try:
                await row.go(fault_s)
            finally:
                await row.close()

        asyncio.run(story())


ALIKE = (StoreFault.ERROR, StoreFault.SLOW)
"""To a broker a 5xx is like no answer, and a late answer is an answer, which `soak` has to show."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(one, marks=[pytest.mark.core] if one is StoreFault.RESET else [], id=one.name)
        for one in StoreFault
        if one not in ALIKE
    ],
)
def test_a_fault_of_the_store_breaks_no_promise(
    node: KraftboxNode, servers: Servers, fault: StoreFault
) -> None:
    play(node, servers, fault, FAULT_S)


@pytest.mark.soak
@pytest.mark.parametrize("fault", StoreFault, ids=lambda fault: fault.name)
def test_a_fault_of_a_minute_breaks_no_promise(
    node: KraftboxNode, servers: Servers, fault: StoreFault
) -> None:
    play(node, servers, fault, LONG_S)
