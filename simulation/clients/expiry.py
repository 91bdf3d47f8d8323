"""Clients whose offsets expire soon (G9), by the retention time in OffsetCommit up to version 4."""

from __future__ import annotations

import random

from protocol.errors import ApiError
from protocol.messages.offset_commit import OffsetCommitRequest
from simulation.clients.client import Unknown, fail_on
from simulation.clients.kind import ClientKind
from simulation.clients.load import REQUEST_MS, Load
from simulation.shapes.shape import ClientShape, TopicShape

VERSION = 4
"""The last version with a retention time."""
GONE_TIMES = 5
"""Number of fetches that must miss an expired offset before the next commit."""


class BriefCommitter:
    """Commits an offset that lasts `lasts_ms` (-1: the cluster's retention), and fetches it until
    and after it expires. Responses are those of a register (`GroupTruth.fetched`). The judge of
    groups decides whether an offset may or must expire, and empties the register. `expired` counts
    offsets that are gone.
    """

    def __init__(self, load: Load, one: ClientShape) -> None:
        self._load = load
        self._client = load.new_client()
        self._topic: str = one.args["topic"]
        self._group: str = one.args["group"]
        self._lasts_ms: int = one.args["lasts_ms"]
        self._truth = load.group(self._group)
        self._known = False
        self._gone = 0

    async def step(self, rng: random.Random) -> None:
        ledger = self._load.ledgers.partition(self._topic, 0)
        if ledger is None or self._topic in self._load.promises.may_vanish:
            return
        try:
            node_id = await self._client.coordinator(self._group)
            await self._client.cluster.find_broker(node_id, REQUEST_MS)
            if not self._known or self._gone >= GONE_TIMES or rng.random() < 0.1:
                await self._commit(node_id, ledger.topic_id)
            else:
                await self._ask(node_id, ledger.topic_id)
        except OSError as error:
            raise Unknown(str(error)) from error
        except (ApiError, Unknown):
            self._client.forget_coordinator(self._group)
            raise

    async def _commit(self, node_id: int, topic_id: bytes) -> None:
        offset = self._load.number()
        commit = self._truth.committing((topic_id, 0), offset, -1, self._load.now_s())
        one = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=self._lasts_ms,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=self._topic, partitions=[one])
            ],
        )
        answer = await self._client.cluster.request_broker(
            node_id, request, REQUEST_MS, version=VERSION
        )
        fail_on(answer.topics[0].partitions[0].error_code)
        self._truth.committed(commit, self._load.now_s())
        self._known, self._gone = True, 0

    async def _ask(self, node_id: int, topic_id: bytes) -> None:
        asked_s, led = self._load.now_s(), self._load.coordinates(node_id)
        told = await self._client.committed(self._group, self._topic, topic_id, 0)
        if not led or self._load.coordinates(node_id) != led:
            return
        if self._topic in self._load.promises.may_vanish:
            return
        self._truth.fetched((topic_id, 0), told, asked_s, self._load.now_s())
        if told < 0:
            self._gone += 1
            self._load.expired += self._gone == 1


def _draw(_rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    """Return no clients: `simulation.shapes.expiry` draws them, with settings that expire
    offsets."""
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
