"""Offsets of partitions and groups, for the commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kraftbox.cli.client import Client, check
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest

Partition: TypeAlias = tuple[str, int]

LATEST = -1
EARLIEST = -2
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
    by_topic: dict[str, list[int]] = defaultdict(list)
    for name, index in partitions:
        by_topic[name].append(index)
    result = {}
    for name, indexes in by_topic.items():
        found = (await client.metadata([name])).topics[0]
        if missing_ok and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        check(found.error_code, name)
        leaders = {p.partition_index: p.leader_id for p in found.partitions}
        for index in indexes:
            if missing_ok and leaders.get(index, -1) < 0:
                continue
            result[name, index] = await _list_offset(client, name, index, timestamp, leaders[index])
    return result


async def _list_offset(client: Client, name: str, index: int, timestamp: int, leader: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp
                    )
                ],
            )
        ],
    )
    answer = (await client.send(request, node=leader)).topics[0].partitions[0]
    check(answer.error_code, f"{name}-{index}")
    return answer.offset


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
