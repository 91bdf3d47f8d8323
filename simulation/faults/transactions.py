"""Transactions in a tiered topic of their own, across local disk and tier (S7).

No handler accepts transactional batches yet. So they are appended inside the leader, as its log
would have them: several transactions at a time, which end with a marker, two of three aborted.
Other faults happen in the meantime. In the end a reader without isolation and several with
read_committed read the log, most of which is then in the tier alone.

Clients and operators do not use these topics: their records are in no ledger.
"""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.replication.partition.partition import Partition
from protocol.errors import ApiError
from protocol.messages.fetch import FetchRequest
from simulation.clients.client import Unknown, fail_on
from simulation.faults.kind import Args, OperatorKind
from simulation.faults.operators.topics import make
from simulation.judges.transactions import Answer, Truth, marker, written
from simulation.operator import TRANSACTIONS
from simulation.shapes.shape import FACTOR_MAX, TIERED
from simulation.world.invariants import Violation
from simulation.world.life import CURRENT_LIFE
from simulation.world.network import CURRENT_HOST
from storage.log.errors import LogFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from simulation.event import Event
    from simulation.run_world import RunWorld
    from simulation.shapes.shape import Shape
    from simulation.world.cluster import Machine, NodeLife

STEPS_MIN, STEPS_MAX = 25, 60
FOR_MS_MIN, FOR_MS_MAX = 3_000, 15_000
OPEN_MAX = 3
FIRST_ID = 1 << 40
"""Producer ids far above those that controllers give out."""
COMMITTED = 1 / 3
READERS = 4
FETCH_BYTES, WHOLE_BYTES = 900, 1 << 20
TIER_S = 15.0
"""Seconds to wait until most of the log is in the tier alone."""
END_S = 90.0
"""Seconds within which the transactions end and are read, once the event is over."""
AGAIN_S = 0.2
LOOK_S = 0.02


def _draw(rng: Random, shape: Shape) -> tuple[str, Args]:
    factor = min(FACTOR_MAX, len(shape.brokers))
    configs = {
        TIERED: "true",
        "retention.ms": "-1",
        "internal.segment.bytes": rng.choice(("700", "1500")),
        "local.retention.bytes": "1",
        "min.insync.replicas": str(min(2, factor)),
    }
    args: Args = {
        "partitions": 1,
        "factor": factor,
        "configs": configs,
        "steps": rng.randint(STEPS_MIN, STEPS_MAX),
        "for_ms": rng.randint(FOR_MS_MIN, FOR_MS_MAX),
    }
    return f"{TRANSACTIONS}{rng.randrange(10**6)}", args


class _Moved(Exception):
    """There is no leader, or it has changed."""


