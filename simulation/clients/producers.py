"""Shell: Producers: each batch sent once, or, the idempotent ones, until it is acknowledged."""

from __future__ import annotations

import asyncio
import random

from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from simulation.clients.client import Unknown
from simulation.clients.load import Load
from simulation.judges.ledger import PartitionLedger


class Once:
    """Sends each batch once. A late first attempt may overtake, so every batch has a producer of
    its own for the ledger."""

    def __init__(self, load: Load, acks: int) -> None:
        self._load = load
        self._acks = acks

    async def step(self, rng: random.Random) -> None:
        load = self._load
        one = rng.choice(load.partitions)
        number, values = load.values(f"a{self._acks}", rng)
        batch = one.sending(f"a{self._acks}:{number}", number, values)
        await load.produce(one, batch, self._acks)


class UntilAcked:
    """An idempotent producer: the same batch with the same sequence until it is acknowledged."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._identity: Producer | None = None
        self._sequences: dict[PartitionLedger, int] = {}

    async def step(self, rng: random.Random) -> None:
        load = self._load
        if self._identity is None:
            self._identity = await load.client.producer()
        kept = [one for one in load.partitions if one.topic not in load.promises.given_up]
        one = rng.choice(kept)  # elsewhere its sequence may be lost
        number, values = load.values(self._name, rng)
        sequence = self._sequences.get(one, 0)
        self._sequences[one] = sequence + len(values)
        batch = one.sending(self._name, number, values)
        while True:
            try:
                await load.produce(one, batch, -1, self._identity._replace(sequence=sequence))
                return
            except (Unknown, ApiError) as error:
                if (
                    isinstance(error, ApiError)
                    and error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                ):
                    return
                load.failed(self._name, error)
            await asyncio.sleep(rng.uniform(0.05, 0.4))
