"""OffsetFetch (key 9), versions 1-10.

Behaviour: committed offsets of some partitions of a group, or of all that it has (topics null). A
partition without a committed offset is answered with offset -1 and no error, even if the group does
not exist. Only offsets committed in this broker's own log are returned. With `require_stable`,
offsets that an open transaction may change are refused; those are in logs that Apache Kafka wrote.

Versions: 2 all topics, an error for the whole answer (before that each partition has it), 5 leader
epoch, 7 require_stable (KIP-447), 8 several groups (KIP-709), 9 member id and epoch (only for the
protocol of KIP-848, ignored), 10 topics by id; a topic without an id now is then left out.

Errors: for a group NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; for a partition UNKNOWN_TOPIC_ID,
UNSTABLE_OFFSET_COMMIT (an open transaction has sent another offset; retriable).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.coordinators.group.deleted_topics import TopicLookup
from broker.coordinators.group.offsets import FetchedPartition, FetchedTopic
from broker.coordinators.group_coordinator import GroupCoordinator
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 1
MAX_VERSION: Final = 10
GROUP_ERRORS_SINCE: Final = 2
GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10

_Asked = Sequence[tuple[str, bytes, Sequence[int]]]
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = OffsetFetchResponse.OffsetFetchResponseTopics
_GroupPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = OffsetFetchResponse.OffsetFetchResponsePartition


def register(table: HandlerTable, coordinator: GroupCoordinator, topics: TopicLookup) -> None:
    def handle(context: RequestContext, request: OffsetFetchRequest) -> Reply:
        version = context.api_version
        if version < GROUPS_SINCE:
            return _one_group(coordinator, request, version)
        by_id = version >= TOPIC_IDS_SINCE
        return OffsetFetchResponse(
            groups=[
                _group(coordinator, topics, group, by_id, request.require_stable)
                for group in request.groups
            ]
        )

    table.register(ApiKey.OFFSET_FETCH, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _one_group(
    coordinator: GroupCoordinator, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    asked: _Asked | None = None
    if request.topics is not None:
        asked = [(topic.name, ZERO_UUID, topic.partition_indexes) for topic in request.topics]
    shard = coordinator.view(request.group_id)
    if not isinstance(shard, ErrorCode):
        stable = request.require_stable
        fetched = shard.fetch_offsets(request.group_id, asked, require_stable=stable)
        return OffsetFetchResponse(topics=[_topic(topic) for topic in fetched])
    if version >= GROUP_ERRORS_SINCE:
        return OffsetFetchResponse(error_code=shard)
    return OffsetFetchResponse(topics=[_topic(_refused(each, shard)) for each in asked or ()])


def _refused(asked: tuple[str, bytes, Sequence[int]], code: ErrorCode) -> FetchedTopic:
    name, topic_id, indexes = asked
    return FetchedTopic(
        name, topic_id, [FetchedPartition(index, error_code=code) for index in indexes]
    )


def _topic(topic: FetchedTopic) -> _Topic:
    return _Topic(
        name=topic.name,
        partitions=[
            _Partition(
                partition_index=each.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in topic.partitions
        ],
    )


def _group(
    coordinator: GroupCoordinator,
    topics: TopicLookup,
    group: OffsetFetchRequest.OffsetFetchRequestGroup,
    by_id: bool,
    stable: bool,
) -> _Group:
    shard = coordinator.view(group.group_id)
    if isinstance(shard, ErrorCode):
        return _Group(group_id=group.group_id, error_code=shard)
    if group.topics is None:
        fetched = shard.fetch_offsets(group.group_id, None, require_stable=stable)
        if by_id:
            fetched = _with_ids(topics, fetched)
        return _Group(group_id=group.group_id, topics=[_group_topic(each) for each in fetched])
    answers: list[FetchedTopic] = []
    for topic in group.topics:
        name = topics.topic_name(topic.topic_id) if by_id else topic.name
        asked = (name or "", topic.topic_id, topic.partition_indexes)
        if name is None:
            answers.append(_refused(asked, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            found = shard.fetch_offsets(group.group_id, [asked], require_stable=stable)
            answers.extend(found)
    return _Group(group_id=group.group_id, topics=[_group_topic(each) for each in answers])


def _with_ids(topics: TopicLookup, fetched: Sequence[FetchedTopic]) -> list[FetchedTopic]:
    known = ((topics.topic_id(topic.name), topic) for topic in fetched)
    return [topic._replace(topic_id=topic_id) for topic_id, topic in known if topic_id is not None]


def _group_topic(topic: FetchedTopic) -> _GroupTopic:
    return _GroupTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _GroupPartition(
                partition_index=each.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in topic.partitions
        ],
    )
