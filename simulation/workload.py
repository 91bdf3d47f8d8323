"""Shell: Clients of a world with one node: workers that never stop retrying.

Each worker repeats small steps with its own random generator. It enters each request into the
ledger before it is sent, and the response afterwards. No response, or an error that Kafka's clients
retry, is allowed; any other error breaks a promise. In `strict` mode, when no fault is active,
every error does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from runtime.clock import Clock
from simulation.clients.client import SimClient, Unknown, fail_on
from simulation.judges.ledger import Batch, Ledger, PartitionLedger, Presence, TopicLedger
from simulation.world.invariants import Violation, require
from simulation.world.trace import Trace

Step = Callable[[random.Random], Awaitable[None]]

BASE_TOPICS = {"flushed": True, "cached": False}
"""Topics that are never deleted, and whether they are flushed with each append."""
NAMES = ("orders", "payments", "a.b", "x_y")
PARTITIONS_MAX = 4
SESSION_MS = 10_000
RETENTION_MS = 1_000_000_000
NOT_DONE = frozenset(
    {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_CONTROLLER}
)
"""Errors that promise that the request had no effect."""
LATE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # before the append, or while it waited to be committed
    }
)
"""Errors after which the request may have had its effect."""
EXPELLED = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND}
)
ALLOWED = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # while the only broker is fenced
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        *EXPELLED,
    }
)
"""Errors that are not retriable but allowed while nodes come and go."""
SEQUENCE_ERRORS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Workload:
    """The workers of one world and their gate; they run on the client's host.

    Args:
        life: returns the number of the node's present or last boot.
    """

    def __init__(
        self,
        client: SimClient,
        ledger: Ledger,
        trace: Trace,
        *,
        seed: int,
        life: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.client = client
        self.ledger = ledger
        self.strict = False
        self.errors: dict[str, int] = {}
        self.trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when a worker finds a promise broken."""
        self._trace = trace
        self._seed = seed
        self._life = life
        self._clock = clock
        self._open = asyncio.Event()
        self._open.set()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = 0

    # --- control ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all workers with their pauses."""
        for name, step, pause_ms in (
            ("admin", Admin(self).step, 150.0),
            ("plain producer", PlainProducer(self).step, 15.0),
            ("idempotent producer 1", IdempotentProducer(self, "i1", window=1).step, 20.0),
            ("idempotent producer 2", IdempotentProducer(self, "i2", window=4).step, 40.0),
            ("committer", Committer(self).step, 40.0),
            ("member", Member(self).step, 60.0),
            ("reader", Reader(self).step, 50.0),
            ("follower", Follower(self).step, 2.0),
        ):
            self._tasks.append(asyncio.create_task(self._run(name, step, pause_ms), name=name))

    def hold(self) -> None:
        """Send no more requests until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Let every worker finish its step."""
        self._stopping = True
        self.resume()
        await asyncio.gather(*self._tasks)

    @property
    def stopping(self) -> bool:
        return self._stopping

    async def _run(self, name: str, step: Step, pause_ms: float) -> None:
        rng = random.Random(f"{self._seed}/{name}")
        try:
            while not self._stopping:
                await asyncio.sleep(rng.expovariate(1000 / pause_ms))
                try:
                    await step(rng)
                    self.ledger.count(name)
                except (Unknown, ApiError) as error:
                    self.failed(name, error)
        except Exception as error:
            if not self.trouble.done():
                self.trouble.set_exception(error)
                self.trouble.exception()
            raise

    # --- for workers --------------------------------------------------------------------------

    @property
    def life(self) -> int:
        return self._life()

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        self._trace.add(f"client: {what}")

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Enclose one request: wait for the gate, and count it as in flight."""
        while not self._open.is_set():
            await self._open.wait()
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    def failed(self, what: str, error: Unknown | ApiError) -> None:
        """Count a failed request. Raises: Violation if the error is not allowed at this time."""
        name = error.code.name if isinstance(error, ApiError) else "no answer"
        self.errors[name] = self.errors.get(name, 0) + 1
        if self.strict:
            raise Violation(f"{what}: {error!r} though nothing is wrong") from error
        if isinstance(error, ApiError) and not (error.code.retriable or error.code in ALLOWED):
            raise Violation(f"{what}: {error!r}") from error

    def values(self, producer: str, rng: random.Random) -> tuple[int, list[bytes]]:
        """Return the number and the values of a new batch; no value was used before."""
        self._numbers += 1
        count = rng.choice((1, 1, 1, 2, 5))
        padding = b"." * rng.choice((0, 10, 300))
        name = b"%s:%d" % (producer.encode(), self._numbers)
        return self._numbers, [b"%s:%d%s" % (name, index, padding) for index in range(count)]

    def some_topic(self, rng: random.Random) -> TopicLedger | None:
        """Return a topic that exists, None if there is no such topic."""
        there = [t for t in self.ledger.topics.values() if t.presence is Presence.PRESENT]
        return rng.choice(there) if there else None

    def some_partition(self, rng: random.Random) -> tuple[TopicLedger, PartitionLedger] | None:
        topic = self.some_topic(rng)
        return None if topic is None else (topic, rng.choice(topic.partitions))


class Admin:
    """Creates, changes and deletes topics, one request at a time."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload
        self._client = workload.client
        self._ledger = workload.ledger
        self._settings = 0

    async def step(self, rng: random.Random) -> None:
        missing = [name for name in BASE_TOPICS if name not in self._ledger.topics]
        if missing:
            await self._create(missing[0], rng, flushed=BASE_TOPICS[missing[0]])
            return
        draw = rng.random()
        if draw < 0.3:
            free = [name for name in NAMES if name not in self._ledger.topics]
            if free:
                await self._create(rng.choice(free), rng, flushed=rng.random() < 0.5)
            return
        topic = self._load.some_topic(rng)
        if topic is None:
            return
        if draw < 0.45:
            if topic.name not in BASE_TOPICS and not self._load.strict:
                await self._delete(topic)
        elif draw < 0.7 or self._load.strict:
            await self._configure(topic)
        elif draw < 0.8:
            await self._grow(topic)
        else:
            await self._delete_records(topic, rng)

    async def _create(self, name: str, rng: random.Random, *, flushed: bool) -> None:
        configs = {"flush.messages": "1" if flushed else str(2**63 - 1)}
        if rng.random() < 0.5:
            configs["segment.ms"] = str(rng.choice((100, 1000, 5000)))
        count = rng.randint(1, 2)
        async with self._load.request():
            topic = self._ledger.creating(
                name, flushed=flushed, partitions=count, life=self._load.life
            )
            try:
                topic_id = await self._client.create_topic(name, count, configs)
            except ApiError as error:
                if error.code in NOT_DONE or error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
                    self._ledger.gone(topic)
                raise
            self._ledger.exists(topic, topic_id)

    async def _delete(self, topic: TopicLedger) -> None:
        async with self._load.request():
            topic.presence, topic.asked_in = Presence.DELETING, self._load.life
            await self._client.delete_topic(topic.name)
            self._ledger.gone(topic)

    async def _configure(self, topic: TopicLedger) -> None:
        self._settings += 1
        value = RETENTION_MS + self._settings
        async with self._load.request():
            topic.retention_asked.append(value)
            await self._client.set_config(topic.name, "retention.ms", str(value))
            topic.retention_acked = value

    async def _grow(self, topic: TopicLedger) -> None:
        count = topic.partition_count + 1
        if count > PARTITIONS_MAX or topic.partitions_asked >= count:
            return
        async with self._load.request():
            topic.partitions_asked = count
            await self._client.create_partitions(topic.name, count)
            topic.grow(count)

    async def _delete_records(self, topic: TopicLedger, rng: random.Random) -> None:
        partition = rng.choice(topic.partitions)
        before = rng.randint(0, partition.acked_end)
        async with self._load.request():
            partition.start_asked = max(partition.start_asked, before)
            await self._client.delete_records(topic.name, partition.index, before)


