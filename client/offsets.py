"""Shell: offsets of partitions and of groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from client.cluster_client import EARLIEST, LATEST, REQUEST_TIMEOUT_MS, ClusterClient
from client.errors import OffsetOutOfRange, Refused, check
from client.leaders import TopicPartition
from protocol.errors import ApiError
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest

# The last versions that name topics; later ones need their ids.
_OFFSET_COMMIT_BY_NAME = 9
_OFFSET_FETCH_BY_NAME = 9


async def partitions_of(client: ClusterClient, topics: Iterable[str]) -> list[TopicPartition]:
    """Every partition of the topics, in order. Raises Refused, OSError."""
    found = []
    for name in topics:
        topic = await client.topic(name)
        found += [(name, index) for index in sorted(p.partition_index for p in topic.partitions)]
    return found


async def offsets_at(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    *,
    missing_ok: bool = False,
) -> dict[TopicPartition, int]:
    """The first offset at or after that time by partition, -1 where there is none; with EARLIEST
    the first of the log, with LATEST the next one.

    With `missing_ok` partitions that no longer exist are left out. Raises Refused, OSError.
    """
    wanted = list(partitions)
    if missing_ok:
        wanted = await _existing(client, wanted)
    result = {}
    for name, index in wanted:
        try:
            found = await client.list_offset(
                name, index, timestamp_ms, timeout_ms=REQUEST_TIMEOUT_MS
            )
        except ApiError as error:
            raise Refused(f"{name}-{index}", error.code, error.message) from None
        result[name, index] = found.offset
    return result


async def check_in_range(client: ClusterClient, positions: Mapping[TopicPartition, int]) -> None:
    """Raises OffsetOutOfRange for a position that the log does not have; its end is allowed: there
    the next record will be."""
    first = await offsets_at(client, positions, EARLIEST)
    last = await offsets_at(client, positions, LATEST)
    for (name, index), offset in positions.items():
        low, high = first[name, index], last[name, index]
        if not low <= offset <= high:
            raise OffsetOutOfRange(
                f"{name}-{index} has no offset {offset}: it begins at {low} and ends at {high}"
            )


async def _existing(
    client: ClusterClient, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Those of the partitions that have a leader now."""
    wanted = set(partitions)
    topics = (await client.metadata(sorted({name for name, _ in wanted}))).topics
    led = {
        (t.name or "", p.partition_index) for t in topics for p in t.partitions if p.leader_id >= 0
    }
    return sorted(wanted & led)


async def committed(client: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """What a group has committed. Raises Refused, OSError."""
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
    """Commit offsets, for a member of the group or, without one, for an empty group.

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
