"""The clients of one simulated world: their requests, what they saw, what was promised to
them.

Each client is a step that is taken again and again, with pauses and a stream of chance of its own.
What steps have in common is here: one attempt at a produce or a fetch, entered in the ledger and in
the history. Whatever is read is held against what the promises saw committed (P6), and every answer
that says "not the leader" may name the leader, and what it names is judged (P24).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from client.leaders import Leader
from protocol.batch.header import iter_batches
from protocol.batch.records import Producer, Record, build_batch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Request, Response
from runtime.clock import Clock
from simulation.clients.client import SimClient, Unknown, checked, fail_on
from simulation.judges.client_history import LAST_READER, Saw
from simulation.judges.compacted import CompactedLedger, Keyed
from simulation.judges.groups import GroupTruth, committed_offsets
from simulation.judges.leader_hints import Named, judge_hint
from simulation.judges.ledger import Batch, PartitionLedger
from simulation.judges.partitions import OFFSETS_TOPIC, Promises
from simulation.judges.tier_offsets import Listed
from simulation.world.invariants import Key, Violation, require
from simulation.world.trace import Trace

R = TypeVar("R", bound=Response)
T = TypeVar("T")

REQUEST_MS = 3_000
FETCH_WAIT_MS = 200
EASED = 4
LAST_TRIES, LAST_PAUSE_S = 20, 0.2
"""Of the last reader, while leaders move: preferred ones lead again when all is quiet, too."""
PATIENCE = 20
"""Fetches that find nothing though there is something, one after the other."""
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
"""A client asked for a partition last when nobody led it, and has not asked again; or it has heard
of a leader before that one has (seed 8991)."""
NOT_SETTLED = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE})
"""A leader does not say where its log ends before it has committed something of its epoch."""
COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
OF_MOVES = MOVED | COORDINATOR_MOVED | NOT_SEEN | NOT_SETTLED
"""What a client is told while leaders move, as preferred ones do when all is quiet, too."""


class Asked(NamedTuple):
    """A request for one partition: whom it went to and when, the leader epoch that it carried, that
    of the broker's own replica then, and its number among all that began."""

    one: PartitionLedger
    key: Key
    broker_id: int
    at_s: float
    epoch: int
    replica_epoch: int
    serial: int


Step = Callable[[random.Random], Awaitable[None]]
Send = Callable[[ProduceRequest], Awaitable[ProduceResponse | None]]
"""One attempt at a request; None where no answer comes (acks=0)."""


