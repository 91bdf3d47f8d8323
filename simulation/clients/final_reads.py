"""Reads at the end of a run: every log from its start to its end, and every committed offset."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from protocol.errors import ApiError
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from simulation.clients.client import fail_on
from simulation.clients.load import OF_MOVES, PATIENCE, Load
from simulation.judges.client_history import LAST_READER
from simulation.judges.compacted import Keyed
from simulation.judges.groups import committed_offsets
from simulation.judges.partitions import OFFSETS_TOPIC
from simulation.world.invariants import require

T = TypeVar("T")

LAST_TRIES, LAST_PAUSE_S = 20, 0.2
"""Retries of the last reader while leaders move, which preferred leaders also do in the quiet
phase."""


class FinalReads:
    """The last reader of one world."""

    def __init__(self, load: Load) -> None:
        self._load = load

    async def _lasting(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request while its leader has just moved."""
        for _ in range(LAST_TRIES):
            try:
                return await ask()
            except ApiError as error:
                if error.code not in OF_MOVES:
                    raise
            self._load.doubt()
            await asyncio.sleep(LAST_PAUSE_S)
        return await ask()

    async def read_all(self) -> None:
        """Read every log that keeps all its records from its start to its end, at the end of the
        run."""
        self._load.doubt()
        for one in self._load.ledgers.partitions:
            if one.topic in self._load.promises.given_up | self._load.promises.may_shrink:
                continue
            _, end = await self._load.client.bounds(one.topic, one.index)
            at = empty = 0
            while at < end or not at:
                records = await self._lasting(
                    partial(self._load.fetch, one, at, LAST_READER, "final")
                )
                if not records:
                    empty += 1
                    if at >= end or empty > PATIENCE:
                        break
                    continue  # a read from the tier may take longer than a fetch waits
                at = records[-1][0] + 1

    async def read_compacted(self) -> None:
        """Read every compacted log at the end of the run: the newest record of each key is
        there."""
        for one in self._load.ledgers.keyed:
            if one.topic in self._load.promises.given_up:
                continue
            _, end = await self._load.client.bounds(one.topic, one.index)
            at, whole = 0, dict[int, Keyed]()
            while at < end:
                found, next_at = await self._lasting(partial(self._load.fetch_keyed, one, at))
                whole |= found
                require(next_at > at, f"H12: {one}: nothing at {at}, the end is {end}")
                at = next_at
            one.read_whole(
                whole, self._load.promises.partitions[one.topic_id, one.index].keys.undead
            )

    async def read_offsets(self) -> None:
        """Check that coordinators return the offsets that a replay of their log yields (G10)."""
        promises = self._load.promises
        logs = [one for one in promises.partitions.values() if one.name == f"{OFFSETS_TOPIC}-0"]
        for name in self._load.groups if logs else ():
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
                    f"G10: {name}: {where} is at {found.get(where)}, its log has "
                    f"{replayed.get(where)}",
                )

    async def _all_offsets(self, group: str) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        """Fetch the committed offsets of all partitions of the group."""
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        self._load.client.forget_coordinator(group)
        answer = await self._load.client.of_group(group, OffsetFetchRequest(groups=[asked]))
        fail_on(answer.groups[0].error_code)
        return answer.groups[0]
