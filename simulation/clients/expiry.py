"""A client whose offsets expire soon (G9): OffsetCommit up to version 4 says how long they last.

For schedules written by hand, with wall clocks that nobody moves; no seed draws it.
"""

from __future__ import annotations

import asyncio
import random

from protocol.errors import ApiError
from protocol.messages.offset_commit import OffsetCommitRequest
from simulation.clients.client import Unknown, fail_on
from simulation.clients.kind import ClientKind
from simulation.clients.load import REQUEST_MS, Load
from simulation.shape import ClientShape, TopicShape
from simulation.world.invariants import require

VERSION = 4
"""The last with a retention time."""
GONE_TIMES = 5
"""So often an offset that has expired is asked for again before there is a new one."""


class BriefCommitter:
    """Commits an offset for `lasts_ms`, asks for it until it is gone, and asks again. It is gone
    `late_ms` after its time at the latest: the coordinator looks now and then, and may be another
    one by then. `expired` counts."""

    def __init__(self, load: Load, one: ClientShape) -> None:
        self._load = load
        self._client = load.new_client()
        self._topic: str = one.args["topic"]
        self._group: str = one.args["group"]
        self._lasts_s = one.args["lasts_ms"] / 1000
        self._late_s = one.args["late_ms"] / 1000
        self._offset = 0
        self._may_be: set[int] = set()
        """Offsets whose commit was not answered: it may be carried out yet."""
        self._begun_s = self._ended_s = 0.0
        self._known = False
        self._gone = 0

    async def step(self, _rng: random.Random) -> None:
        ledger = next((one for one in self._load.partitions if one.topic == self._topic), None)
        if ledger is None:
            return
        try:
            node_id = await self._client.coordinator(self._group)
            await self._client.cluster.find_broker(node_id, REQUEST_MS)
            if self._known:
                await self._ask(ledger.topic_id)
            else:
                await self._commit(node_id)
        except OSError as error:
            raise Unknown(str(error)) from error
        except (ApiError, Unknown):
            self._client.forget_coordinator(self._group)
            raise

    async def _commit(self, node_id: int) -> None:
        self._offset += 1
        self._may_be.add(self._offset)
        one = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self._offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=int(self._lasts_s * 1000),
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=self._topic, partitions=[one])
            ],
        )
        now_s = asyncio.get_running_loop().time
        begun_s = now_s()
        answer = await self._client.cluster.request_broker(
            node_id, request, REQUEST_MS, version=VERSION
        )
        fail_on(answer.topics[0].partitions[0].error_code)
        self._begun_s, self._ended_s = begun_s, now_s()
        self._known, self._gone = True, 0

    async def _ask(self, topic_id: bytes) -> None:
        now_s = asyncio.get_running_loop().time
        asked_s = now_s()
        told = await self._client.committed(self._group, self._topic, topic_id, 0)
        where = f"{self._group}: {self._offset}, committed for {self._lasts_s:g} s,"
        if told < 0:
            lasted_s = now_s() - self._begun_s
            require(lasted_s >= self._lasts_s, f"G9: {where} is gone after {lasted_s:.3f} s")
            self._gone += 1
            self._load.expired += self._gone == 1
            self._known = self._gone < GONE_TIMES
            return
        require(told in self._may_be, f"G9: {where} is told as {told}")
        require(not self._gone or told != self._offset, f"G9: {where} is back")
        lasted_s = asked_s - self._ended_s
        require(
            told != self._offset or lasted_s <= self._lasts_s + self._late_s,
            f"G9: {where} is there after {lasted_s:.3f} s",
        )


def _draw(_rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    return []


KINDS = {
    "brief committer": ClientKind(
        "expiry",
        "commits offsets that expire soon",
        _draw,
        lambda load, one: BriefCommitter(load, one).step,
        apart=True,
    )
}