@dataclass
class _Log:
    """The log of one topic, as this event writes and reads it."""

    world: RunWorld
    topic: str
    open: dict[int, int] = field(default_factory=dict)
    """By producer id: the sequence number of its last batch."""
    producer_id: int = FIRST_ID
    end: int = 0
    """The offset after the last replicated batch."""

    def replicas(self) -> Iterator[tuple[Machine, NodeLife, Partition]]:
        """Yield the replicas of running brokers."""
        for machine in self.world.brokers:
            life = machine.life
            broker = None if life is None or life.node is None else life.node.broker
            if life is None or not life.alive or broker is None:
                continue
            replica = broker.replicas.get(self.topic, 0)
            if replica is not None:
                yield machine, life, replica

    def leader(self) -> tuple[Machine, NodeLife, Partition]:
        """Return the leader of the newest epoch. Raises: _Moved without one."""
        found = [one for one in self.replicas() if one[2].is_leader]
        if not found:
            raise _Moved
        return max(found, key=lambda one: one[2].leader_epoch)

    # Writing ---------------------------------------------------------------------------------

    async def step(self, rng: Random) -> None:
        """Begin, continue or end a transaction, or write a plain batch."""
        which = rng.choice(("begin", "go on", "end", "go on"))
        if which == "begin" and len(self.open) < OPEN_MAX:
            self.producer_id += 1
            await self._write(self.producer_id)
        elif self.open and which == "end":
            await self._finish(rng.choice(sorted(self.open)), rng)
        elif self.open:
            await self._write(rng.choice(sorted(self.open)))

    async def finish_all(self, rng: Random) -> None:
        for producer_id in sorted(self.open):
            await self._finish(producer_id, rng)

    async def _write(self, producer_id: int) -> None:
        number = self.open[producer_id] = self.open.get(producer_id, -1) + 1
        now_ms = self.world.brokers[0].clock.now_ms()
        await self._append(written(producer_id, number, now_ms), producer_id, number)

    async def _finish(self, producer_id: int, rng: Random) -> None:
        now_ms = self.world.brokers[0].clock.now_ms()
        ended = marker(producer_id, now_ms, commit=rng.random() < COMMITTED)
        await self._append(ended, producer_id, None)
        del self.open[producer_id]

    async def _append(self, batch: bytes, producer_id: int, number: int | None) -> None:
        """Append until a leader has it replicated. A marker may be there twice: the second one
        ends nothing."""
        while True:
            try:
                self.end = await self._append_once(batch, producer_id, number) + 1
                return
            except (_Moved, ApiError, LogFailed):
                await asyncio.sleep(AGAIN_S)

    async def _append_once(self, batch: bytes, producer_id: int, number: int | None) -> int:
        """Append, unless the leader has it already. Returns: its last offset."""
        machine, life, replica = self.leader()
        epoch = replica.leader_epoch
        broker = life.node.broker if life.node is not None else None
        assert broker is not None

        async def inside() -> int:
            if not replica.is_leader:
                raise _Moved
            known = replica.log.producers.get(producer_id)
            if number is not None and known is not None and known.last_sequence == number:
                return known.last_offset
            return broker.replicas.append_own(
                replica, batch, now_ms=machine.clock.now_ms()
            ).last_offset

        context = contextvars.copy_context()
        context.run(CURRENT_HOST.set, machine.host)
        context.run(CURRENT_LIFE.set, life)
        last: int = await self.world.loop.create_task(inside(), context=context)
        while replica.log.high_watermark <= last:
            if not life.alive or not replica.is_leader or replica.leader_epoch != epoch:
                raise _Moved
            await asyncio.sleep(LOOK_S)
        if not life.alive or not replica.is_leader or replica.leader_epoch != epoch:
            raise _Moved  # another leader's records may be there by now
        return last

    # Reading ---------------------------------------------------------------------------------

    async def in_tier(self) -> None:
        """Wait until most of the log is in the tier alone, but not for long."""
        ends_s = self.world.loop.time() + TIER_S
        while self.world.loop.time() < ends_s:
            logs = [one.log for _, _, one in self.replicas()]
            if logs and all(2 * log.local_log_start_offset > self.end for log in logs):
                return
            await asyncio.sleep(AGAIN_S)

    async def read(self, rng: Random) -> int:
        """Read all, and judge readers of committed records (S7).

        Returns: the number of aborted transactions that no disk has.
        Raises: Violation.
        """
        at, parts = 0, []
        while at < self.end:
            answer = await self._fetch(at, WHOLE_BYTES, committed=False)
            parts.append(answer.data)
            at = answer.next_offset
        truth = Truth(parts)
        begins = [0, *(rng.randrange(max(truth.stable, 1)) for _ in range(READERS - 1))]
        for begin in begins:
            at = begin
            while at < truth.stable:
                at = truth.judge(at, await self._fetch(at, FETCH_BYTES, committed=True))
        local = min((one.log.local_log_start_offset for *_, one in self.replicas()), default=0)
        return sum(one.marker < local for one in truth.aborted)

    async def _fetch(self, offset: int, most: int, *, committed: bool) -> Answer:
        while True:
            try:
                return await self._fetch_once(offset, most, committed=committed)
            except (_Moved, Unknown, ApiError):
                await asyncio.sleep(AGAIN_S)

    async def _fetch_once(self, offset: int, most: int, *, committed: bool) -> Answer:
        machine, _, replica = self.leader()
        wish = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=most
        )
        topic = FetchRequest.FetchTopic(
            topic=self.topic, topic_id=replica.topic_id, partitions=[wish]
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=WHOLE_BYTES,
            isolation_level=int(committed),
            topics=[topic],
        )
        load = self.world.load
        assert load is not None
        answer = await load.client._once(machine.node_id, request)
        fail_on(answer.error_code)
        got = answer.responses[0].partitions[0]
        fail_on(got.error_code)
        if not got.records:
            raise Unknown("nothing came")
        assert not isinstance(got.records, list)
        named = got.aborted_transactions or []
        return Answer(bytes(got.records), [(one.producer_id, one.first_offset) for one in named])


async def _transact(world: RunWorld, event: Event, rng: Random) -> bool:
    operator, args = world.operator, event.args
    ends_s = world.loop.time() + event.for_ms / 1000
    if not await make(operator, event.target, args):
        return False
    log = _Log(world, event.target)
    try:
        async with asyncio.timeout(ends_s + END_S - world.loop.time()):
            for _ in range(args["steps"]):
                if world.loop.time() >= ends_s:
                    break
                await log.step(rng)
                await asyncio.sleep(event.for_ms / args["steps"] / 1000)
            await log.finish_all(rng)
            await log.in_tier()
            aborted = await log.read(rng)
    except TimeoutError:
        if event.target not in world.promises.given_up and _has_leader(log):
            text = f"P26: the transactions of {event.target} cannot end or be read"
            raise Violation(f"{text}, {END_S:g} s after its time") from None
        # The partition waits for an operator's election; its open transactions would stay.
        await operator.remove(event.target)
        return False
    return aborted > 0


def _has_leader(log: _Log) -> bool:
    try:
        log.leader()
    except _Moved:
        return False
    return True


KINDS = {
    "transactions": OperatorKind(
        "transactions",
        "transactions are written to a tiered topic, and read with isolation in the end",
        _draw,
        _transact,
        lambda shape: shape.has_tier,
    ),
}
