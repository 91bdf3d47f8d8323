"""Producers that send each batch once, and idempotent ones that resend it until acknowledged."""

from __future__ import annotations

import asyncio
import random

from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from simulation.clients.client import Unknown
from simulation.clients.kind import ClientKind
from simulation.clients.load import Load
from simulation.judges.ledger import Batch, PartitionLedger
from simulation.shapes.shape import ClientShape, TopicShape


class Once:
    """Sends each batch once. A late attempt may overtake a newer one, so every batch has a producer
    of its own in the ledger."""

    def __init__(self, load: Load, acks: int, name: str | None = None) -> None:
        self._name = name or f"a{acks}"
        self._load = load
        self._acks = acks

    async def step(self, rng: random.Random) -> None:
        load = self._load
        if not load.ledgers.partitions:
            return
        one = rng.choice(load.ledgers.partitions)
        number, values = load.values(self._name, rng)
        batch = one.sending(f"{self._name}:{number}", number, values)
        await load.produce(one, batch, self._acks)


class Numbered:
    """The batches of an idempotent producer, each with its sequence."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._identity: Producer | None = None
        self._sequences: dict[PartitionLedger, int] = {}

    async def choose(self, rng: random.Random) -> PartitionLedger | None:
        """Return a partition to send to, None if no promise holds for any partition."""
        if self._identity is None:
            self._identity = await self._load.client.producer()
        # A topic with unclean elections may lose the producer's sequence.
        kept = [one for one in self._load.ledgers.partitions if counts(self._load, one)]
        return rng.choice(kept) if kept else None

    def next(self, one: PartitionLedger, rng: random.Random) -> tuple[Batch, Producer]:
        """Return a new batch for a chosen partition, with its sequence."""
        number, values = self._load.values(self._name, rng)
        batch = one.sending(self._name, number, values)
        return batch, self.place(one, batch)

    def place(self, one: PartitionLedger, batch: Batch) -> Producer:
        """Return the producer with the next free sequence of the partition, for this batch."""
        assert self._identity is not None
        sequence = self._sequences.get(one, 0)
        self._sequences[one] = sequence + len(batch.values)
        return self._identity._replace(sequence=sequence)

    def begin_anew(self) -> None:
        """Bump the epoch of the same producer id, in which every partition begins at sequence 0
        (KIP-360).

        The Java client does so after an expired batch; no batch may be in flight.
        """
        assert self._identity is not None
        self._identity = self._identity._replace(epoch=self._identity.epoch + 1)
        self._sequences.clear()


def counts(load: Load, one: PartitionLedger) -> bool:
    """Return whether promises hold for records in this partition."""
    return not one.ended and one.topic not in load.promises.given_up


class UntilAcked:
    """An idempotent producer: the same batch with the same sequence until it is acknowledged."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._numbered = Numbered(load, name)

    async def step(self, rng: random.Random) -> None:
        load = self._load
        one = await self._numbered.choose(rng)
        if one is None:
            return
        batch, producer = self._numbered.next(one, rng)
        while counts(load, one):
            try:
                await load.produce(one, batch, -1, producer)
                return
            except (Unknown, ApiError) as error:
                if (
                    isinstance(error, ApiError)
                    and error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                ):
                    return
                load.failed(self._name, error)
            await asyncio.sleep(rng.uniform(0.05, 0.4))


def _some(rng: random.Random, kind: str, pauses_ms: tuple[float, ...]) -> list[ClientShape]:
    count = rng.choice([0, 1, 1, 2])
    return [ClientShape(kind, f"{kind} {n}", rng.choice(pauses_ms)) for n in range(count)]


def _draw_all(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    # The first producer always exists: the quiet phase requires an acknowledged record.
    first = ClientShape("acks all", "acks all", rng.choice((60.0, 150.0, 400.0)))
    return [first, *_some(rng, "acks all", (20.0, 60.0, 150.0))]


def _draw_one(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    return _some(rng, "acks 1", (60.0, 400.0))


def _draw_idempotent(rng: random.Random, topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    if all(one.unclean for one in topics):
        return []
    return _some(rng, "idempotent", (40.0, 150.0))


KINDS = {
    "acks all": ClientKind(
        "producers",
        "sends each batch once, to all of the ISR",
        _draw_all,
        lambda load, one: Once(load, -1, one.name).step,
    ),
    "acks 1": ClientKind(
        "producers",
        "sends each batch once, to the leader only",
        _draw_one,
        lambda load, one: Once(load, 1, one.name).step,
    ),
    "idempotent": ClientKind(
        "producers",
        "sends the same batch with the same sequence until it is acknowledged",
        _draw_idempotent,
        lambda load, one: UntilAcked(load, one.name).step,
    ),
}
