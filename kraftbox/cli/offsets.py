"""Offsets of partitions and groups, for the commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kraftbox.cli.client import Client, check
from kraftbox.cli.output import CommandFailed
from protocol.errors import ApiError
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest

Partition: TypeAlias = tuple[str, int]

LATEST = -1
EARLIEST = -2
TIMEOUT_MS = 10_000
# The last versions that name topics; later ones need their ids.
OFFSET_COMMIT_BY_NAME = 9
OFFSET_FETCH_BY_NAME = 9


async def partitions_of(client: Client, topics: Iterable[str]) -> list[Partition]:
    """Every partition of the topics, in order."""
    found = []
    for name in topics:
        topic = await client.topic(name)
        found += [(name, index) for index in sorted(p.partition_index for p in topic.partitions)]
    return found


async def end_offsets(
    client: Client, partitions: Iterable[Partition], timestamp: int, *, missing_ok: bool = False
) -> dict[Partition, int]:
    """First offset at or after `timestamp` (-1 when there is none), or by EARLIEST and LATEST.

    With `missing_ok` partitions that no longer exist are left out.
    """
    wanted = list(partitions)
    if missing_ok:
        wanted = await _existing(client, wanted)
    result = {}
    for name, index in wanted:
        try:
            found = await client.cluster.list_offset(name, index, timestamp, timeout_ms=TIMEOUT_MS)
        except ApiError as error:
            raise CommandFailed(f"{name}-{index}: {error}") from None
        result[name, index] = found.offset
    return result


async def check_in_range(client: Client, positions: Mapping[Partition, int]) -> None:
    """Raises CommandFailed for a position that the log does not have; its end is allowed: there the
    next record will be."""
    first = await end_offsets(client, positions, EARLIEST)
    last = await end_offsets(client, positions, LATEST)
    for (name, index), offset in positions.items():
        low, high = first[name, index], last[name, index]
        if not low <= offset <= high:
            raise CommandFailed(
                f"{name}-{index} has no offset {offset}: it begins at {low} and ends at {high}"
            )


async def _existing(client: Client, partitions: Iterable[Partition]) -> list[Partition]:
    """Those of the partitions that have a leader now."""
    wanted = set(partitions)
    topics = (await client.metadata(sorted({name for name, _ in wanted}))).topics
    led = {
        (t.name or "", p.partition_index) for t in topics for p in t.partitions if p.leader_id >= 0
    }
    return sorted(wanted & led)


async def committed(client: Client, group: str) -> dict[Partition, int]:
    """What the group has committed."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)]
    )
    reply = await client.ask_coordinator(group, request, version=OFFSET_FETCH_BY_NAME)
    answer = reply.groups[0]
    check(answer.error_code, group)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


async def commit(
    client: Client,
    group: str,
    offsets: Mapping[Partition, int],
    *,
    member_id: str = "",
    generation: int = -1,
) -> None:
    """Commit offsets, for a member of the group or, without one, for an empty group."""
    by_topic: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (name, index), offset in offsets.items():
        by_topic[name].append((index, offset))
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset
                    )
                    for index, offset in entries
                ],
            )
            for name, entries in by_topic.items()
        ],
    )
    reply = await client.ask_coordinator(group, request, version=OFFSET_COMMIT_BY_NAME)
    for topic in reply.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"{topic.name}-{partition.partition_index}")