class PlainProducer:
    """Sends each batch once, acks=all, to any partition."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload

    async def step(self, rng: random.Random) -> None:
        chosen = self._load.some_partition(rng)
        if chosen is None:
            return
        topic, partition = chosen
        number, values = self._load.values("plain", rng)
        async with self._load.request():
            batch = partition.sending("plain", number, values)
            try:
                await send(self._load, topic, partition, batch, None)
            except ApiError:
                if topic.presence is Presence.PRESENT:
                    raise


async def send(
    load: Workload,
    topic: TopicLedger,
    partition: PartitionLedger,
    batch: Batch,
    producer: Producer | None,
) -> None:
    """Make one attempt at one batch, entered in the ledger.

    Raises: Unknown without a response, ApiError for an error other than a known duplicate.
    """
    name = f"{batch.producer}:{batch.number} in {partition}"
    partition.trying(batch)
    try:
        offset = await load.client.produce(
            topic.name, partition.index, batch.values, now_ms=load.now_ms, producer=producer
        )
    except Unknown:
        batch.uncertain = True
        load.note(f"{name} has no answer")
        raise
    except ApiError as error:
        load.note(f"{name} {producer} is refused: {error}")
        if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and producer is not None:
            partition.written(batch)
            load.ledger.count("repeated")
            return
        if error.code in LATE:
            batch.uncertain = True
        else:
            partition.refused(batch)
        raise
    load.note(f"{name} {producer} is at {offset}")
    partition.acked(batch, offset, load.life)


class IdempotentProducer:
    """Sends each batch until it is acknowledged, up to `window` of them concurrently.

    A retried batch has the same sequence number, so it is appended once.
    """

    def __init__(self, workload: Workload, name: str, *, window: int) -> None:
        self._load = workload
        self._name = name
        self._window = window
        self._identity: Producer | None = None
        self._sequences: dict[PartitionLedger, int] = {}

    async def step(self, rng: random.Random) -> None:
        chosen = self._load.some_partition(rng)
        if chosen is None:
            return
        topic, partition = chosen
        if self._identity is None:
            async with self._load.request():
                identity = await self._load.client.producer()
                self._load.ledger.producer_id(identity.id, self._load.life)
            self._identity = identity
        pending: list[tuple[Batch, Producer]] = []
        # Before the first batch is appended, the broker would accept any other one as the first.
        window = self._window if partition in self._sequences else 1
        for _ in range(rng.randint(1, window)):
            number, values = self._load.values(self._name, rng)
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + len(values)
            batch = partition.sending(self._name, number, values)
            pending.append((batch, self._identity._replace(sequence=sequence)))
        await self._send_all(topic, partition, pending, rng)

    async def _send_all(
        self,
        topic: TopicLedger,
        partition: PartitionLedger,
        pending: list[tuple[Batch, Producer]],
        rng: random.Random,
    ) -> None:
        attempt = 0
        while pending:
            async with self._load.request():
                results = await self._send_window(topic, partition, pending)
            left = [one for one, result in zip(pending, results, strict=True) if result]
            if topic.presence is not Presence.PRESENT:
                self._forget()
                return
            self._judge(partition, results)
            if self._identity is None:
                return  # the rest may exist or not
            attempt += 1
            if left:
                await asyncio.sleep(rng.uniform(0.01, 0.2))
            if self._load.stopping and attempt > 100:
                raise Violation(f"{partition}: {left[0][0].values[0]!r} cannot be sent")
            pending = left

    async def _send_window(
        self,
        topic: TopicLedger,
        partition: PartitionLedger,
        pending: list[tuple[Batch, Producer]],
    ) -> list[BaseException | None]:
        """Make one attempt at each batch, in order, without waiting between them."""
        try:
            await self._load.client.find_leader(topic.name, partition.index)
        except (Unknown, ApiError) as error:
            return [error] * len(pending)
        sends = [send(self._load, topic, partition, *one) for one in pending]
        return await asyncio.gather(*sends, return_exceptions=True)

    def _judge(self, partition: PartitionLedger, results: list[BaseException | None]) -> None:
        first = True
        for error in results:
            if isinstance(error, ApiError) and error.code in SEQUENCE_ERRORS:
                if first:
                    self._lost_track(partition, error)
                # After a failed batch this error only reports the gap that it left.
            elif isinstance(error, (Unknown, ApiError)):
                self._load.failed(self._name, error)
            elif error is not None:
                raise error
            first = first and error is None

    def _lost_track(self, partition: PartitionLedger, error: ApiError) -> None:
        """Handle a sequence error: the broker must have lost the last batch.

        Raises: Violation if the partition cannot have lost records.
        """
        require(
            not partition.flushed and self._load.life > 1,
            f"{self._name}: {error!r} for {partition}, which cannot have lost anything",
        )
        self._forget()

    def _forget(self) -> None:
        """Use a new producer id from now on."""
        self._identity = None
        self._sequences.clear()


class Committer:
    """Commits growing offsets for groups without members."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload

    async def step(self, rng: random.Random) -> None:
        name = rng.choice(list(BASE_TOPICS))
        topic = self._load.ledger.topics.get(name)
        if topic is None or topic.topic_id is None:
            return
        group = rng.choice(("g1", "g2", "g3"))
        await commit(self._load, group, topic, 0, rng)


