"""Readers: consumers of one partition, and a client that lists the latest offsets."""

from __future__ import annotations

import random

from client.cluster_client import LATEST
from client.leaders import Leader
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from simulation.clients.client import fail_on
from simulation.clients.kind import ClientKind
from simulation.clients.load import REQUEST_MS, Load, Step
from simulation.judges.ledger import PartitionLedger
from simulation.shapes.shape import ClientShape, TopicShape
from simulation.world.invariants import require

AGAIN = 0.02


async def ask_offset(
    load: Load, one: PartitionLedger, leader: Leader, timestamp: int, timeout_ms: int = REQUEST_MS
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    """Request the offset of a timestamp, or of a negative one with a special meaning, from a
    leader.

    Raises: Unknown without a response, ApiError for an error response.
    """
    wish = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=one.index, timestamp=timestamp, current_leader_epoch=leader.epoch
    )
    topic = ListOffsetsRequest.ListOffsetsTopic(name=one.topic, partitions=[wish])
    request = ListOffsetsRequest(replica_id=-1, timeout_ms=timeout_ms, topics=[topic])
    answer = await load.ask(leader, request)
    got = answer.topics[0].partitions[0]
    if got.error_code:
        load.doubt()
    fail_on(got.error_code)
    return got


class Lister:
    """Checks that the latest offset that a leader reports is never below an earlier one (P14).

    ListOffsets names the topic, so a namesake may answer it. Therefore responses are ignored if the
    topic was deleted in the meantime (seed 321 with a tier). They are also ignored if its name had
    another topic before, whose end a broker may not know yet (seed 1059).
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._latest: dict[PartitionLedger, dict[int, int]] = {}

    async def step(self, rng: random.Random) -> None:
        load = self._load
        if not load.ledgers.partitions:
            return
        one = rng.choice(load.ledgers.partitions)
        leader = await load.leader(one)
        got = await ask_offset(load, one, leader, LATEST)
        promises = load.promises
        if one.topic in promises.given_up or one.topic in load.ledgers.namesakes:
            return
        if not promises.exists(one.topic_id):
            return
        known = self._latest.setdefault(one, {})
        for epoch, offset in known.items():
            require(
                epoch > leader.epoch or got.offset >= offset,
                f"P14: {one}: latest is {got.offset} in epoch {leader.epoch}, it was {offset} in "
                f"{epoch}",
            )
        known[leader.epoch] = max(known.get(leader.epoch, 0), got.offset)


class Consumer:
    """Reads one partition from the beginning, and starts over at a share `again` of its steps."""

    def __init__(
        self, load: Load, topic: str, index: int, again: float = AGAIN, name: str = ""
    ) -> None:
        self._load = load
        self._again = again
        self._name = name or f"reader of {topic}-{index}"
        self._where = (topic, index)
        self._one: PartitionLedger | None = None
        self._at = 0

    async def step(self, rng: random.Random) -> None:
        one = self._load.ledgers.partition(*self._where)
        if one is not self._one or rng.random() < self._again:
            self._one = one
            self._place(0)
        if one is None:
            return  # its topic is deleted
        try:
            records = await self._load.fetch(one, self._at, self._name)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._place(await self._nearest(one))
            return
        self._load.consumed(one, records)
        if records:
            require(records[0][0] == self._at, f"H5: {one}: {records[0][0]} after {self._at}")
            self._at = records[-1][0] + 1

    def _place(self, at: int) -> None:
        self._at = at
        if self._one is not None:
            self._load.placed(self._name, self._one, at)

    async def _nearest(self, one: PartitionLedger) -> int:
        """Return the offset to continue at after records here were deleted or lost."""
        promises = self._load.promises
        if one.topic in promises.given_up:
            return 0
        start, end = await self._load.client.bounds(one.topic, one.index)
        truth = promises.partitions.get((one.topic_id, one.index))
        gone = start if truth is None else max(start, truth.highest_start)
        require(
            one.ended or (one.topic in promises.may_shrink and self._at < gone),
            f"P6: {one}: {self._at} is out of range, {start} to {end} is there",
        )
        return start


def _draw_lister(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    return [ClientShape("lister", "lister", 400.0)] if rng.random() < 0.7 else []


def _draw_consumers(rng: random.Random, topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    return [
        ClientShape(
            "consumer",
            f"consumer of {topic.name}-{index}",
            rng.choice((50.0, 100.0, 300.0)),
            {"topic": topic.name, "partition": index},
        )
        for topic in topics
        for index in range(topic.partitions)
    ]


def _consumer(load: Load, one: ClientShape) -> Step:
    again = one.args.get("again")
    if again is None:
        return Consumer(load, one.args["topic"], one.args["partition"]).step
    return Consumer(load, one.args["topic"], one.args["partition"], again, one.name).step


KINDS = {
    "lister": ClientKind(
        "readers", "asks for latest offsets", _draw_lister, lambda load, _one: Lister(load).step
    ),
    "consumer": ClientKind("readers", "reads one partition", _draw_consumers, _consumer),
}
