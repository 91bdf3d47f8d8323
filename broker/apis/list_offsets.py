"""ListOffsets (key 2), versions 1-11.

Behaviour: for each partition the first offset at or after a timestamp, or the one that a negative
timestamp asks for (`Special`). Only the leader answers. A consumer sees offsets below the high
watermark (read_committed: below the last stable offset), a follower up to the log end. While a new
leader's high watermark may lie below its predecessor's, latest offsets and look-ups that would
pass it are OFFSET_NOT_AVAILABLE (before version 5: LEADER_NOT_AVAILABLE). Nothing found: -1.

Versions: 2 isolation level, 4 leader epochs, 7 max timestamp (KIP-734), 8 earliest local
(KIP-405), 9 latest tiered (KIP-1005), 10 a timeout for remote storage, 11 earliest pending upload
(KIP-1023). A special timestamp in a version before its own is UNSUPPORTED_VERSION. There is no
tiering: the tiered ones answer -1, as any topic without it does.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Final

from broker.context import BrokerContext
from broker.replication.partition import Partition
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 1
MAX_VERSION: Final = 11
NOT_AVAILABLE_SINCE: Final = 5
LEADER_EPOCH_SINCE: Final = 4
NO_EPOCH: Final = -1

CONSUMER: Final = -1
DEBUG_CONSUMER: Final = -2
READ_COMMITTED: Final = 1


class Special(IntEnum):
    """Negative timestamps with a meaning."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


SINCE: Final = {
    Special.LATEST: 1,
    Special.EARLIEST: 1,
    Special.MAX_TIMESTAMP: 7,
    Special.EARLIEST_LOCAL: 8,
    Special.LATEST_TIERED: 9,
    Special.EARLIEST_PENDING_UPLOAD: 11,
}

_Result = ListOffsetsResponse.ListOffsetsPartitionResponse
_NOTHING: Final = (-1, -1, -1)


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: ListOffsetsRequest) -> Reply:
        return list_offsets(broker, context.api_version, request)

    table.register(ApiKey.LIST_OFFSETS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def list_offsets(
    broker: BrokerContext, version: int, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Answers every partition on its own."""
    named = Counter(
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    response = ListOffsetsResponse()
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            try:
                if named[(topic.name, index)] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a partition named twice")
                timestamp, offset, epoch = _look_up(broker, version, request, topic.name, wanted)
            except ApiError as error:
                results.append(_Result(partition_index=index, error_code=error.code))
            else:
                results.append(
                    _Result(
                        partition_index=index,
                        timestamp=timestamp,
                        offset=offset,
                        leader_epoch=epoch if version >= LEADER_EPOCH_SINCE else NO_EPOCH,
                    )
                )
        response.topics.append(
            ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=results)
        )
    return response


def _look_up(
    broker: BrokerContext,
    version: int,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch)."""
    timestamp = wanted.timestamp
    if timestamp < 0 and (
        timestamp not in Special.__members__.values() or version < SINCE[Special(timestamp)]
    ):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
    partition = broker.replicas.find(topic, wanted.partition_index)
    partition.require_leader(wanted.current_leader_epoch)
    follower = request.replica_id not in (CONSUMER, DEBUG_CONSUMER)
    end = _visible_end(partition, request, follower)
    if timestamp == Special.LATEST:
        _require_settled(partition, follower, version)
        return -1, end, partition.log.latest_epoch
    if timestamp >= 0 or timestamp == Special.MAX_TIMESTAMP:
        found = _search(partition, timestamp)
        if found is None:
            return _NOTHING
        if found[1] >= end:
            _require_settled(partition, follower, version)
            return _NOTHING
        return found
    return _edge(partition, Special(timestamp))


def _visible_end(partition: Partition, request: ListOffsetsRequest, follower: bool) -> int:
    log = partition.log
    if follower:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _require_settled(partition: Partition, follower: bool, version: int) -> None:
    if follower or partition.high_watermark_settled:
        return
    code = (
        ErrorCode.OFFSET_NOT_AVAILABLE
        if version >= NOT_AVAILABLE_SINCE
        else ErrorCode.LEADER_NOT_AVAILABLE
    )
    raise ApiError(code, None)


def _search(partition: Partition, timestamp: int) -> tuple[int, int, int] | None:
    if timestamp == Special.MAX_TIMESTAMP:
        return partition.log.max_timestamp()
    return partition.log.offset_for_timestamp(timestamp)


def _edge(partition: Partition, which: Special) -> tuple[int, int, int]:
    log = partition.log
    if which is Special.EARLIEST:
        offset = log.log_start_offset
    elif which is Special.EARLIEST_LOCAL:
        offset = log.local_log_start_offset
    else:
        return _NOTHING
    return -1, offset, log.epoch_at(offset)