async def commit(
    load: Workload,
    group: str,
    topic: TopicLedger,
    partition: int,
    rng: random.Random,
    generation: int = -1,
    member_id: str = "",
) -> None:
    """Commit a higher offset than ever before."""
    assert topic.topic_id is not None
    entry = load.ledger.commits_of(group, topic.name, partition)
    offset = (entry.asked[-1] if entry.asked else 0) + rng.randint(1, 3)
    async with load.request():
        entry.asked.append(offset)
        try:
            await load.client.commit(
                group,
                topic.name,
                topic.topic_id,
                partition,
                offset,
                generation=generation,
                member_id=member_id,
            )
        except (Unknown, ApiError):
            load.client.forget_coordinator(group)
            raise
        entry.acked = max(entry.acked, offset)


class Member:
    """The only member of a group: joins, heartbeats, commits with its generation."""

    GROUP = "members"

    def __init__(self, workload: Workload) -> None:
        self._load = workload
        self._client = workload.client
        self._member_id = ""
        self._generation = -1
        self._heard_ms = 0

    async def step(self, rng: random.Random) -> None:
        topic = self._load.ledger.topics.get("flushed")
        if topic is None or topic.topic_id is None:
            return
        try:
            if self._generation < 0:
                async with self._load.request():
                    await self._join()
            elif rng.random() < 0.5:
                async with self._load.request():
                    await self._heartbeat()
            else:
                await commit(
                    self._load, self.GROUP, topic, 0, rng, self._generation, self._member_id
                )
        except (Unknown, ApiError) as error:
            self._client.forget_coordinator(self.GROUP)
            if isinstance(error, ApiError) and error.code in EXPELLED:
                self._expelled(error)
            raise
        if self._generation >= 0:
            self._heard_ms = self._load.now_ms

    def _expelled(self, error: ApiError) -> None:
        """Leave a group that has expelled this member.

        A stored group, in a flushed topic, comes back with its members, whose sessions start from
        scratch.
        Raises: Violation if the session cannot have expired.
        """
        quiet_ms = self._load.now_ms - self._heard_ms
        require(
            self._generation < 0 or not self._load.ledger.offsets_flushed or quiet_ms > SESSION_MS,
            f"the only member was expelled after {quiet_ms} ms: {error!r}",
        )
        self._member_id, self._generation = "", -1

    async def _join(self) -> None:
        answer = await self._client.of_group(
            self.GROUP,
            JoinGroupRequest(
                group_id=self.GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=2_000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            timeout_ms=5_000,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return
        fail_on(answer.error_code)
        self._member_id = answer.member_id
        request = SyncGroupRequest(
            group_id=self.GROUP,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=one.member_id, assignment=b"all"
                )
                for one in answer.members
            ],
        )
        synced = await self._client.of_group(self.GROUP, request)
        fail_on(synced.error_code)
        self._generation = answer.generation_id

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.GROUP, generation_id=self._generation, member_id=self._member_id
        )
        fail_on((await self._client.of_group(self.GROUP, request)).error_code)


