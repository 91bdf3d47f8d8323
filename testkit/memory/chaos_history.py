"""A chaos history of clients of one node in memory, without any fault."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from kraftbox.chaos.history import History
from kraftbox.chaos.ledger import Ledger
from kraftbox.chaos.run import history_clock
from kraftbox.chaos.workload import Load, Workload
from testkit.memory.node import running_node

RECORDS = 300


class CountedLedger(Ledger):
    """A ledger that calls `enough` once `RECORDS` records have been read."""

    enough: Callable[[], None]

    def polled(self, *arguments: Any, **options: Any) -> None:
        super().polled(*arguments, **options)
        if self.counts.read >= RECORDS:
            self.enough()


async def clean_history() -> History:
    """Return sends of three producers to three partitions, polls, and the final read."""
    async with running_node() as node:
        host, _, port = node.client_addresses()[0].rpartition(":")
        ledger = CountedLedger(history_clock())
        enough = asyncio.Event()
        ledger.enough = enough.set
        load = Load(partitions=3, replication_factor=1, min_insync_replicas=1, records_per_s=5_000)
        workload = Workload([(host, int(port))], ledger, load, random.Random(1))
        await workload.prepare()
        workload.start()
        await enough.wait()
        await workload.stop()
        await workload.read_all(10_000.0)
        await workload.close()
    return ledger.history
