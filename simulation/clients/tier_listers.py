"""A client that requests all offsets of a tiered partition that ListOffsets has (S8)."""

from __future__ import annotations

import random

from client.leaders import Leader
from protocol.errors import ApiError, ErrorCode
from simulation.clients.kind import ClientKind
from simulation.clients.load import PATIENCE, REQUEST_MS, Load
from simulation.clients.readers import ask_offset
from simulation.judges.ledger import PartitionLedger
from simulation.judges.tier_offsets import Listed, Reported
from simulation.shapes.shape import TIERED

LATEST, EARLIEST, HIGHEST, LOCAL, TIERED_END, PENDING = -1, -2, -3, -4, -5, -6
STORE = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT})
"""Errors that a look-up by time may get while the store or the metadata are unavailable."""


class TierLister:
    """Sends one request after the other, and hands the responses to the judge of tiers."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._in_vain = 0

    async def step(self, rng: random.Random) -> None:
        load = self._load
        tiered = [
            one
            for one in load.ledgers.partitions
            if load.promises.configs(one.topic).get(TIERED) == "true"
        ]
        if not tiered:
            return
        one = rng.choice(tiered)
        leader = await load.leader(one)
        truth = load.promises.partitions.get((one.topic_id, one.index))
        if truth is None or not truth.end:
            return
        wanted_ms = truth.times[rng.randrange(truth.end)] + rng.choice((-1, 0, 0, 1))
        committed, at_s, strict = truth.end, load.now_s(), load.strict
        try:
            listed = Listed(
                name=f"broker {leader.node_id}, {one}",
                key=(one.topic_id, one.index),
                leader_id=leader.node_id,
                committed=committed,
                at_s=at_s,
                strict=strict,
                wanted_ms=wanted_ms,
                first=await self._ask(one, leader, EARLIEST),
                local=await self._ask(one, leader, LOCAL),
                tiered=await self._ask(one, leader, TIERED_END),
                pending=await self._ask(one, leader, PENDING),
                by_time=await self._ask(one, leader, wanted_ms),
                highest=await self._ask(one, leader, HIGHEST),
                start=await self._ask(one, leader, EARLIEST),
                latest=await self._ask(one, leader, LATEST),
            )
        except ApiError as error:
            self._in_vain += 1
            if error.code in STORE and not (strict and self._in_vain > PATIENCE):
                return
            raise
        self._in_vain = 0
        # Otherwise a namesake may have answered some of the requests, which name the topic.
        if load.promises.exists(one.topic_id) and one.topic not in load.ledgers.namesakes:
            load.listed.append(listed)

    async def _ask(self, one: PartitionLedger, leader: Leader, timestamp: int) -> Reported:
        got = await ask_offset(self._load, one, leader, timestamp, REQUEST_MS // 2)
        return Reported(got.offset, got.timestamp, got.leader_epoch)


KINDS = {
    "tier lister": ClientKind(
        "tier_listers",
        "asks for all offsets of tiered partitions",
        lambda _rng, _topics: [],
        lambda load, _one: TierLister(load).step,
    )
}