class Reader:
    """Reads records of other workers, as they write them, and compares them with the ledger."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload
        self._positions: dict[PartitionLedger, int] = {}

    async def step(self, rng: random.Random) -> None:
        chosen = self._load.some_partition(rng)
        if chosen is None:
            return
        topic, partition = chosen
        client = self._load.client
        async with self._load.request():
            try:
                start, end = await client.bounds(topic.name, partition.index)
                at = max(start, self._positions.get(partition, 0))
                if at > end:
                    at = start  # the records at the former position are gone
                end = min(end, at + 50)
                max_bytes = rng.choice((100, 1000, 1 << 20))
                found = await client.read(topic.name, partition.index, at, end, max_bytes=max_bytes)
            except (Unknown, ApiError):
                if topic.presence is not Presence.PRESENT:
                    return
                raise
        if topic.presence is not Presence.PRESENT:
            return
        for offset, value in found:
            batch = partition.by_value.get(value)
            if batch is None:
                raise Violation(f"{partition}: nobody sent {value!r}, which is at {offset}")
            partition.seen(batch, offset - batch.values.index(value), self._load.life)
        self._positions[partition] = end


class Follower:
    """Waits at the end of a topic that is flushed before it is shown, as a tailing consumer."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload
        self._position = 0

    async def step(self, rng: random.Random) -> None:
        topic = self._load.ledger.topics.get("flushed")
        if topic is None or topic.presence is not Presence.PRESENT:
            return
        partition = topic.partitions[0]
        async with self._load.request():
            try:
                found = await self._load.client.poll(topic.name, 0, self._position)
            except ApiError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._position, _ = await self._load.client.bounds(topic.name, 0)
                return
        for offset, value in found:
            batch = partition.by_value[value]
            partition.seen(batch, offset - batch.values.index(value), self._load.life)
            self._position = offset + 1
