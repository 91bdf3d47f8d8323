"""Very many simultaneous elections: `python -m bench.elections [--kafka]`.

There are ten topics of 1,000 partitions with three replicas and `min.insync.replicas=2`. One broker
leads all of them and is killed. The figures are the times until every election is decided,
committed, and every new leader serves. Then the next leader is killed, too, below min ISR, so that
all partitions keep it in their ELR. With --kafka Apache Kafka does the same afterwards. The
time starts when the active controller logs the fencing of the broker; the time before depends on
session timeouts.

Then Kraftbox alone loses all brokers at once, with the recovery manager enabled and the strategy
Balanced. Two brokers come back: what do 10,000 recoveries cost that wait for the third? When it
comes back, too, the figures are the time until the replicas with the longest logs lead, the longest
event-loop stall (a timer that is due every ten milliseconds), the growth of memory, and the
duration of a metrics scrape. With py-spy on the path the last round reports the causes of the
longest stalls.

`bench.at_scale` describes the observations. Prints a Markdown table; `--markdown
FILE` writes it between its marks there.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.at_scale import (
    BROKERS,
    METADATA_VERSION,
    REQUEST_MS,
    MetadataLog,
    Run,
    arguments,
    compare,
    connect,
    create_topics,
    refusing_to_list,
    until,
    until_rest,
    until_served,
)
from bench.cluster_start import idle_core_percent
from bench.clusters import Kraftbox, is_broker
from bench.nodes import resident_mb
from bench.profiled import has_sampler
from bench.stalls import stalls_of
from protocol.messages.metadata import MetadataRequest
from protocol.transport.client import Connection
from testkit.processes.ending import end_on_sigterm

LEADER, SECOND, THIRD = 1, 2, 3
MARK = "elections"
IDLE = "idle: controller, % of a core"
WAITING = "waiting for the last broker: controller, % of a core"
SAMPLE_S = 0.05
STALLS = {
    "longest stall": re.compile(r"^kraftbox_loop_lag_worst_seconds (\S+)$", re.MULTILINE),
    "of it at most its own work": re.compile(
        r"^kraftbox_loop_lag_worst_cpu_seconds (\S+)$", re.MULTILINE
    ),
}
MANAGED = {
    "unclean.recovery.manager.enabled": "true",
    "kraftbox.loop.lag.interval.ms": "10",
}


class Elections(Run):
    """One cluster from its start to its stop."""

    async def measure(self, connections: dict[int, Connection]) -> None:
        connection = connections[THIRD]
        replicas = (LEADER, SECOND, THIRD)
        await create_topics(connections[LEADER], self.topics, self.options.partitions, replicas)
        await self._until_isr(connection, LEADER, 3)
        await until_rest(self.cluster)
        await self._lose(connections, LEADER, SECOND, "from the ISR")
        await self._until_isr(connection, SECOND, 2)
        await until_rest(self.cluster)
        await self._lose(connections, SECOND, THIRD, "to the last in the ISR")
        if isinstance(self.cluster, Kraftbox):
            await self._until_isr(connection, THIRD, 1)
            await self._lose_all(self.cluster, connections)

    @property
    def _all(self) -> list[tuple[str, int]]:
        return [(topic, n) for topic in self.topics for n in range(self.options.partitions)]

    async def _until_isr(self, connection: Connection, leader: int, size: int) -> None:
        await self.until_each(
            connection,
            lambda one: one.leader_id == leader and len(one.isr_nodes) == size,
            f"an ISR of {size}",
        )

    async def _lose(
        self, connections: dict[int, Connection], victim: int, successor: int, what: str
    ) -> None:
        """Kill the leader of all partitions and record the figures."""
        moved = {successor: self._all}
        begin, decided, committed, served = await self.kill(connections, victim, moved)
        fenced = self.cluster.fenced_at(victim) - time.time() + time.monotonic() - begin
        self.note(f"{what}: from fencing until decided, s", decided - fenced)
        self.note(f"{what}: from fencing until committed, s", committed - fenced)
        self.note(f"{what}: from fencing until all serve, s", served - fenced)

    # --- unclean recovery ---------------------------------------------------------------------

    async def _lose_all(self, cluster: Kraftbox, connections: dict[int, Connection]) -> None:
        """Kill all brokers uncleanly, the leader last.

        A broker that comes back before it may lack records.
        """
        for node_id in (LEADER, SECOND):
            await asyncio.to_thread(cluster.restart, node_id)
        await self._until_isr(connections[THIRD], THIRD, BROKERS)
        controllers = [p for n, p in cluster.node_pids().items() if not is_broker(n)]
        await until_rest(cluster)
        await self._note_idle(IDLE, controllers)
        for node_id in (LEADER, SECOND):
            cluster.kill(node_id)
        await self._until_isr(connections[THIRD], THIRD, 1)
        await connections.pop(THIRD).close()
        log = await MetadataLog.find(cluster)
        before, _ = await log.ends()
        cluster.kill(THIRD)
        await log.grown(len(self._all), before, time.monotonic())
        await log.close()
        for node_id in (LEADER, SECOND):
            await asyncio.to_thread(cluster.restart, node_id)
            connections[node_id] = await connect(self.cluster, node_id)
        await until_rest(cluster)
        await self._note_idle(WAITING, controllers)
        self._figures.note_difference(
            cluster.name, "10,000 that wait: controller, % of a core more than idle", WAITING, IDLE
        )
        with self._sampled(cluster):
            await self._recover(cluster, connections)

    @contextmanager
    def _sampled(self, cluster: Kraftbox) -> Iterator[None]:
        """Print the longest stalls, if a sampler is available."""
        if not (self.is_last and has_sampler()):
            print("a last round with py-spy on the path shows the causes of the longest stalls")
            yield
            return
        pids = {_name(node_id): pid for node_id, pid in cluster.node_pids().items()}
        with TemporaryDirectory() as place:
            with stalls_of(pids, Path(place)) as found:
                yield
            for name, stall in sorted(found.items()):
                print(f"{cluster.name}: Balanced: {name}: longest stall, sampled: {stall}")

    async def _note_idle(self, row: str, pids: Iterable[int]) -> None:
        found = await asyncio.to_thread(idle_core_percent, pids, self.options.idle)
        self.note(row, sum(found.values()))

    async def _recover(self, cluster: Kraftbox, connections: dict[int, Connection]) -> None:
        """Start the last broker and record the recovery."""
        pids = cluster.node_pids()
        for node_id in pids:
            await asyncio.to_thread(cluster.scrape, node_id)
        begin = time.monotonic()
        for node_id in pids:
            await asyncio.to_thread(cluster.scrape, node_id)
        self.note(
            "waiting for the last broker: a scrape of each node, ms",
            1e3 * (time.monotonic() - begin),
        )
        memory = Memory(pids)
        starting = asyncio.ensure_future(asyncio.to_thread(cluster.restart, THIRD))
        connection = connections[LEADER]
        await until(lambda: _knows_all(connection), 0.01, "all brokers unfenced")
        begin = time.monotonic()
        sampling = asyncio.ensure_future(memory.sample())
        await self.until_each(connection, lambda one: one.leader_id >= 0, "a leader")
        led_s = time.monotonic() - begin
        # All logs have the same length, so the first replica of each assignment is elected.
        await until_served(connections, {LEADER: self._all}, refusing_to_list)
        served = time.monotonic() - begin
        sampling.cancel()
        await starting
        self.note("Balanced: from the last broker unfenced until all are led, s", led_s)
        self.note("Balanced: from the last broker unfenced until all serve, s", served)
        for kind, is_it in KINDS.items():
            of_kind = [node_id for node_id in pids if is_it(node_id)]
            texts = [await asyncio.to_thread(cluster.scrape, node_id) for node_id in of_kind]
            for stall, pattern in STALLS.items():
                worst_s = max(float(pattern.findall(text)[0]) for text in texts)
                self.note(f"Balanced: {kind}: {stall}, ms", worst_s * 1e3)
            growth = max(map(memory.growth_mb, of_kind))
            self.note(f"Balanced: {kind}: most memory more, MiB", growth)
        text = await asyncio.to_thread(cluster.scrape, THIRD)
        last_s = float(STALLS["longest stall"].findall(text)[0])
        self.note("Balanced: the last broker, from its start on: longest stall, ms", last_s * 1e3)


def _name(node_id: int) -> str:
    return f"broker {node_id}" if is_broker(node_id) else f"controller {node_id}"


KINDS: Mapping[str, Callable[[int], bool]] = {
    "controller": lambda node_id: not is_broker(node_id),
    "broker": is_broker,
}


class Memory:
    """The growth of the resident memory of these processes."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self._first = self._now()
        self._most = dict(self._first)

    def _now(self) -> dict[int, float]:
        return {node_id: resident_mb(pid) for node_id, pid in self._pids.items()}

    async def sample(self) -> None:
        """Sample the memory until cancelled."""
        while True:
            for node_id, now in self._now().items():
                self._most[node_id] = max(now, self._most[node_id])
            await asyncio.sleep(SAMPLE_S)

    def growth_mb(self, node_id: int) -> float:
        return self._most[node_id] - self._first[node_id]


async def _knows_all(connection: Connection) -> bool:
    """Return whether every broker is unfenced: Metadata lists only those."""
    answer = await connection.request(MetadataRequest(topics=[]), REQUEST_MS, METADATA_VERSION)
    return len(answer.brokers) == BROKERS


def main(given: Sequence[str] | None = None) -> None:
    compare(Elections, arguments(__doc__, given), MARK, MANAGED)


if __name__ == "__main__":
    end_on_sigterm()
    main()
