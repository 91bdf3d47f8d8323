"""Brokers that share a tier: logs, journals and a bucket in memory, for the tests of its drivers.

Every step that leaves a broker is counted: a record written, an object put, a log start saved. A
test can inject an event at it: an error, an election, the death of the process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.tiering.copying import Copier
from broker.tiering.counters import TopicCounters
from broker.tiering.expiring import Expirer
from broker.tiering.led import Led
from broker.tiering.local_cleaning import note_copied
from broker.tiering.quota import RateLimit
from broker.tiering.settings import QuotaSettings
from runtime.clock import ManualClock
from runtime.tasks import Supervisor
from storage.files import MemoryFiles
from storage.log.log import Log
from storage.objects import FaultyObjects, MemoryObjects, Source
from storage.tiered.cache import Outcome, SegmentCache
from storage.tiered.segment_store import SegmentStore
from storage.tiered.survey import verify
from storage.tiered.values import RemotePartition, RemoteSegment, TierRecord
from testkit.memory.logs import T0, contents, fill, make_log
from testkit.memory.tier_stops import StoppedObjects, Stops
from testkit.memory.tier_topic import MemoryLink, MemoryTopic, memory_journal
from testkit.memory.turns import until
from testkit.records.tier import PARTITION

UNLIMITED = QuotaSettings(bytes_per_second=2**63 - 1, windows=2, window_seconds=1)


class Killed(BaseException):
    """The end of the process: no later code runs, no error is handled."""


@dataclass
class Replica:
    """A replica as in `broker.tiering.led.Replica`."""

    log: Log
    leader_epoch: int = 0
    is_leader: bool = True


class Steps:
    """Steps of one broker by name, each recorded before and after it."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.happens: Callable[[str], None] = lambda step: None
        """Called with each step; may raise in its place."""

    def __call__(self, step: str) -> None:
        self.taken.append(step)
        self.happens(step)

    def at(self, number: int, happens: Callable[[], None]) -> None:
        """Let an event happen once, at the step of that number, counted from 0."""
        begun = len(self.taken)

        def look(step: str) -> None:
            if len(self.taken) - begun == number + 1:
                happens()

        self.happens = look


class SteppedObjects(FaultyObjects):
    """A broker's access to the bucket, with steps."""

    def __init__(self, bucket: MemoryObjects, steps: Steps) -> None:
        super().__init__(bucket, random.Random(1))
        self._steps = steps

    async def put(self, key: str, source: Source) -> None:
        name = key.rpartition(".")[2]
        self._steps(f"before put {name}")
        await super().put(key, source)
        self._steps(f"after put {name}")

    async def delete(self, keys: Sequence[str]) -> None:
        self._steps("before delete")
        await super().delete(keys)
        self._steps("after delete")


class TierBroker:
    """One broker with a replica of the one partition, which it leads or not."""

    def __init__(
        self,
        world: TierWorld,
        node_id: int,
        epoch: int = 0,
        log: Log | None = None,
        **config: object,
    ) -> None:
        """`config` is for a new log, if `log` is not given."""
        self.world = world
        self.node_id = node_id
        self.clock = world.clock
        self.steps = Steps()
        settings = {"segment_bytes": 300, "remote_storage_enable": True, "retention_ms": -1}
        self.log = log or make_log(MemoryFiles(), clock=self.clock, **{**settings, **config})  # type: ignore[arg-type]
        self.replica = Replica(self.log, epoch)
        self.saved_start = 0
        self.link = MemoryLink(world.topic)
        self.journal = memory_journal(
            world.topic, world.supervisor, link=self.link, clock=self.clock, consume_wait_ms=60_000
        )
        self.stops = Stops()
        """Stopping points at the same steps, and at calls that read; any event may happen there."""
        self.objects = SteppedObjects(world.bucket, self.steps)
        self.quota = UNLIMITED
        self.limit = RateLimit(lambda: self.quota, self.clock)
        self.store = store = SegmentStore(StoppedObjects(self.objects, self.stops))
        self.copier = Copier(
            node_id=node_id,
            metadata=self,
            store=store,
            limit=self.limit,
            clock=self.clock,
            rng=random.Random(node_id),
        )
        self.expirer = Expirer(
            node_id=node_id,
            metadata=self,
            store=store,
            save_log_starts=self._save,
            clock=self.clock,
        )
        self.led = self._led()
        self.journal.subscribe(lambda partition: self.look())

    def _led(self) -> Led:
        return Led(self.replica, PARTITION, TopicCounters())

    def look(self) -> None:
        """Update the log's state of what the tier has by now."""
        note_copied(self.log, self.journal.cache(PARTITION))

    # Interface for drivers --------------------------------------------------------------------

    def cache(self, partition: RemotePartition) -> SegmentCache | None:
        return self.journal.cache(partition)

    def leaders_cache(self, partition: RemotePartition) -> SegmentCache | None:
        return self.journal.leaders_cache(partition)

    async def write(self, record: TierRecord) -> Outcome:
        name = record.state.name
        self.steps(f"before {name}")
        await self.stops(f"write {name}")
        outcome = await self.journal.write(record)
        self.steps(f"after {name}")
        await self.stops(f"has written {name}")
        return outcome

    async def _save(self) -> None:
        self.steps("before save")
        await self.stops("save")
        self.saved_start = self.log.log_start_offset
        self.steps("after save")
        await self.stops("has saved")

    # Interface for tests -----------------------------------------------------------------------

    async def ready(self) -> SegmentCache:
        """Subscribe to the partition, and read its metadata."""
        self.journal.take(PARTITION)
        await until(lambda: self.journal.cache(PARTITION) is not None)
        return self.known

    @property
    def known(self) -> SegmentCache:
        cache = self.journal.cache(PARTITION)
        assert cache is not None
        return cache

    def finished(self) -> list[tuple[int, int]]:
        """Return the offsets of the finished copies that this broker knows."""
        return sorted((one.start_offset, one.end_offset) for one in self.known.finished())

    async def copy_all(self) -> None:
        while await self.copier.copy_once(self.led):
            pass

    async def expire(self) -> None:
        await self.expirer.expire_once(self.led)

    def commit(self) -> None:
        """Advance the high watermark to the log end."""
        self.log.update_high_watermark(self.log.log_end_offset)

    def lead(self, epoch: int) -> None:
        """Become leader, with the present log."""
        self.replica.leader_epoch, self.replica.is_leader = epoch, True
        self.log.history.lead(epoch)
        self.led = self._led()

    def follow(self, leader: TierBroker) -> None:
        """Copy the leader's local records, as a follower does."""
        self.replica.is_leader = False
        self.replica.leader_epoch = leader.replica.leader_epoch
        at = self.log.log_end_offset
        end = leader.log.log_end_offset
        data = b"".join(leader.log.read(offset, 1, max_offset=end) for offset in range(at, end))
        self.log.append_as_follower(data)
        self.log.update_high_watermark(leader.log.high_watermark)
        self.log.advance_log_start(leader.log.log_start_offset)

    async def sees_all(self) -> None:
        """Wait until it has read the metadata topic to its end."""
        end = len(self.world.topic.logs[0])
        await until(lambda: self.known.next_offset >= end)


