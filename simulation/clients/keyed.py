"""Clients of compacted topics: writers that put and delete keys, and readers that start from the
beginning repeatedly, while the cleaner removes old records (`judges.compacted`)."""

from __future__ import annotations

import random

from protocol.batch.records import Record, build_batch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import ProduceRequest
from simulation.clients.client import Unknown, fail_on
from simulation.clients.kind import ClientKind
from simulation.clients.load import REFUSED, REQUEST_MS, Access, Load
from simulation.judges.compacted import CompactedLedger, Keyed
from simulation.shapes.shape import ClientShape, TopicShape
from simulation.world.invariants import require

KEYS = 12
RARE_KEYS = 300
"""Number of keys of which most have their newest record in the part that the cleaner cleans."""
DELETIONS = 0.2


class KeyWriter:
    """Sends each batch once, with acks=all."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._access = Access(load.new_client())

    async def step(self, rng: random.Random) -> None:
        if not self._load.ledgers.keyed:
            return
        one = rng.choice(self._load.ledgers.keyed)
        leader = await self._access.leader(one)
        # As with other producers: few records in the quiet phase, so that slow links keep up.
        count = 1 if self._load.calm else rng.choice((1, 2, 6))
        puts = one.putting(self._record(rng) for _ in range(count))
        now_ms = self._load.clock.now_ms()
        records = [Record(timestamp=now_ms, key=p.record.key, value=p.record.value) for p in puts]
        data = ProduceRequest.PartitionProduceData(index=one.index, records=build_batch(records))
        topic = ProduceRequest.TopicProduceData(
            name=one.topic, topic_id=one.topic_id, partition_data=[data]
        )
        request = ProduceRequest(acks=-1, timeout_ms=REQUEST_MS // 2, topic_data=[topic])
        try:
            answer = await self._access.client._once(leader.node_id, request, REQUEST_MS)
        except (Unknown, ApiError):
            self._access.doubt()
            raise
        got = answer.responses[0].partition_responses[0]
        for at, put in enumerate(puts):
            put.refused = got.error_code in REFUSED
            put.offset = -1 if got.error_code else got.base_offset + at
        if got.error_code:
            self._access.doubt()
        fail_on(got.error_code, got.error_message)

    def _record(self, rng: random.Random) -> Keyed:
        count = RARE_KEYS if rng.random() < 0.3 else KEYS
        key = b"key %d" % rng.randrange(count)
        if rng.random() < DELETIONS:
            return Keyed(key, None)
        padding = b"." * rng.choice((0, 10, 100))
        return Keyed(key, b"%s:%d%s" % (self._name.encode(), self._load.number(), padding))


class KeyReader:
    """Reads one partition after another, each from its beginning to its end."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._one: CompactedLedger | None = None
        self._at = 0

    async def step(self, rng: random.Random) -> None:
        load = self._load
        if self._one not in load.ledgers.keyed or rng.random() < 0.05:
            self._one, self._at = (
                (rng.choice(load.ledgers.keyed) if load.ledgers.keyed else None),
                0,
            )
        one = self._one
        if one is None:
            return
        try:
            _, self._at = await load.fetch_keyed(one, self._at)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            lost = one.ended or one.topic in load.promises.given_up
            require(lost, f"P6: {one}: {self._at} is out of range")
            self._at = 0


def _is_compacted(topics: tuple[TopicShape, ...]) -> bool:
    return any(one.compacted for one in topics)


def _draw_writers(rng: random.Random, topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    count = rng.choice((1, 1, 2)) if _is_compacted(topics) else 0
    pause_ms = rng.choice((50.0, 100.0, 300.0))
    return [ClientShape("key writer", f"key writer {n}", pause_ms) for n in range(count)]


def _draw_readers(rng: random.Random, topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    pause_ms = rng.choice((50.0, 200.0))
    return [ClientShape("key reader", "key reader", pause_ms)] if _is_compacted(topics) else []


KINDS = {
    "key writer": ClientKind(
        "keyed",
        "writes and deletes keys of compacted topics",
        _draw_writers,
        lambda load, one: KeyWriter(load, one.name).step,
        apart=True,
    ),
    "key reader": ClientKind(
        "keyed",
        "reads compacted topics from the beginning, again and again",
        _draw_readers,
        lambda load, _one: KeyReader(load).step,
        apart=True,
    ),
}
