"""The clients of one simulated world: their requests, their history, and the ledgers of what was
promised to them.

Each client is a step that is repeated, with pauses and a random stream of its own. Steps share the
code of this module: one attempt at a produce or a fetch, entered in the ledger and in the history.
Every record read is compared with the committed records that the promises know (P6). A response
that names the current leader is judged (P24).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from client.leaders import Leader
from protocol.batch.header import iter_batches
from protocol.batch.records import Producer, Record, build_batch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Request, Response
from runtime.clock import Clock
from simulation.clients.client import SimClient, Unknown, checked, fail_on
from simulation.clients.ledgers import Ledgers
from simulation.judges.client_history import Saw
from simulation.judges.compacted import CompactedLedger, Keyed
from simulation.judges.groups import GroupTruth
from simulation.judges.leader_hints import Named, judge_hint
from simulation.judges.ledger import Batch, PartitionLedger
from simulation.judges.partitions import OFFSETS_TOPIC, Promises
from simulation.judges.tier_offsets import Listed
from simulation.world.invariants import Key, Violation, require
from simulation.world.trace import Trace

R = TypeVar("R", bound=Response)

REQUEST_MS = 3_000
FETCH_WAIT_MS = 200
EASED = 4
PATIENCE = 20
"""Consecutive fetches that may return nothing although there are records."""
REFUSED = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that promise that nothing was appended."""
MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
NOT_SEEN = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH})
"""The client's metadata is from a time without a leader, or is newer than the leader's own (seed
8991)."""
NOT_SETTLED = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE})
"""A new leader does not report the end of its log before it has committed a record of its epoch."""
COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
OF_MOVES = MOVED | COORDINATOR_MOVED | NOT_SEEN | NOT_SETTLED
"""Errors that clients may get while leaders move, which preferred leaders also do in the quiet
phase."""


class Attempt(NamedTuple):
    """A request for one partition: its broker, its time, the leader epoch in it, the epoch of the
    broker's own replica at that time, and its number among all requests."""

    one: PartitionLedger
    key: Key
    broker_id: int
    at_s: float
    epoch: int
    replica_epoch: int
    serial: int


Step = Callable[[random.Random], Awaitable[None]]
Send = Callable[[ProduceRequest], Awaitable[ProduceResponse | None]]
"""Makes one attempt at a request; returns None where no response comes (acks=0)."""


