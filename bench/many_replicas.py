"""Very many replicated partitions: `python -m bench.many_replicas [--kafka]`.

There are ten topics of 1,000 partitions with three replicas on three brokers, and
`min.insync.replicas=2`. The figures are the time until all have leaders; after a broker is killed,
the time until every new leader serves; after its restart, the time until every ISR is complete;
memory, idle CPU and open files. With --kafka Apache Kafka does the same afterwards.

`bench.at_scale` describes the observations. The order of replicas determines the next leaders, so
requests go to both survivors for their new partitions.

Prints a Markdown table; `--markdown FILE` writes it between the marks there.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence

from bench.at_scale import (
    BROKERS,
    Moved,
    Run,
    arguments,
    compare,
    create_topics,
    described,
    refusing_to_append,
    refusing_to_list,
    until_rest,
    until_served,
)
from bench.cluster_start import idle_core_percent
from bench.clusters import is_broker, pss_mb
from bench.nodes import resident_mb
from protocol.transport.client import Connection
from testkit.processes.ending import end_on_sigterm

VICTIM = 2
MARK = "many-replicas"


async def successors(connection: Connection, topics: Sequence[str]) -> Moved:
    """Return the partitions that the victim leads, by the next replica in the ISR."""
    found: Moved = {}
    for topic in topics:
        for one in await described(connection, topic):
            if one.leader_id == VICTIM:
                then = next(
                    node for node in one.replica_nodes if node != VICTIM and node in one.isr_nodes
                )
                found.setdefault(then, []).append((topic, one.partition_index))
    return found


class ManyReplicas(Run):
    """One cluster from its start to its stop."""

    async def measure(self, connections: dict[int, Connection]) -> None:
        await self._create(connections)
        self.note("create: busy afterwards, s", await until_rest(self.cluster))
        await asyncio.to_thread(self._at_rest, "")
        await self._kill(connections)
        begin = time.monotonic()
        starting = asyncio.ensure_future(asyncio.to_thread(self.cluster.restart, VICTIM))
        await self._until_whole(connections[1])
        self.note("start again: every ISR whole, s", time.monotonic() - begin)
        await starting
        await asyncio.to_thread(self._at_rest, " afterwards")

    async def _until_whole(self, connection: Connection) -> None:
        await self.until_each(connection, lambda one: len(one.isr_nodes) == BROKERS, "a whole ISR")

    async def _create(self, connections: dict[int, Connection]) -> None:
        begin = time.monotonic()
        await create_topics(connections[1], self.topics, self.options.partitions)
        self.note("create: answered, s", time.monotonic() - begin)
        for connection in connections.values():
            await self.until_each(connection, lambda one: one.leader_id >= 0, "a leader")
        self.note("create: all have leaders on every broker, s", time.monotonic() - begin)
        leaders: Moved = {}
        for topic in self.topics:
            for one in await described(connections[1], topic):
                leaders.setdefault(one.leader_id, []).append((topic, one.partition_index))
        await until_served(connections, leaders, refusing_to_list)
        self.note("create: every leader serves, s", time.monotonic() - begin)
        await self._until_whole(connections[1])

    async def _kill(self, connections: dict[int, Connection]) -> None:
        # On a busy machine a broker may have been fenced and unfenced since.
        await self._until_whole(connections[1])
        moved = await successors(connections[1], self.topics)
        self.note("partitions that move", sum(map(len, moved.values())))
        begin, decided, committed, served = await self.kill(connections, VICTIM, moved)
        self.note("kill: decided, s", decided)
        self.note("kill: committed, s", committed)
        self.note("kill: every new leader serves, s", served)
        self.note("from decided until every new leader serves, s", served - decided)
        await until_served(connections, moved, refusing_to_append)
        self.note("kill: each has acknowledged a record, s", time.monotonic() - begin)

    def _at_rest(self, when: str) -> None:
        pids = self.cluster.node_pids()
        brokers = [pid for node_id, pid in pids.items() if is_broker(node_id)]
        idle = idle_core_percent(pids.values(), self.options.idle)
        self.note(f"idle{when}: brokers, % of a core", sum(idle[pid] for pid in brokers))
        self.note(f"idle{when}: all nodes, % of a core", sum(idle.values()))
        self.note(f"brokers{when}: proportional set size, MiB", sum(map(pss_mb, brokers)))
        self.note(f"brokers{when}: resident, MiB", sum(map(resident_mb, brokers)))
        files = max(len(os.listdir(f"/proc/{pid}/fd")) for pid in brokers)
        self.note(f"open files{when}, the most of a broker", files)


def main(given: Sequence[str] | None = None) -> None:
    compare(ManyReplicas, arguments(__doc__, given), MARK)


if __name__ == "__main__":
    end_on_sigterm()
    main()
