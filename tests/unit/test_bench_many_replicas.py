"""Conclusions of `bench.many_replicas` from given answers, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bench.at_scale import PIECE, Figures, until_served
from bench.many_replicas import VICTIM, successors
from protocol.messages.metadata import MetadataRequest, MetadataResponse


class Told:
    """A stand-in for a connection to a broker that returns these partitions."""

    def __init__(self, partitions: Sequence[tuple[int, list[int], list[int]]]) -> None:
        self._partitions = [
            MetadataResponse.MetadataResponsePartition(
                partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr
            )
            for index, (leader, replicas, isr) in enumerate(partitions)
        ]

    async def request(self, message: MetadataRequest, *_: object) -> MetadataResponse:
        topic = MetadataResponse.MetadataResponseTopic(partitions=self._partitions)
        return MetadataResponse(topics=[topic])


def test_the_next_replica_in_the_isr_takes_over() -> None:
    told: Any = Told(
        [
            (VICTIM, [VICTIM, 3, 1], [1, VICTIM, 3]),
            (VICTIM, [VICTIM, 3, 1], [1, VICTIM]),
            (1, [1, VICTIM, 3], [1, VICTIM, 3]),
        ]
    )
    assert asyncio.run(successors(told, ["t"])) == {3: [("t", 0)], 1: [("t", 1)]}


def test_until_served_probes_every_partition_until_none_refuses() -> None:
    moved = {1: [("t", index) for index in range(2 * PIECE)], 3: [("u", 0)]}
    refusals = {("t", 0): 2, ("t", PIECE + 7): 1}
    asked: list[tuple[object, tuple[str, int]]] = []

    async def probe(connection: object, piece: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        left = [one for one in piece if refusals.get(one, 0) > 0]
        for one in piece:
            asked.append((connection, one))
            refusals[one] = refusals.get(one, 0) - 1
        return left

    connections: Any = {1: "first", 3: "third"}
    asyncio.run(until_served(connections, moved, probe))
    assert {one for _, one in asked} == {*moved[1], *moved[3]}
    assert asked.count(("first", ("t", 0))) == 3
    assert asked.count(("first", ("t", PIECE + 7))) == 2
    assert asked.count(("third", ("u", 0))) == 1


def test_the_table_has_the_columns_that_were_measured() -> None:
    figures = Figures()
    figures.note("kraftbox", "a", 1.0)
    assert figures.table(10_000).splitlines()[0] == "| 10,000 partitions | Kraftbox |"
    figures.note("kafka", "b", 2.0)
    assert figures.table(10_000).splitlines()[2:] == ["| a | 1.00 | - |", "| b | - | 2.00 |"]
    figures.note("kafka", "b", 3.0)
    figures.note("kafka", "b", 1.5)
    assert figures.table(10_000).endswith("| b | - | 1.50 |"), "of several rounds the least"
