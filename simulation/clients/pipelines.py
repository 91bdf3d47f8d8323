"""Producers with several requests in flight on one connection, as in librdkafka and the Java
client: the next batch is sent before the previous one is acknowledged.

The idempotent producer resends failed batches in order, with the same sequences (T1). A log without
state of a producer accepts any sequence from it, in Kafka, too. Suppose the first batches of a
producer are refused, and the next one, already in flight, is accepted. Then the first ones are out
of order from then on. They are abandoned, and the rest is sent in a new epoch, as the Java client
does with expired batches. If some of the rest may be in the log, it stays in the same epoch, since
a new epoch would append it twice.

The plain producer may append a record twice when it retries, as every such client does. So each of
its attempts has values of its own, which may be there at most once. Batches of one connection to
one leader stand in the order in which they were sent (P25), though some may be missing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.transport.client import Connection
from simulation.clients.client import Unknown
from simulation.clients.kind import ClientKind
from simulation.clients.load import MOVED, REFUSED, REQUEST_MS, Access, Load
from simulation.clients.producers import Numbered, counts
from simulation.judges.ledger import Batch, PartitionLedger
from simulation.shapes.shape import ClientShape, TopicShape
from simulation.world.invariants import require

IN_FLIGHT_MAX = 5
LENGTHS = (2, 3, 5, 8, 12)
TRIES = 3
"""Attempts of the plain producer."""
Failure = Unknown | ApiError


@dataclass(frozen=True)
class Wagon:
    """One batch, and the producer id, epoch and sequence with which it is sent."""

    batch: Batch
    producer: Producer = Producer()


class Pipeline:
    """Common code of both kinds: trains of batches to one partition."""

    def __init__(self, load: Load, name: str, acks: int, in_flight: int) -> None:
        self._load = load
        self._name = name
        self._acks = acks
        self._in_flight = in_flight
        self._access = Access(load.new_client())
        self._overtaken: set[Batch] = set()
        """First batches of a producer in a partition that were refused, while a later one was
        accepted. Either may be uncertain (no response)."""
        self.hopeless: set[Batch] = set()
        """Overtaken batches that were resent and are out of order."""

    def length(self, rng: random.Random) -> int:
        """Return the number of batches of the next train. In the quiet phase all of them must be
        replicated within a request timeout, where settings may limit a fetch to a kilobyte."""
        return 2 if self._load.calm else rng.choice(LENGTHS)

    async def run(self, one: PartitionLedger, train: Sequence[Wagon]) -> list[Wagon]:
        """Send a train, and stop after the first failure. Returns: the batches not acknowledged."""
        if isinstance(found := await self._connect(one), Exception):
            self._fail(found)
            return list(train)
        leader_id, connection = found

        async def ask(request: ProduceRequest) -> ProduceResponse | None:
            version = connection.version_for(ProduceRequest)
            try:
                if self._acks == 0:
                    connection.send_unanswered(request, version)
                    return None
                return await connection.request(request, REQUEST_MS, version)
            except OSError as error:
                raise Unknown(str(error)) from error

        async def attempt(wagon: Wagon) -> Failure | None:
            try:
                await self._load.send(one, wagon.batch, self._acks, wagon.producer, leader_id, ask)
            except (Unknown, ApiError) as error:
                return error
            return None

        tasks: list[asyncio.Task[Failure | None]] = []
        for wagon in train:
            while len(open_ := [task for task in tasks if not task.done()]) >= self._in_flight:
                await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() and task.result() is not None for task in tasks):
                break
            tasks.append(asyncio.create_task(attempt(wagon)))
        failures = await asyncio.gather(*tasks)
        self._judge(one, train, failures)
        left = [
            wagon
            for wagon, failure in zip(train, failures, strict=False)
            if failure is not None and not _is_there(failure)
        ]
        return [*left, *train[len(tasks) :]]

    async def _connect(self, one: PartitionLedger) -> tuple[int, Connection] | Failure:
        cluster = self._access.client.cluster
        try:
            leader = await self._access.leader(one)
            return leader.node_id, await cluster.leader(one.topic, one.index, REQUEST_MS)
        except OSError as error:
            return Unknown(str(error))
        except (Unknown, ApiError) as error:
            return error

    def _judge(
        self, one: PartitionLedger, train: Sequence[Wagon], failures: Sequence[Failure | None]
    ) -> None:
        """Check T1: only batches after a failed one may be out of order, and the first batches of a
        producer that later ones have overtaken."""
        before, begins = False, _is_refused_first(train[0], failures[0])
        for wagon, failure in zip(train, failures, strict=False):
            begins = begins and _may_be_refused(failure)
            if failure is None or _is_there(failure):
                continue
            if isinstance(failure, ApiError) and failure.code is OUT_OF_ORDER:
                hopeless = {wagon.batch} & self._overtaken
                allowed = before or bool(hopeless)
                require(allowed, f"T1: {self._name} in {one}: {failure!r}, all before is there")
                self.hopeless |= hopeless
            else:
                self._fail(failure)
            if begins and any(map(_may_be_there, failures)):
                self._overtaken.add(wagon.batch)
            before = True

    def _fail(self, failure: Failure) -> None:
        self._access.doubt()
        self._load.failed(self._name, failure)


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _is_there(failure: Failure) -> bool:
    return isinstance(failure, ApiError) and failure.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def _may_be_there(failure: Failure | None) -> bool:
    """Return whether the batch may have been appended, even if it was not replicated in time."""
    return not _is_refused(failure) and not (
        isinstance(failure, ApiError) and failure.code is OUT_OF_ORDER
    )


def _is_refused_first(wagon: Wagon, failure: Failure | None) -> bool:
    """Return whether the first batch of a producer may not have been appended."""
    return wagon.producer.id >= 0 and not wagon.producer.sequence and _may_be_refused(failure)


def _is_refused(failure: Failure | None) -> bool:
    """Return whether surely nothing was appended."""
    return isinstance(failure, ApiError) and failure.code in REFUSED


def _may_be_refused(failure: Failure | None) -> bool:
    """Return whether nothing was appended, or the broker was not yet leader when this batch came,
    but was for the next one (seed 5978)."""
    return _is_refused(failure) or (isinstance(failure, ApiError) and failure.code in MOVED)


class Idempotent(Pipeline):
    """Sends a train until all of it is acknowledged."""

    def __init__(self, load: Load, name: str, in_flight: int) -> None:
        super().__init__(load, name, -1, in_flight)
        self._numbered = Numbered(load, name)

    async def step(self, rng: random.Random) -> None:
        one = await self._numbered.choose(rng)
        if one is None:
            return
        train = [Wagon(*self._numbered.next(one, rng)) for _ in range(self.length(rng))]
        while train and counts(self._load, one):
            train = await self.run(one, train)
            left = [w for w in train if w.batch not in self.hopeless]
            if len(left) < len(train) and not any(w.batch.uncertain for w in left):
                self._numbered.begin_anew()
                left = [Wagon(w.batch, self._numbered.place(one, w.batch)) for w in left]
            train = left
            if train:
                await asyncio.sleep(rng.uniform(0.05, 0.4))


class Plain(Pipeline):
    """Sends a train, and failed batches again up to `TRIES` attempts in all."""

    async def step(self, rng: random.Random) -> None:
        load = self._load
        if not load.ledgers.partitions:
            return
        one = rng.choice(load.ledgers.partitions)
        left = self.length(rng)
        for _ in range(TRIES):
            if not left or one.ended:
                return
            # The batches of one attempt are in order; those of the next may overtake ones still in
            # flight.
            lane = f"{self._name}/{load.number()}"
            train = []
            for _ in range(left):
                number, values = load.values(lane, rng)
                train.append(Wagon(one.sending(lane, number, values)))
            left = len(await self.run(one, train))
            await asyncio.sleep(rng.uniform(0.02, 0.2))


def _some(rng: random.Random, kind: str, acks: tuple[int, ...]) -> list[ClientShape]:
    count = rng.choice((0, 0, 1, 1, 2))
    return [
        ClientShape(
            kind,
            f"{kind} {number}",
            rng.choice((100.0, 300.0, 900.0)),
            {"in_flight": rng.randint(2, IN_FLIGHT_MAX), "acks": rng.choice(acks)},
        )
        for number in range(count)
    ]


def _draw_idempotent(rng: random.Random, topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    if all(one.unclean for one in topics):
        return []
    return _some(rng, "idempotent pipeline", (-1,))


def _draw_plain(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    return _some(rng, "plain pipeline", (-1, 1, 0))


KINDS = {
    "idempotent pipeline": ClientKind(
        "pipelines",
        "an idempotent producer with several batches in flight",
        _draw_idempotent,
        lambda load, one: Idempotent(load, one.name, one.args["in_flight"]).step,
        apart=True,
    ),
    "plain pipeline": ClientKind(
        "pipelines",
        "a producer with several batches in flight, which tries again and may write twice",
        _draw_plain,
        lambda load, one: Plain(load, one.name, one.args["acks"], one.args["in_flight"]).step,
        apart=True,
    ),
}
