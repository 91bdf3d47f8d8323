"""The parts of a Fetch response, and the selection of those that a session's response contains."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from broker.replication.partition.partition import Partition
from broker.replication.sessions.fetch_session import FetchPlan, PartitionKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.schema import Buffer

if TYPE_CHECKING:
    from broker.fetch.request import Wanted

PARTITION_BYTES: Final = 64
"""Size of a partition in a response apart from its records; quotas count it."""

PartitionData = FetchResponse.PartitionData
Read = tuple[PartitionKey, PartitionData]

# Shared by all answers, which never change them: an object per field and partition is expensive.
NO_DIVERGENCE: Final = FetchResponse.EpochEndOffset()
_NO_LEADER: Final = FetchResponse.LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = FetchResponse.SnapshotId()

_news = attrgetter(*(f.name for f in PartitionData.FIELDS if f.name != "records"))
"""Fields that a session compares: every field of the schema but the record bytes."""


def partition_data(
    partition: Partition, records: Buffer, diverging: FetchResponse.EpochEndOffset
) -> PartitionData:
    """Return the answer for a partition, with the bounds that its log has now."""
    log = partition.log
    bounds = log.bounds
    return PartitionData(
        partition_index=partition.index,
        high_watermark=bounds.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=bounds.log_start_offset,
        diverging_epoch=diverging,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=None,
        records=records,
    )


def failure(index: int, code: ErrorCode) -> PartitionData:
    """Return an answer that contains nothing but the error."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        diverging_epoch=NO_DIVERGENCE,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=None,
    )


def is_turned_away(data: PartitionData) -> bool:
    """Return whether there are no records because the reader must truncate its log, or read
    elsewhere."""
    return data.diverging_epoch is not NO_DIVERGENCE or data.preferred_read_replica >= 0


def topic_response(
    name: str | bytes, partitions: list[PartitionData]
) -> FetchResponse.FetchableTopicResponse:
    """Return the answers for the partitions of the topic with this name or id."""
    if isinstance(name, bytes):
        return FetchResponse.FetchableTopicResponse(topic_id=name, partitions=partitions)
    return FetchResponse.FetchableTopicResponse(topic=name, partitions=partitions)


def build(plan: FetchPlan[Wanted], reads: list[Read]) -> FetchResponse:
    """Return the response with these reads. An incremental one contains those with news only."""
    session, incremental = plan.session, plan.incremental
    response = FetchResponse(session_id=plan.session_id)
    topics = response.responses
    last_topic: str | bytes | None = None
    for key, data in reads:
        if session is not None:
            force = bool(data.records or data.error_code) or is_turned_away(data)
            if not session.news(key, _news(data), force=force) and incremental:
                continue
        topic = key[0]
        if topic != last_topic:
            last_topic = topic
            topics.append(topic_response(topic, []))
        topics[-1].partitions.append(data)
    return response