class TierWorld:
    """The tier that the brokers of a test share. `close` asserts that no background work failed."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock(T0)
        self.topic = MemoryTopic()
        self.bucket = MemoryObjects(self.clock.now_ms)
        self.failures: list[str] = []
        self.supervisor = Supervisor(lambda name, error: self.failures.append(f"{name}: {error}"))
        self.brokers: list[TierBroker] = []

    def broker(self, epoch: int = 0, log: Log | None = None, **config: object) -> TierBroker:
        made = TierBroker(self, len(self.brokers) + 1, epoch, log, **config)
        self.brokers.append(made)
        return made

    async def leader_with(self, batches: int = 7, **config: object) -> TierBroker:
        """Return a leader whose records are all committed, two in each segment, one in the last."""
        broker = self.broker(0, None, **config)
        await broker.ready()
        fill(broker.log, batches, size=50)
        broker.commit()
        return broker

    async def follower_of(self, leader: TierBroker) -> TierBroker:
        """Return a replica that has all records of the leader, in other segments."""
        other = self.broker(segment_bytes=450)
        await other.ready()
        other.follow(leader)
        return other

    async def close(self) -> None:
        for each in self.brokers:
            await each.journal.close()
        await self.supervisor.close()
        assert self.failures == []
        assert self.supervisor.survived == {}

    async def check(self, leader: TierBroker) -> None:
        """Check the laws that hold whenever no operation is in progress: S1-S4."""
        await leader.sees_all()
        cache, log, lineage = leader.known, leader.log, leader.led.lineage
        assert list(cache.unfinished()) == [], "S3: every dangling copy is deleted in the end"
        findings = await verify(self.bucket, cache.segments(), contents=True)
        assert findings == [], "only objects of finished segments remain"
        stable = log.last_stable_offset
        assert all(one.end_offset < stable for one in cache.finished()), "S2"
        first_local = max(log.log_start_offset, log.local_log_start_offset)
        assert cache.covers(lineage, log.log_start_offset, first_local - 1), "S1: no gap"
        assert log.bounds.copied_to <= cache.covered_to(
            lineage, first_local, log.log_end_offset - 1
        )
        assert leader.saved_start <= log.log_start_offset
        for segment in cache.finished():
            assert segment.end_offset >= log.log_start_offset, "S3: expired segments are deleted"

    async def bytes_of(self, segment: RemoteSegment) -> bytes:
        """Return the log of a copy."""
        data, _ = await SegmentStore(self.bucket).read_log(segment, 0, segment.size_bytes)
        return bytes(data)


def values(log: Log) -> list[tuple[int, bytes]]:
    """Return the records of the local part, as consumers read them."""
    return contents(log, max(log.log_start_offset, log.local_log_start_offset), log.high_watermark)