class Access:
    """A client's access to leaders: its connections, and whether its metadata may be stale."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self._stale = False

    def doubt(self) -> None:
        """Note that the leader may have moved, after an error response."""
        self._stale = True

    async def leader(self, one: PartitionLedger) -> Leader:
        """Return the leader as every client finds it: from new metadata after an error, and never
        of an epoch before the known one. Metadata with an earlier topic id for that name is
        refreshed, too.

        Raises: ApiError(UNKNOWN_TOPIC_ID) if the name belongs to another topic now.
        """
        known = self.client.cluster.cache.topic_ids
        if self._stale or (one.topic_id and known.get(one.topic, one.topic_id) != one.topic_id):
            self._stale = False
            await self.client.topics()
        leader = await self.client.find_leader(one.topic, one.index)
        topic_id = known[one.topic]
        one.topic_id = one.topic_id or topic_id
        if one.topic_id != topic_id:
            self._stale = True
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"{one} is another topic now")
        return leader


class Load:
    """The clients of one world; they run on the client's host.

    `strict` means that no fault is active any more: then every error is a failure, except while a
    leader has just moved. With `judging` False a broken promise is ignored, with `judging_groups`
    False one of consumer groups.
    """

    def __init__(
        self, client: SimClient, promises: Promises, trace: Trace, *, seed: int, clock: Clock
    ) -> None:
        self.client = client
        self.promises = promises
        self.trace = trace
        self.clock = clock
        self.ledgers = Ledgers(promises)
        self.producer_ids: set[int] = set()
        """All producer ids that brokers have given out."""
        self.expired = 0
        """Number of offsets that clients have seen expire."""
        self.operations = 0
        self.errors: dict[str, int] = {}
        self.acked = 0
        self.hints = 0
        self.strict = False
        self.store_told_until_s = 0.0
        """Virtual time until which a fetch may return a remote store error of an earlier fetch."""
        self._loop = asyncio.get_running_loop()
        self.trouble: asyncio.Future[None] = self._loop.create_future()
        """Fails when a client finds a promise broken."""
        self._seed = seed
        self._numbers = 0
        self._attempts = 0
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._access = Access(client)
        self.judging = True
        self.judging_groups = True
        self.history: list[Saw] = []
        self.listed: list[Listed] = []
        """Offsets that leaders of tiered partitions reported; the judge of tiers removes them."""
        self.groups: dict[str, GroupTruth] = {}
        self.calm = False
        """True in the quiet phase: members stay in their groups."""
        self.eased = False
        """True if clients rest `EASED` times as long, so that replicas behind a slow link catch up.
        """
        self._clients: list[SimClient] = []

    def judge(self) -> None:
        """Compare the ledgers with the committed records. Raises: Violation for a difference."""
        self.ledgers.judge(self.client.cluster.cache.topic_ids)

    def new_client(self) -> SimClient:
        """Return a client with connections of its own, since responses come in the order of
        requests and some wait long. `close` closes it."""
        client = SimClient(self.client.bootstrap)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Close the connections that clients have opened for themselves."""
        for client in self._clients:
            await client.close()

    def group(self, name: str) -> GroupTruth:
        """Return the known state of a consumer group."""
        return self.groups.setdefault(name, GroupTruth(name))

    def coordinates(self, node_id: int) -> tuple[int, int] | None:
        """Return index and leader epoch of the only partition of the offsets topic, if this node
        leads it and its replica is in that epoch; else None."""
        topic = self.promises.metadata.image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        for index, one in topic.partitions.items():
            known = self.promises.leader_epoch_at(node_id, (topic.id, index))
            if one.leader == node_id and known == one.leader_epoch:
                return index, one.leader_epoch
        return None

    def now_s(self) -> float:
        """Return the virtual time in seconds."""
        return self._loop.time()

    def number(self) -> int:
        """Return a number that no client had before."""
        self._numbers += 1
        return self._numbers

    def start(self, name: str, step: Step, pause_ms: float) -> None:
        """Start a client that rests for `pause_ms` on average between its steps."""
        self._tasks.append(asyncio.create_task(self._run(name, step, pause_ms), name=name))

    async def stop(self) -> None:
        """Let every client finish its step."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def stop_within(self, seconds: float) -> None:
        """Stop the clients, and cancel steps that take longer than `seconds` (P26).

        Raises: Violation if a step took longer and promises are judged.
        """
        self._stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late and self.judging:
            names = sorted(task.get_name() for task in late)
            raise Violation(f"P26: {names} still wait after {seconds:g} s without trouble")

    async def _run(self, name: str, step: Step, pause_ms: float) -> None:
        rng = random.Random(f"{self._seed}/{name}")
        try:
            while not self._stopping:
                pause_s = rng.expovariate(1000 / pause_ms)
                await asyncio.sleep(pause_s * EASED if self.eased else pause_s)
                self.operations += 1
                try:
                    await step(rng)
                except (Unknown, ApiError) as error:
                    self.failed(name, error)
                except Violation as error:
                    if self.judging_groups if is_of_groups(error) else self.judging:
                        raise
        except Exception as error:
            if not self.trouble.done():
                self.trouble.set_exception(error)
                self.trouble.exception()
            raise

    def failed(self, what: str, error: Unknown | ApiError) -> None:
        """Count an error of a client. Raises: Violation if the error is not allowed at this
        time."""
        name = error.code.name if isinstance(error, ApiError) else "no answer"
        self.errors[name] = self.errors.get(name, 0) + 1
        if isinstance(error, ApiError):
            told = error.code is ErrorCode.KAFKA_STORAGE_ERROR
            late = self.now_s() < self.store_told_until_s or bool(self.promises.unreadable)
            if error.code in OF_MOVES or (told and late):
                return
        grave = self.strict or (isinstance(error, ApiError) and not _is_life(error.code))
        if grave and self.judging:
            raise Violation(f"{'P26' if self.strict else 'H'}: {what}: {error!r}") from error

    def values(self, producer: str, rng: random.Random) -> tuple[int, list[bytes]]:
        """Return the number and the values of a new batch; no value was used before."""
        number = self.number()
        padding = b"." * rng.choice((0, 10, 300))
        name = b"%s:%d" % (producer.encode(), number)
        count = rng.choice((1, 1, 2, 5))
        return number, [b"%s:%d%s" % (name, index, padding) for index in range(count)]

    # --- requests -----------------------------------------------------------------------------

    async def leader(self, one: PartitionLedger) -> Leader:
        """Return the leader by the shared access: see `Access.leader`."""
        return await self._access.leader(one)

    async def produce(
        self, one: PartitionLedger, batch: Batch, acks: int, producer: Producer | None = None
    ) -> int:
        """Make one attempt at one batch, entered in the ledger. Returns: the offset of its first
        record.

        Raises: Unknown without a response, ApiError for an error response.
        """
        one.trying(batch)
        try:
            leader = await self.leader(one)
        except (Unknown, ApiError):
            one.refused(batch)
            raise
        node_id = leader.node_id
        ask = partial(self.client._once, node_id, timeout_ms=REQUEST_MS)
        try:
            return await self.send(one, batch, acks, producer or Producer(), node_id, ask)
        except (Unknown, ApiError):
            self.doubt()
            raise

    async def send(
        self,
        one: PartitionLedger,
        batch: Batch,
        acks: int,
        producer: Producer,
        leader_id: int,
        ask: Send,
    ) -> int:
        """Send a batch to a known leader through `ask`, entered in the ledger.

        Returns: the offset of its first record; -1 if no response comes (acks=0).
        """
        one.trying(batch)
        now_ms = self.clock.now_ms()
        records = [Record(timestamp=now_ms, value=value) for value in batch.values]
        data = ProduceRequest.PartitionProduceData(
            index=one.index, records=build_batch(records, producer=producer)
        )
        name = f"{batch.producer}:{batch.number} in {one}"
        request = ProduceRequest(
            acks=acks,
            timeout_ms=REQUEST_MS // 2,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=one.topic,
                    topic_id=one.topic_id,
                    partition_data=[data],
                )
            ],
        )
        attempt = self.new_attempt(one, leader_id, -1)
        try:
            answer = await ask(request)
        except Unknown:
            batch.uncertain = True
            self.trace.add(f"client: {name} has no answer")
            self._sent(attempt, batch, acks, producer, "? no answer")
            raise
        except ApiError as error:
            one.refused(batch)
            self._sent(attempt, batch, acks, producer, error.code.name)
            raise
        if answer is None:
            batch.uncertain = True
            self._sent(attempt, batch, acks, producer, "? not asked")
            return -1
        got = answer.responses[0].partition_responses[0]
        self._hinted(attempt, got.error_code, got.current_leader, answer.node_endpoints)
        if got.error_code:
            self._refused(one, batch, ErrorCode(got.error_code))
            said = ErrorCode(got.error_code)
            told = said.name if said in REFUSED else f"? {said.name}"
            self._sent(attempt, batch, acks, producer, told)
            self.trace.add(f"client: {name} is refused: {got.error_code}")
            fail_on(got.error_code, got.error_message)
        self.trace.add(f"client: {name} is at {got.base_offset}")
        self._sent(attempt, batch, acks, producer, "ok", got.base_offset)
        if acks == 1:
            batch.uncertain = True  # the record may be lost with its leader
        else:
            self.acked += 1
            one.acked(batch, got.base_offset)
            # Once a topic is deleted, no judge sees how far it was committed: its leader may have
            # acknowledged the record and deleted the topic in one event-loop iteration (seed 1565).
            expected = one.topic not in self.promises.given_up
            if expected and self.promises.exists(attempt.key[0]):
                committed = self.promises.partitions[attempt.key].end
                require(
                    batch.end <= committed,
                    f"H3: {name} is acknowledged at {batch.offset}, committed is {committed}",
                )
        return got.base_offset

    def _sent(
        self,
        attempt: Attempt,
        batch: Batch,
        acks: int,
        producer: Producer,
        answer: str,
        offset: int = -1,
    ) -> None:
        self._saw(
            attempt,
            batch.producer,
            "send",
            answer,
            offset=offset,
            values=batch.values,
            acks=acks,
            producer_id=producer.id,
        )

    def _saw(self, attempt: Attempt, client: str, what: str, answer: str, **more: Any) -> None:
        """Add one entry to the history."""
        now_s = self._loop.time()
        self.history.append(
            Saw(
                *(client, what, str(attempt.one), attempt.at_s, now_s, answer),
                key=attempt.key,
                serial=attempt.serial,
                **more,
            )
        )

    def placed(self, client: str, one: PartitionLedger, offset: int) -> None:
        """Record that a reader continues at an offset other than the one after its last record."""
        now_s, key = self._loop.time(), (one.topic_id, one.index)
        self.history.append(Saw(client, "place", str(one), now_s, now_s, "ok", offset, key=key))

    def _refused(self, one: PartitionLedger, batch: Batch, code: ErrorCode) -> None:
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            one.written(batch)
        elif code in REFUSED:
            one.refused(batch)
        else:
            batch.uncertain = True

    def new_attempt(self, one: PartitionLedger, broker_id: int, epoch: int) -> Attempt:
        """Return the data of a request with this leader epoch that is about to be sent."""
        key = (one.topic_id, one.index)
        replica_epoch = self.promises.leader_epoch_at(broker_id, key)
        self._attempts += 1
        return Attempt(one, key, broker_id, self._loop.time(), epoch, replica_epoch, self._attempts)

    def _hinted(self, attempt: Attempt, code: int, leader: Any, endpoints: Any) -> None:
        """Check a named leader (P24): it is named only with an error that it helps against, and
        with an address. It is never of an old epoch, nor a broker that the responding broker knows
        to be fenced or removed."""
        if code:
            self.doubt()
        if leader.leader_id < 0 and leader.leader_epoch < 0:
            return
        self.hints += 1
        where = f"P24: {attempt.one}: leader {leader.leader_id} in epoch {leader.leader_epoch}"
        require(code in MOVED, f"{where} is named with error {code}")
        known = {node.node_id: (node.host, node.port) for node in endpoints}
        require(leader.leader_id in known, f"{where} is named without its address, {known}")
        require(
            leader.leader_epoch >= attempt.epoch,
            f"{where}, the client knows of {attempt.epoch} already",
        )
        require(
            leader.leader_epoch >= attempt.replica_epoch,
            f"{where}, broker {attempt.broker_id} has a replica in {attempt.replica_epoch} already",
        )
        named = Named(leader.leader_id, leader.leader_epoch, *known[leader.leader_id])
        images = self.promises.views.since(attempt.broker_id, attempt.at_s)
        judge_hint(f"broker {attempt.broker_id}, {attempt.one}", attempt.key, named, images)

    async def ask(self, leader: Leader, request: Request[R]) -> R:
        """Send one request to a leader; after an error the next request refreshes the metadata."""
        try:
            return await self.client._once(leader.node_id, request, REQUEST_MS)
        except (Unknown, ApiError):
            self.doubt()
            raise

    def doubt(self) -> None:
        """Note that the leader may have moved, after an error response."""
        self._access.doubt()

    async def fetch(
        self, one: PartitionLedger, offset: int, client: str, what: str = "read"
    ) -> list[tuple[int, bytes]]:
        """Return (offset, value) of the records of one fetch at `offset`, which may wait
        `FETCH_WAIT_MS`."""
        attempt, answer = await self._fetch(one, offset)
        got = answer.responses[0].partitions[0]
        return self.received(attempt, got, answer.node_endpoints, offset, client, what)

    async def fetch_keyed(self, one: CompactedLedger, offset: int) -> tuple[dict[int, Keyed], int]:
        """Fetch a compacted partition, where offsets may be missing. Returns: records, and the next
        offset."""
        attempt, answer = await self._fetch(one, offset)
        got = answer.responses[0].partitions[0]
        self._hinted(attempt, got.error_code, got.current_leader, answer.node_endpoints)
        fail_on(got.error_code)
        data = got.records or b""
        assert not isinstance(data, list)
        found = {
            record.offset: Keyed(record.key or b"", record.value)
            for record in checked(data)
            if record.offset >= offset
        }
        ends = [header.next_offset for header, _ in iter_batches(data)]
        require(list(found) == sorted(found), f"H7: {one}: {list(found)} are out of order")
        committed = self.promises.partitions[attempt.key].keys.records
        given_up = one.topic in self.promises.given_up
        for at, record in found.items():
            one.was_read(at, record, given_up=given_up)
            known = committed.get(at)
            if not given_up:
                require(known == record, f"P6: {one}: {record} at {at}, committed is {known}")
        return found, max([offset, *ends])

    async def _fetch(self, one: PartitionLedger, offset: int) -> tuple[Attempt, FetchResponse]:
        leader = await self.leader(one)
        wish = FetchRequest.FetchPartition(
            partition=one.index,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchRequest.FetchTopic(topic=one.topic, topic_id=one.topic_id, partitions=[wish])
            ],
        )
        attempt = self.new_attempt(one, leader.node_id, leader.epoch)
        answer = await self.ask(leader, request)
        fail_on(answer.error_code)
        return attempt, answer

    def received(
        self,
        attempt: Attempt,
        got: FetchResponse.PartitionData,
        endpoints: Any,
        offset: int,
        client: str,
        what: str = "read",
    ) -> list[tuple[int, bytes]]:
        """Enter the partition's part of a response in the history.

        Returns: (offset, value) of its records from `offset` on.
        Raises: ApiError for an error code of the partition.
        """
        self._hinted(attempt, got.error_code, got.current_leader, endpoints)
        fail_on(got.error_code)
        got_bytes = got.records or b""
        assert not isinstance(got_bytes, list)
        records = checked(got_bytes)
        found = [(r.offset, r.value or b"") for r in records if r.offset >= offset]
        values, offsets = tuple(value for _, value in found), tuple(at for at, _ in found)
        self._saw(attempt, client, what, "ok", offset=offset, values=values, offsets=offsets)
        return found

    def consumed(self, one: PartitionLedger, records: list[tuple[int, bytes]]) -> None:
        """Check that each record that a consumer read is the committed one (P6)."""
        if one.topic in self.promises.given_up:
            return
        truth = self.promises.partitions[one.topic_id, one.index]
        for offset, value in records:
            found = truth.values.get(offset)
            require(found == value, f"P6: {one}: {value!r} at {offset}, committed is {found!r}")


def is_of_groups(error: BaseException) -> bool:
    """Return whether the broken promise is one of consumer groups (G1 to G10)."""
    return str(error).startswith("G")


def _is_life(code: ErrorCode) -> bool:
    """Return whether clients retry after this error."""
    return code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE
