"""OffsetCommit, OffsetFetch and OffsetDelete.

A commit is answered when its record is committed. A fetch returns committed state only, so that an
offset once returned is never withdrawn. The existence of topics is determined by the caller's
`TopicLookup` (the present metadata image).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.coordinators.group.core import Core, membership_error
from broker.coordinators.group.decision import Decision
from broker.coordinators.group.deleted_topics import TopicLookup
from broker.coordinators.group.hard_state import GroupOffsets
from broker.coordinators.group.live_group import CONSUMER_PROTOCOL_TYPE, Caller, LiveGroup
from broker.coordinators.group.records import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetRecord,
    TopicPartition,
)
from broker.coordinators.group.states import GroupState
from broker.coordinators.group.transactions import NO_PENDING, PendingOffsets
from broker.coordinators.runtime.decision import Now
from protocol.errors import ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

NO_OFFSET: Final = -1
EXPIRY_MS_MAX: Final = 2**63 - 1
"""Maximum of the record's field: a client's retention time may exceed it."""

_TOPIC_IDS_FROM: Final = 10
_GROUP_ID_NOT_FOUND_FROM: Final = 9


# -- OffsetCommit


class _Entry(NamedTuple):
    """A partition of the request whose topic exists, and its place in the response."""

    result: OffsetCommitResponse.OffsetCommitResponsePartition
    at: TopicPartition
    asked: OffsetCommitRequest.OffsetCommitRequestPartition
    topic_id: bytes


def offset_commit_error(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Return a response that refuses every partition with one error."""
    response = OffsetCommitResponse()
    for topic in request.topics:
        results = _result_topic(response, topic)
        for partition in topic.partitions:
            _result(results, partition.partition_index, code)
    return response


def decide_offset_commit(
    core: Core, caller: Caller, request: OffsetCommitRequest, topics: TopicLookup, now: Now
) -> Decision:
    """Decide a commit. Missing partitions are refused individually; an error of the group or the
    member refuses all others."""
    response, entries = _sort_out(caller, request, topics)
    if not entries:
        return Decision(reply=response)
    code = _commit_refusal(core, caller, request)
    if code is not None:
        _refuse(entries, code)
        return Decision(reply=response)
    expire_ms = NO_TIMESTAMP
    if request.retention_time_ms != -1:
        expire_ms = min(now.wall_ms + request.retention_time_ms, EXPIRY_MS_MAX)
    decision = Decision(reply=response)
    accepted: list[_Entry] = []
    for entry in entries:
        metadata = entry.asked.committed_metadata or ""
        if is_longer_than(metadata, core.config.offset_metadata_max_bytes):
            entry.result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        committed = CommittedOffset(
            offset=entry.asked.committed_offset,
            leader_epoch=max(entry.asked.committed_leader_epoch, NO_LEADER_EPOCH),
            metadata=metadata,
            commit_timestamp_ms=now.wall_ms,
            expire_timestamp_ms=expire_ms,
            # The version of the record with an expiry has no field for a topic id.
            topic_id=entry.topic_id if expire_ms == NO_TIMESTAMP else ZERO_UUID,
        )
        accepted.append(entry)
        decision.records.append(OffsetRecord(request.group_id, entry.at, committed))
    group = core.groups.get(request.group_id)
    if group is not None and request.member_id in group.members:
        core.touch(group, group.members[request.member_id], now)
    core.counters.offset_commits += len(accepted)

    def failed(code: ErrorCode) -> OffsetCommitResponse:
        _refuse(accepted, code)
        return response

    if accepted:
        decision.on_failure = failed
    return decision


def _refuse(entries: Sequence[_Entry], code: ErrorCode) -> None:
    for entry in entries:
        entry.result.error_code = code