class Access:
    """How a client finds leaders: its connections, and whether it doubts what it knows."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self._stale = False

    def doubt(self) -> None:
        """An answer said that the leader may have moved."""
        self._stale = True

    async def leader(self, one: PartitionLedger) -> Leader:
        """As every client does it: ask again after an error, and never go back to a leader of an
        epoch before the one that is known. Who knows an earlier topic of that name asks at once."""
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

    `strict` says that nothing is wrong with the world any more: then errors are faults, but for a
    leader that has just moved. `judging` False lets a broken promise pass, `judging_groups` one of
    consumer groups.
    """

    def __init__(
        self, client: SimClient, promises: Promises, trace: Trace, *, seed: int, clock: Clock
    ) -> None:
        self.client = client
        self.promises = promises
        self.trace = trace
        self.clock = clock
        self.partitions: list[PartitionLedger] = []
        self.keyed: list[CompactedLedger] = []
        """Those of compacted topics."""
        self.producer_ids: set[int] = set()
        """All that brokers have given out."""
        self.expired = 0
        """Offsets that clients have seen go."""
        self.operations = 0
        self.errors: dict[str, int] = {}
        self.acked = 0
        self.hints = 0
        self.strict = False
        self.store_told_until_s = 0.0
        """Until then a fetch may hear what an earlier one met in the remote store."""
        self._loop = asyncio.get_running_loop()
        self.trouble: asyncio.Future[None] = self._loop.create_future()
        """Fails when a client finds a promise broken."""
        self._seed = seed
        self._numbers = 0
        self._asked = 0
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._access = Access(client)
        self.judging = True
        self.judging_groups = True
        self.history: list[Saw] = []
        self.listed: list[Listed] = []
        """What leaders of tiered partitions said of their offsets; the judge of tiers takes it."""
        self.groups: dict[str, GroupTruth] = {}
        self.calm = False
        """The quiet phase has begun: members stay where they are."""
        self.eased = False
        """Clients rest `EASED` times as long: who is far behind over a slow link catches up."""
        self.namesakes: set[str] = set()
        """Names that another topic had before. Where the new one is asked by name, a broker that
        has not heard of the end of the old one answers for that."""
        self._first_ids: dict[str, bytes] = {}
        self._ended: set[bytes] = set()
        self._clients: list[SimClient] = []

    def enter(self, topics: Mapping[str, int]) -> None:
        """A ledger for each partition; `topics` are names and numbers of partitions."""
        for topic, count in topics.items():
            self.partitions += [PartitionLedger(topic, index, True) for index in range(count)]

    def found(self, topic: str, topic_id: bytes, count: int) -> None:
        """The cluster has the topic, with so many partitions; one of that name and another id is
        gone."""
        if topic_id in self._ended:
            return
        if self._first_ids.setdefault(topic, topic_id) != topic_id:
            self.namesakes.add(topic)
        if topic in self.promises.compacted:
            at = len([one for one in self.keyed if one.topic_id == topic_id])
            self.keyed += [CompactedLedger(topic, n, True, topic_id) for n in range(at, count)]
            return
        for gone in {p.topic_id for p in self.partitions if p.topic == topic} - {topic_id}:
            self.end(gone)
        known = {p.index for p in self.partitions if p.topic_id == topic_id}
        self.partitions += [
            PartitionLedger(topic, index, True, topic_id)
            for index in range(count)
            if index not in known
        ]

    def end(self, topic_id: bytes) -> None:
        """The topic is deleted, or about to be: nothing is expected of it any more."""
        self._ended.add(topic_id)
        for one in self.partitions:
            one.ended = one.ended or one.topic_id == topic_id
        self.partitions = [one for one in self.partitions if not one.ended]

    def partition(self, topic: str, index: int) -> PartitionLedger | None:
        """The ledger of one partition, None if there is no such one at the moment."""
        return next((p for p in self.partitions if (p.topic, p.index) == (topic, index)), None)

    def new_client(self) -> SimClient:
        """One with connections of its own: answers come in the order of requests, and some wait
        long. `close` closes it."""
        client = SimClient(self.client.bootstrap)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Close what clients have opened for themselves."""
        for client in self._clients:
            await client.close()

    def group(self, name: str) -> GroupTruth:
        """What is known of a consumer group."""
        return self.groups.setdefault(name, GroupTruth(name))

    def coordinates(self, node_id: int) -> tuple[int, int] | None:
        """Index and leader epoch of the only partition of groups, if this node leads it and has
        taken that over."""
        topic = self.promises.metadata.image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        for index, one in topic.partitions.items():
            known = self.promises.leader_epoch_at(node_id, (topic.id, index))
            if one.leader == node_id and known == one.leader_epoch:
                return index, one.leader_epoch
        return None

    def now_s(self) -> float:
        """Virtual time."""
        return self._loop.time()

    def number(self) -> int:
        """One that nobody had before."""
        self._numbers += 1
        return self._numbers

    def start(self, name: str, step: Step, pause_ms: float) -> None:
        """One more client, that rests for `pause_ms` on the average between its steps."""
        self._tasks.append(asyncio.create_task(self._run(name, step, pause_ms), name=name))

    async def stop(self) -> None:
        """Let every client finish its step."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def stop_within(self, seconds: float) -> None:
        """As `stop`, for clients that may never get what they wait for (P26)."""
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
        """Raises Violation if that must not happen."""
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
        """The number and the values of a new batch, never seen before."""
        number = self.number()
        padding = b"." * rng.choice((0, 10, 300))
        name = b"%s:%d" % (producer.encode(), number)
        count = rng.choice((1, 1, 2, 5))
        return number, [b"%s:%d%s" % (name, index, padding) for index in range(count)]

    # --- requests -----------------------------------------------------------------------------

    async def leader(self, one: PartitionLedger) -> Leader:
        """See `Access.leader`."""
        return await self._access.leader(one)

    async def produce(
        self, one: PartitionLedger, batch: Batch, acks: int, producer: Producer | None = None
    ) -> int:
        """One attempt at one batch, entered in the ledger; the offset of its first record."""
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
        """As `produce`, to a leader that is known, by whatever sends the request; -1: nobody says
        where."""
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
        asked = self.asking(one, leader_id, -1)
        try:
            answer = await ask(request)
        except Unknown:
            batch.uncertain = True
            self.trace.add(f"client: {name} has no answer")
            self._sent(asked, batch, acks, producer, "? no answer")
            raise
        except ApiError as error:
            one.refused(batch)
            self._sent(asked, batch, acks, producer, error.code.name)
            raise
        if answer is None:
            batch.uncertain = True
            self._sent(asked, batch, acks, producer, "? not asked")
            return -1
        got = answer.responses[0].partition_responses[0]
        self._hinted(asked, got.error_code, got.current_leader, answer.node_endpoints)
        if got.error_code:
            self._refused(one, batch, ErrorCode(got.error_code))
            said = ErrorCode(got.error_code)
            told = said.name if said in REFUSED else f"? {said.name}"
            self._sent(asked, batch, acks, producer, told)
            self.trace.add(f"client: {name} is refused: {got.error_code}")
            fail_on(got.error_code, got.error_message)
        self.trace.add(f"client: {name} is at {got.base_offset}")
        self._sent(asked, batch, acks, producer, "ok", got.base_offset)
        if acks == 1:
            batch.uncertain = True  # its leader may take it along
        else:
            self.acked += 1
            one.acked(batch, got.base_offset, 0)
            # Of a topic that the controllers have no more nobody looks how far it was committed: it
            # may have been acknowledged and deleted in one turn of its leader (seed 1565).
            expected = one.topic not in self.promises.given_up
            if expected and self.promises.exists(asked.key[0]):
                committed = self.promises.partitions[asked.key].end
                require(
                    batch.end <= committed,
                    f"H3: {name} is acknowledged at {batch.offset}, committed is {committed}",
                )
        return got.base_offset

    def _sent(
        self,
        asked: Asked,
        batch: Batch,
        acks: int,
        producer: Producer,
        answer: str,
        offset: int = -1,
    ) -> None:
        self._saw(
            asked,
            batch.producer,
            "send",
            answer,
            offset=offset,
            values=batch.values,
            acks=acks,
            producer_id=producer.id,
        )

    def _saw(self, asked: Asked, client: str, what: str, answer: str, **more: Any) -> None:
        """One entry of the history."""
        now_s = self._loop.time()
        self.history.append(
            Saw(
                *(client, what, str(asked.one), asked.at_s, now_s, answer),
                key=asked.key,
                serial=asked.serial,
                **more,
            )
        )

    def placed(self, client: str, one: PartitionLedger, offset: int) -> None:
        """A reader goes to another place than behind what it read last."""
        now_s, key = self._loop.time(), (one.topic_id, one.index)
        self.history.append(Saw(client, "place", str(one), now_s, now_s, "ok", offset, key=key))

    def _refused(self, one: PartitionLedger, batch: Batch, code: ErrorCode) -> None:
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            one.written(batch)
        elif code in REFUSED:
            one.refused(batch)
        else:
            batch.uncertain = True

    def asking(self, one: PartitionLedger, broker_id: int, epoch: int) -> Asked:
        """A request with this leader epoch is about to be sent."""
        key = (one.topic_id, one.index)
        replica_epoch = self.promises.leader_epoch_at(broker_id, key)
        self._asked += 1
        return Asked(one, key, broker_id, self._loop.time(), epoch, replica_epoch, self._asked)

    def _hinted(self, asked: Asked, code: int, leader: Any, endpoints: Any) -> None:
        """P24: a leader is named only where it helps, with an address, never an old one, and never
        one of whom the broker knows that it is fenced or gone."""
        if code:
            self.doubt()
        if leader.leader_id < 0 and leader.leader_epoch < 0:
            return
        self.hints += 1
        where = f"P24: {asked.one}: leader {leader.leader_id} in epoch {leader.leader_epoch}"
        require(code in MOVED, f"{where} is named with error {code}")
        known = {node.node_id: (node.host, node.port) for node in endpoints}
        require(leader.leader_id in known, f"{where} is named without its address, {known}")
        require(
            leader.leader_epoch >= asked.epoch,
            f"{where}, the client knows of {asked.epoch} already",
        )
        require(
            leader.leader_epoch >= asked.replica_epoch,
            f"{where}, broker {asked.broker_id} has a replica in {asked.replica_epoch} already",
        )
        named = Named(leader.leader_id, leader.leader_epoch, *known[leader.leader_id])
        images = self.promises.views.since(asked.broker_id, asked.at_s)
        judge_hint(f"broker {asked.broker_id}, {asked.one}", asked.key, named, images)

    async def ask(self, leader: Leader, request: Request[R]) -> R:
        """One request to a leader; without an answer the next client asks who leads."""
        try:
            return await self.client._once(leader.node_id, request, REQUEST_MS)
        except (Unknown, ApiError):
            self.doubt()
            raise

    def doubt(self) -> None:
        """An answer said that the leader may have moved."""
        self._access.doubt()

    async def fetch(
        self, one: PartitionLedger, offset: int, client: str, what: str = "read"
    ) -> list[tuple[int, bytes]]:
        """(offset, value) of what one fetch finds from `offset` on, after waiting for it a bit."""
        asked, answer = await self._fetch(one, offset)
        got = answer.responses[0].partitions[0]
        return self.told(asked, got, answer.node_endpoints, offset, client, what)

    async def fetch_keyed(self, one: CompactedLedger, offset: int) -> tuple[dict[int, Keyed], int]:
        """The same of a compacted partition, and where to go on: offsets are missing there."""
        asked, answer = await self._fetch(one, offset)
        got = answer.responses[0].partitions[0]
        self._hinted(asked, got.error_code, got.current_leader, answer.node_endpoints)
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
        committed = self.promises.partitions[asked.key].keys.records
        given_up = one.topic in self.promises.given_up
        for at, record in found.items():
            one.was_read(at, record, given_up=given_up)
            known = committed.get(at)
            if not given_up:
                require(known == record, f"P6: {one}: {record} at {at}, committed is {known}")
        return found, max([offset, *ends])

    async def _fetch(self, one: PartitionLedger, offset: int) -> tuple[Asked, FetchResponse]:
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
        asked = self.asking(one, leader.node_id, leader.epoch)
        answer = await self.ask(leader, request)
        fail_on(answer.error_code)
        return asked, answer

    def told(
        self,
        asked: Asked,
        got: FetchResponse.PartitionData,
        endpoints: Any,
        offset: int,
        client: str,
        what: str = "read",
    ) -> list[tuple[int, bytes]]:
        """(offset, value) from `offset` on of what an answer says of a partition, entered in the
        history. Raises ApiError."""
        self._hinted(asked, got.error_code, got.current_leader, endpoints)
        fail_on(got.error_code)
        got_bytes = got.records or b""
        assert not isinstance(got_bytes, list)
        records = checked(got_bytes)
        found = [(r.offset, r.value or b"") for r in records if r.offset >= offset]
        values, offsets = tuple(value for _, value in found), tuple(at for at, _ in found)
        self._saw(asked, client, what, "ok", offset=offset, values=values, offsets=offsets)
        return found

    async def _lasting(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again where a leader has just moved."""
        for _ in range(LAST_TRIES):
            try:
                return await ask()
            except ApiError as error:
                if error.code not in OF_MOVES:
                    raise
            self.doubt()
            await asyncio.sleep(LAST_PAUSE_S)
        return await ask()

    async def read_all(self) -> None:
        """Read every log that keeps all it gets from its start to its end, as the last thing."""
        self.doubt()
        for one in self.partitions:
            if one.topic in self.promises.given_up | self.promises.may_shrink:
                continue
            _, end = await self.client.bounds(one.topic, one.index)
            at = empty = 0
            while at < end or not at:
                records = await self._lasting(partial(self.fetch, one, at, LAST_READER, "final"))
                if not records:
                    empty += 1
                    if at >= end or empty > PATIENCE:
                        break
                    continue  # a read from the tier may take longer than a fetch waits
                at = records[-1][0] + 1

    async def read_compacted(self) -> None:
        """The same for compacted ones: the newest record of each key is there."""
        for one in self.keyed:
            if one.topic in self.promises.given_up:
                continue
            _, end = await self.client.bounds(one.topic, one.index)
            at, whole = 0, dict[int, Keyed]()
            while at < end:
                found, next_at = await self._lasting(partial(self.fetch_keyed, one, at))
                whole |= found
                require(next_at > at, f"H12: {one}: nothing at {at}, the end is {end}")
                at = next_at
            one.read_whole(whole, self.promises.partitions[one.topic_id, one.index].keys.undead)

    async def read_offsets(self) -> None:
        """G10: what coordinators tell of their groups is what replaying their log gives."""
        promises = self.promises
        logs = [one for one in promises.partitions.values() if one.name == f"{OFFSETS_TOPIC}-0"]
        for name in self.groups if logs else ():
            told = await self._lasting(partial(self._all_offsets, name))
            names = promises.metadata.topic_names
            found = {
                (names.get(topic.topic_id, topic.name), one.partition_index): one.committed_offset
                for topic in told.topics
                for one in topic.partitions
            }
            replayed = committed_offsets(logs[0].keys, name)
            for where in {*found, *replayed}:
                require(
                    where[0] in promises.may_vanish or found.get(where) == replayed.get(where),
                    f"G10: {name}: {where} is at {found.get(where)}, its log says "
                    f"{replayed.get(where)}",
                )

    async def _all_offsets(self, group: str) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        """What the coordinator tells of all partitions of the group."""
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        self.client.forget_coordinator(group)
        answer = await self.client.of_group(group, OffsetFetchRequest(groups=[asked]))
        fail_on(answer.groups[0].error_code)
        return answer.groups[0]

    def consumed(self, one: PartitionLedger, records: list[tuple[int, bytes]]) -> None:
        """P6: whatever a consumer reads is committed, and is what was committed."""
        if one.topic in self.promises.given_up:
            return
        truth = self.promises.partitions[one.topic_id, one.index]
        for offset, value in records:
            found = truth.values.get(offset)
            require(found == value, f"P6: {one}: {value!r} at {offset}, committed is {found!r}")

    # --- the end ------------------------------------------------------------------------------

    def judge(self) -> None:
        """Every acknowledged record is where it was said to be, nothing is there twice, nothing
        that was refused is there."""
        for one in self.partitions:
            if one.topic in self.promises.given_up:
                continue
            topic_id = one.topic_id or self.client.cluster.cache.topic_ids[one.topic]
            truth = self.promises.partitions[topic_id, one.index]
            one.check(0, truth.end, sorted(truth.values.items()), 0)


def is_of_groups(error: BaseException) -> bool:
    """Whether the promise that broke is one of consumer groups (G1 to G10)."""
    return str(error).startswith("G")


def _is_life(code: ErrorCode) -> bool:
    """Whether clients try again after this error."""
    return code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE
