"""Transactions over the seam of a tiered log (S7, KAFKA-17801).

No handler accepts them yet, so they are appended to the leader's log itself, while leaders fail and
the store misbehaves.
"""

from __future__ import annotations

import pytest

from protocol.messages.fetch import FetchRequest
from simulation.clients.client import Unknown, fail_on
from simulation.judges.transactions import Answer, Truth, marker, written
from simulation.world.cluster import End
from simulation.world.invariants import Violation, require
from storage.objects import Weather
from testkit.planting import Bug, Patch
from tests.sim.tier_cluster import TierCluster

pytestmark = pytest.mark.sim

SETTINGS = {
    "log.retention.check.interval.ms": "300",
    "remote.log.manager.task.interval.ms": "300",
    "remote.log.manager.task.retry.backoff.ms": "100",
    "remote.log.manager.task.retry.backoff.max.ms": "500",
}
SMALL = {"internal.segment.bytes": "700", "local.retention.bytes": "1"}
STEPS = 45
DISTURBED = (15, 30)
"""Steps at which the leader fails."""
OPEN_MAX = 3


class Transactor:
    """A producer that begins, continues and ends several transactions at a time."""

    def __init__(self, world: TierCluster) -> None:
        self._world = world
        self._open: dict[int, int] = {}
        self._next = 1_000

    async def step(self) -> None:
        chance = self._world.chance
        which = chance.choice(("plain", "begin", "go on", "end"))
        if which == "plain" or (which != "begin" and not self._open):
            await self._world.produce(1)
        elif which == "begin" and len(self._open) < OPEN_MAX:
            self._next += 1
            await self._write(self._next)
        elif which == "end":
            await self.end(chance.choice(list(self._open)))
        else:
            await self._write(chance.choice(list(self._open)))

    async def end(self, producer_id: int) -> None:
        """Append a marker, which aborts the transaction in two of three cases."""
        commit = self._world.chance.random() >= 0.67
        del self._open[producer_id]
        await self._append(marker(producer_id, self._now_ms(), commit=commit))

    async def end_all(self) -> None:
        for producer_id in list(self._open):
            await self.end(producer_id)

    async def _write(self, producer_id: int) -> None:
        number = self._open[producer_id] = self._open.get(producer_id, -1) + 1
        await self._append(written(producer_id, number, self._now_ms()))

    def _now_ms(self) -> int:
        return self._world.machines[0].clock.now_ms()

    async def _append(self, batch: bytes) -> None:
        """Append until a leader has the batch replicated; it may be there twice, or in a log that
        lost."""

        async def once() -> None:
            machine = await self._world.leader()
            replica = self._world.replica(machine)
            life = machine.life
            assert replica is not None and life is not None and life.node is not None
            broker = life.node.broker
            assert broker is not None

            async def inside() -> int:
                now_ms = machine.clock.now_ms()
                return broker.replicas.append_own(replica, batch, now_ms=now_ms).last_offset

            last = await self._world.inside(machine, inside())
            await self._world.until(lambda: replica.log.high_watermark > last or not life.alive)

        await self._world.asked(once)


async def fetch(world: TierCluster, offset: int, *, committed: bool, most: int = 900) -> Answer:
    """Fetch from the current leader until there is a result."""

    async def once() -> Answer:
        leader = await world.leader()
        replica = world.replica(leader)
        assert replica is not None
        wanted = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=most
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(committed),
            topics=[FetchRequest.FetchTopic(topic_id=replica.topic_id, partitions=[wanted])],
        )
        answer = await world.client._once(leader.node_id, request)
        got = answer.responses[0].partitions[0]
        fail_on(got.error_code)
        if not got.records:
            raise Unknown("nothing came")
        assert not isinstance(got.records, list)
        named = got.aborted_transactions or []
        return Answer(bytes(got.records), [(one.producer_id, one.first_offset) for one in named])

    return await world.asked(once)


async def everything(world: TierCluster) -> Truth:
    replica = world.replica(await world.leader())
    assert replica is not None
    at, end, parts = 0, replica.log.high_watermark, []
    while at < end:
        answer = await fetch(world, at, committed=False, most=1 << 20)
        parts.append(answer.data)
        at = answer.next_offset
    return Truth(parts)


async def read_all(world: TierCluster, begin: int) -> None:
    """Read from this offset to the last stable offset, part by part."""
    truth, at = await everything(world), begin
    while at < truth.stable:
        at = truth.judge(at, await fetch(world, at, committed=True))


def look(world: TierCluster) -> None:
    """S1, S2: check a log with open transactions: none of them is copied."""
    for machine in world.machines:
        replica = world.replica(machine)
        if replica is None or not replica.is_leader:
            continue
        log = replica.log
        stable, copied = log.last_stable_offset, world.tier(machine).reader.remote_end(log).offset
        local = log.local_log_start_offset
        require(
            local <= stable <= log.high_watermark and copied < stable,
            f"S2: local start {local}, last stable offset {stable}, remote end {copied}",
        )


def played(seed: int) -> int:
    """Run a seed. Returns: the number of aborted transactions that were only in the tier.

    Raises: Violation.
    """
    counts: list[int] = []

    async def story(world: TierCluster) -> None:
        await world.create(SMALL)
        transactor = Transactor(world)
        for step in range(STEPS):
            await transactor.step()
            look(world)
            if step in DISTURBED:
                leader = await world.leader()
                assert leader.life is not None
                leader.end(leader.life, End.KILL)
                await world.boot(leader)
                world.objects.weather = Weather(error=0.2, short=0.1)
                await read_all(world, 0)
        world.objects.weather = Weather()
        await transactor.end_all()
        await world.produce(12)

        def small() -> bool:
            logs = [log for machine in world.machines if (log := world.log(machine)) is not None]
            return all(2 * log.local_log_start_offset > log.log_end_offset for log in logs)

        await world.until(small)
        truth, log = await everything(world), world.log(await world.leader())
        assert log is not None
        for begin in {0, *(world.chance.randrange(truth.stable) for _ in range(6))}:
            await read_all(world, begin)
        counts.append(sum(one.marker < log.local_log_start_offset for one in truth.aborted))

    TierCluster(seed, SETTINGS).run(story)
    return counts[0]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.rest) for seed in range(1, 4))]
)
def test_s7_read_committed_reader_gets_all_aborted_transactions(seed: int) -> None:
    assert played(seed) > 2


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4, 100))
def test_s7_for_long(seed: int) -> None:
    played(seed)


ABORTED = "broker.tiering.part_reader:PartReader._aborted"


@pytest.mark.rest
@pytest.mark.parametrize(
    ("promise", "patch"),
    [
        ("S2", Patch("storage.tiered.copying:plan_copy_steps",
                     "if segment.next_offset > last_stable_offset:", "if False:")),
        ("S7", Patch(ABORTED, "cache.with_aborted(lineage, offset)", "()")),
        ("S7", Patch(ABORTED, "cache.with_aborted(lineage, offset)",
                     "cache.with_aborted(lineage, offset)[:1]")),
        ("S7", Patch(ABORTED, "log.reader.aborted_transactions(offset, end_offset)", "()")),
    ],
    ids=["copied early", "the disk alone", "one segment alone", "the tier alone"],
)  # fmt: skip
def test_aborted_transactions_that_the_tier_omits_break_a_promise(
    promise: str, patch: Patch
) -> None:
    with Bug("forgotten", "tier", "", promise, (patch,)).planted():
        for seed in range(6):
            try:
                played(seed)
            except Violation as error:
                assert str(error).startswith(promise)
                return
    raise AssertionError("nobody saw it")