def _sort_out(
    caller: Caller, request: OffsetCommitRequest, topics: TopicLookup
) -> tuple[OffsetCommitResponse, list[_Entry]]:
    """Return the response with the errors of unknown topics and partitions, and the other
    entries."""
    response = OffsetCommitResponse()
    entries: list[_Entry] = []
    by_id = caller.version >= _TOPIC_IDS_FROM
    for topic in request.topics:
        results = _result_topic(response, topic)
        name = topics.topic_name(topic.topic_id) if by_id else topic.name
        for asked in topic.partitions:
            index = asked.partition_index
            if name is None:
                _result(results, index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif not topics.has_partition(name, index):
                _result(results, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                topic_id = topic.topic_id if by_id else topics.topic_id(name) or ZERO_UUID
                result = _result(results, index, ErrorCode.NONE)
                entries.append(_Entry(result, TopicPartition(name, index), asked, topic_id))
    return response, entries


def _result_topic(
    response: OffsetCommitResponse, topic: OffsetCommitRequest.OffsetCommitRequestTopic
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    results = OffsetCommitResponse.OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id
    )
    response.topics.append(results)
    return results


def _result(
    results: OffsetCommitResponse.OffsetCommitResponseTopic, index: int, code: ErrorCode
) -> OffsetCommitResponse.OffsetCommitResponsePartition:
    result = OffsetCommitResponse.OffsetCommitResponsePartition(
        partition_index=index, error_code=code
    )
    results.partitions.append(result)
    return result


def _commit_refusal(core: Core, caller: Caller, request: OffsetCommitRequest) -> ErrorCode | None:
    """Return the reason why the member, or a client that is not a member, may not commit now.

    A generation below zero marks a client outside the group: an administrator, or a consumer that
    manages its partitions itself. Such clients may commit while the group has no members.
    """
    group_id, generation = request.group_id, request.generation_id_or_member_epoch
    group = core.groups.get(group_id)
    not_found = ErrorCode.ILLEGAL_GENERATION
    if caller.version >= _GROUP_ID_NOT_FOUND_FROM:
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
    if group is None and group_id in core.appended.foreign:
        return not_found
    if generation < 0 and (group is None or group.state is GroupState.EMPTY):
        return None
    if group is None:
        # A group that has offsets alone exists, but without members.
        exists = core.appended.has_offsets(group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if exists else not_found
    return _member_refusal(group, request)


def _member_refusal(group: LiveGroup, request: OffsetCommitRequest) -> ErrorCode | None:
    code = membership_error(group, request.member_id, request.group_instance_id)
    if code is not None:
        return code
    if request.generation_id_or_member_epoch != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the generation, but its partitions may already be assigned to another
        # one.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def is_longer_than(text: str, limit: int) -> bool:
    """Return whether `text` has more than `limit` UTF-16 units, in which Kafka measures
    metadata."""
    if len(text) > limit:
        return True
    if 2 * len(text) <= limit or text.isascii():
        return False
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 > limit


# -- OffsetFetch


class FetchedPartition(NamedTuple):
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[FetchedPartition]


def fetch_offsets(
    core: Core,
    group_id: str,
    topics: Sequence[tuple[str, bytes, Sequence[int]]],
    require_stable: bool,
) -> list[FetchedTopic]:
    """Return the committed offsets of partitions.

    A partition without a committed offset has -1 and no error. So does one whose offset was
    committed for an earlier topic of the same name.

    Args:
        topics: (name, id or zero, partition indexes) of each topic.
        require_stable: return UNSTABLE_OFFSET_COMMIT while a transaction has pending offsets.
    """
    offsets, unstable = _visible(core, group_id, require_stable)
    fetched: list[FetchedTopic] = []
    for name, topic_id, indexes in topics:
        partitions: list[FetchedPartition] = []
        for index in indexes:
            at = TopicPartition(name, index)
            committed = offsets.get(at)
            if committed is not None and core.is_stale(group_id, at, committed):
                committed = None
            partitions.append(_fetched(committed, unstable, at, topic_id))
        fetched.append(FetchedTopic(name, topic_id, partitions))
    return fetched


def fetch_all_offsets(core: Core, group_id: str, require_stable: bool) -> list[FetchedTopic]:
    """Return everything the group has committed, by topic and partition in order."""
    offsets, unstable = _visible(core, group_id, require_stable)
    by_topic: dict[str, FetchedTopic] = {}
    for at, committed in sorted(offsets.items(), key=lambda item: item[0]):
        if not core.is_stale(group_id, at, committed):
            topic = by_topic.setdefault(at.topic, FetchedTopic(at.topic, ZERO_UUID, []))
            topic.partitions.append(_fetched(committed, unstable, at, ZERO_UUID))
    return list(by_topic.values())


def _visible(
    core: Core, group_id: str, require_stable: bool
) -> tuple[GroupOffsets, PendingOffsets]:
    """Return the group's offsets, and the pending ones if they make offsets unstable (KIP-447)."""
    state = core.committed
    pending = state.pending_of(group_id) if require_stable else NO_PENDING
    return state.offsets_of(group_id), pending


def _fetched(
    committed: CommittedOffset | None,
    unstable: PendingOffsets,
    at: TopicPartition,
    topic_id: bytes,
) -> FetchedPartition:
    index = at.partition
    if unstable and at in unstable:
        return FetchedPartition(index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if committed is None:
        return FetchedPartition(index)
    ids = {topic_id, committed.topic_id} - {ZERO_UUID}
    if len(ids) > 1:
        return FetchedPartition(index)
    return FetchedPartition(
        index, committed.offset, committed.leader_epoch, committed.metadata, ErrorCode.NONE
    )


# -- OffsetDelete


def offset_delete_error(code: ErrorCode) -> OffsetDeleteResponse:
    """Return the response for an error that concerns the group: nothing was deleted."""
    return OffsetDeleteResponse(error_code=code)


def decide_offset_delete(core: Core, request: OffsetDeleteRequest, topics: TopicLookup) -> Decision:
    """Delete offsets of a group without members. If a consumer group has members, only offsets of
    topics that no member subscribes to can be deleted."""
    group_id = request.group_id
    if not group_id:
        return Decision(reply=offset_delete_error(ErrorCode.INVALID_GROUP_ID))
    group = core.groups.get(group_id)
    code = _delete_refusal(core, group_id, group)
    if code is not None:
        # The deletion of the group may not be committed yet.
        on_failure = offset_delete_error if code is ErrorCode.GROUP_ID_NOT_FOUND else None
        return Decision(reply=offset_delete_error(code), on_failure=on_failure)
    offsets, pending = core.appended.offsets_of(group_id), core.appended.pending_of(group_id)
    response = OffsetDeleteResponse()
    decision = Decision(reply=response)
    for topic in request.topics:
        results = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(results)
        subscribed = group is not None and group.is_subscribed(topic.name)
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            code = ErrorCode.NONE
            if not topics.has_partition(*at):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif at in offsets or at in pending:
                decision.records.append(OffsetRecord(group_id, at, None))
            results.partitions.append(
                OffsetDeleteResponse.OffsetDeleteResponsePartition(
                    partition_index=at.partition, error_code=code
                )
            )
    core.counters.offset_deletions += len(decision.records)
    decision.on_failure = offset_delete_error
    return decision


def _delete_refusal(core: Core, group_id: str, group: LiveGroup | None) -> ErrorCode | None:
    if group is None:
        exists = core.appended.has_offsets(group_id) and group_id not in core.appended.foreign
        return None if exists else ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return None
    return ErrorCode.NON_EMPTY_GROUP
