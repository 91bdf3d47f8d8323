"""The group coordinator's answers compared with those of Apache Kafka 4.4.0, line by line.

`groups/kafka-4.4.0.txt` was recorded from one Kafka node. To record it again, start a node with
`group.initial.rebalance.delay.ms=0` and topics `a` (4 partitions) and `b` (2), and run `python -m
tests.golden.test_groups HOST:PORT > tests/golden/groups/kafka-4.4.0.txt`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from broker.apis import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from broker.coordinators.group.config import GroupConfig
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.transport.client import Connection
from protocol.transport.dispatch import HandlerTable
from protocol.transport.server import Server
from runtime.clock import SystemClock
from runtime.tasks import Supervisor
from testkit.memory.group_coordinator import PARTITIONS, FakeLog
from testkit.memory.group_shard import TOPICS
from tests.golden.groups.scenario import CLIENT, Scenario

RECORDED = Path(__file__).parent / "groups/kafka-4.4.0.txt"


async def transcript(host: str, port: int, prefix: str) -> list[str]:
    first = await Connection.connect(host, port, CLIENT)
    second = await Connection.connect(host, port, CLIENT)
    try:
        return await Scenario(first, second, prefix).run()
    finally:
        await first.close()
        await second.close()


async def test_the_transcript_is_that_of_kafka() -> None:
    supervisor, clock, log = Supervisor(), SystemClock(), FakeLog()
    log.epochs = dict.fromkeys(range(PARTITIONS), 1)
    coordinator = GroupCoordinator(
        config=GroupConfig(initial_rebalance_delay_ms=0),
        clock=clock,
        rng=random.Random(1),
        log=log,
        supervisor=supervisor,
        topics=TOPICS,
    )
    table = HandlerTable()
    table.serve_api_versions()
    for api in (join_group, sync_group, heartbeat, leave_group):
        api.register(table, coordinator)
    for admin_api in (list_groups, describe_groups, delete_groups):
        admin_api.register(table, coordinator)
    for offset_api in (offset_commit, offset_fetch, offset_delete):
        offset_api.register(table, coordinator, TOPICS)
    coordinator.start()
    server = Server(table, clock=clock, listener="PLAINTEXT", supervisor=supervisor)
    host, port = await server.start("127.0.0.1", 0)
    try:
        lines = await transcript(host, port, "p-")
    finally:
        coordinator.close()
        await server.close(0)
        await supervisor.close()
    assert lines == RECORDED.read_text().splitlines()


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    prefix = f"p{random.randrange(10**6)}-"
    print("\n".join(asyncio.run(transcript(host, int(port), prefix))))


if __name__ == "__main__":
    main()
