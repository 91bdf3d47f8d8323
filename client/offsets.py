"""Shell: Requests about offsets of partitions and of groups."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from client.cluster_client import EARLIEST, LATEST, REQUEST_TIMEOUT_MS, ClusterClient
from client.errors import OffsetOutOfRange, Refused, check
from client.leaders import TopicPartition
from client.retries import RETRY_WAIT_MS, Deadline
from protocol.errors import ApiError
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest

# The last versions with topic names; later ones need topic IDs.
_OFFSET_COMMIT_BY_NAME = 9
_OFFSET_FETCH_BY_NAME = 9


async def partitions_of(client: ClusterClient, topics: Iterable[str]) -> list[TopicPartition]:
    """Return every partition of the topics, in order, also those without a leader.

    Raises Refused, OSError.
    """
    found = []
    for name in topics:
        topic = await client.topic(name)
        found += [(name, index) for index in sorted(p.partition_index for p in topic.partitions)]
    return found


async def led_partitions(
    client: ClusterClient, partitions: Iterable[TopicPartition], timeout_ms: float
) -> list[TopicPartition]:
    """Return the partitions that have a leader, after at most `timeout_ms` of waiting for others.

    Raises Refused for a topic that does not exist, OSError.
    """
    wanted = list(partitions)
    deadline = Deadline(timeout_ms)
    while leaderless := [key for key in wanted if not client.cache.is_led(key)]:
        if deadline.left_ms <= RETRY_WAIT_MS:
            break
        await asyncio.sleep(RETRY_WAIT_MS / 1000.0)
        for name in sorted({name for name, _ in leaderless}):
            await client.topic(name, deadline.left_ms)
    return [key for key in wanted if key not in leaderless]


async def offsets_at(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    *,
    missing_ok: bool = False,
    timeout_ms: float = REQUEST_TIMEOUT_MS,
) -> dict[TopicPartition, int]:
    """Return the first offset at or after a time by partition, -1 if there is no such record.

    EARLIEST means the log start, LATEST the log end. With `missing_ok`, partitions that no longer
    exist are left out. `timeout_ms` is for each partition. Raises Refused, OSError.
    """
    wanted = list(partitions)
    if missing_ok:
        wanted = await _existing(client, wanted)
    result = {}
    for name, index in wanted:
        try:
            found = await client.list_offset(name, index, timestamp_ms, timeout_ms=timeout_ms)
        except ApiError as error:
            raise Refused(f"{name}-{index}", error.code, error.message) from None
        result[name, index] = found.offset
    return result


async def check_in_range(client: ClusterClient, positions: Mapping[TopicPartition, int]) -> None:
    """Raise OffsetOutOfRange for a position outside the log; the log end is allowed."""
    first = await offsets_at(client, positions, EARLIEST)
    last = await offsets_at(client, positions, LATEST)
    for (name, index), offset in positions.items():
        low, high = first[name, index], last[name, index]
        if not low <= offset <= high:
            raise OffsetOutOfRange(
                f"{name}-{index}: offset {offset} is out of range ({low} to {high})"
            )


async def _existing(
    client: ClusterClient, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions that have a leader now."""
    wanted = set(partitions)
    topics = (await client.metadata(sorted({name for name, _ in wanted}))).topics
    existing = {
        (t.name or "", p.partition_index) for t in topics for p in t.partitions if p.leader_id >= 0
    }
    return sorted(wanted & existing)


async def committed(client: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group. Raises Refused, OSError."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)]
    )
    reply = await client.request_coordinator(group, request, version=_OFFSET_FETCH_BY_NAME)
    answer = reply.groups[0]
    check(answer.error_code, group)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


async def commit(
    client: ClusterClient,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    member_id: str = "",
    generation: int = -1,
) -> None:
    """Commit offsets for a member of the group, or for an empty group.

    Raises Refused, OSError.
    """
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
    reply = await client.request_coordinator(group, request, version=_OFFSET_COMMIT_BY_NAME)
    for topic in reply.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"{topic.name}-{partition.partition_index}")
