"""ListOffsets (key 2), versions 1-11.

Behaviour: for each partition the first offset at or after a timestamp, or the one that a negative
timestamp stands for (`Special`). Only the leader answers. A consumer gets offsets below the high
watermark (read_committed: below the last stable offset), a follower up to the log end. A new
leader's high watermark may be below its predecessor's. In that time latest offsets, and lookups
that would pass it, are OFFSET_NOT_AVAILABLE (before version 5: LEADER_NOT_AVAILABLE). Nothing
found: -1.

Versions: 2 isolation level, 4 leader epochs, 7 max timestamp (KIP-734), 8 earliest local (KIP-405),
9 latest tiered (KIP-1005), 10 a timeout for remote storage, 11 earliest pending upload (KIP-1023).
A special timestamp in a version before its own is UNSUPPORTED_VERSION.

Tiered topics: a time is searched in the tier first, then on this disk. If the result is not
available within the request's timeout (`remote.list.offsets.request.timeout.ms` if it has none),
that partition alone is REQUEST_TIMED_OUT. For other topics the special timestamps of the tier
return -1.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from broker.context import BrokerContext
from broker.replication.partition.partition import Partition
from broker.replication.reading.time_lookups import LATER, TimeLookups
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from storage.log.log import Log
from storage.log.timestamps import TimestampOffset

if TYPE_CHECKING:
    from broker.tiering.reader import RemoteReader

MIN_VERSION: Final = 1
MAX_VERSION: Final = 11
NOT_AVAILABLE_SINCE: Final = 5
LEADER_EPOCH_SINCE: Final = 4
TIMEOUT_SINCE: Final = 10
NO_EPOCH: Final = -1

CONSUMER: Final = -1
DEBUG_CONSUMER: Final = -2
READ_COMMITTED: Final = 1
LOOKED_UP_AT_ONCE_MAX: Final = 10
"""Times looked up before other work gets its turn: some milliseconds."""


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

_TopicPartition: TypeAlias = tuple[str, int]
_Result = ListOffsetsResponse.ListOffsetsPartitionResponse
_NOTHING: Final = (-1, -1, -1)


class _ByTime(NamedTuple):
    """A lookup of an offset by time; None requests the highest timestamp."""

    log: Log
    timestamp_ms: int | None


class _InTier(NamedTuple):
    """A lookup that must include the tier, and the epoch of the leader that started it."""

    leader_epoch: int
    by_time: _ByTime


class _Across(NamedTuple):
    """A lookup in the tier and on the disk, with its result if it came in time."""

    leader_epoch: int
    task: asyncio.Task[TimestampOffset | None]

    def result(self) -> TimestampOffset | None:
        """Return the result. Raises ApiError: its error, or REQUEST_TIMED_OUT if it did not come in
        time."""
        if self.task.done() and not self.task.cancelled():
            return self.task.result()
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, None)


_Response: TypeAlias = Generator[_ByTime, TimestampOffset | None, ListOffsetsResponse]
_Found: TypeAlias = Generator[_ByTime, TimestampOffset | None, tuple[int, int, int]]


def register(table: HandlerTable, broker: BrokerContext) -> None:
    def handle(context: RequestContext, request: ListOffsetsRequest) -> Reply:
        return list_offsets(broker, context, request)

    table.register(ApiKey.LIST_OFFSETS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def list_offsets(
    broker: BrokerContext, context: RequestContext, request: ListOffsetsRequest
) -> Reply:
    """Answer at once, unless a lookup by time takes too long for the event loop."""
    in_tier = _in_tier(broker, request)
    if in_tier:
        return _across_tiers(broker, context.api_version, request, in_tier)
    answering = _answer(broker, context.api_version, request, {})
    lookups = broker.time_lookups
    try:
        wanted = next(answering)
        for _ in range(LOOKED_UP_AT_ONCE_MAX):
            try:
                found = lookups.at_once(*wanted)
            except ApiError as error:
                wanted = answering.throw(error)
                continue
            if found is LATER:
                break
            wanted = answering.send(found)
    except StopIteration as done:
        response: ListOffsetsResponse = done.value
        return response
    return _go_on(lookups, answering, wanted)


async def _across_tiers(
    broker: BrokerContext,
    version: int,
    request: ListOffsetsRequest,
    in_tier: Mapping[_TopicPartition, _InTier],
) -> ListOffsetsResponse:
    """Search the tier first, for all partitions at once."""
    tier = broker.tier
    assert tier is not None
    timeout_ms = request.timeout_ms
    if version < TIMEOUT_SINCE or timeout_ms <= 0:
        timeout_ms = tier.reader.list_offsets_timeout_ms
    found: dict[_TopicPartition, _Across] = {}
    for place, wanted in in_tier.items():
        finding = _find_across(tier.reader, broker.time_lookups, wanted.by_time)
        task = broker.supervisor.spawn(f"offset by time {place[0]}", finding, fatal=False)
        found[place] = _Across(wanted.leader_epoch, task)
    tasks = [one.task for one in found.values()]
    try:
        await asyncio.wait(tasks, timeout=timeout_ms / 1000.0)
    finally:
        for task in tasks:
            task.cancel()
    answering = _answer(broker, version, request, found)
    try:
        first = next(answering)
    except StopIteration as done:
        response: ListOffsetsResponse = done.value
        return response
    return await _go_on(broker.time_lookups, answering, first)


async def _find_across(
    reader: RemoteReader, lookups: TimeLookups, wanted: _ByTime
) -> TimestampOffset | None:
    log, timestamp_ms = wanted
    while True:
        local_start = log.local_log_start_offset
        remote = await reader.find_time(log, timestamp_ms)
        if remote is not None and timestamp_ms is not None:
            return remote
        local = await lookups.find(log, timestamp_ms)
        if local_start != log.local_log_start_offset:
            # segments deleted from the local disk since then were searched on neither side
            continue
        if remote is None or (local is not None and local.timestamp > remote.timestamp):
            return local
        return remote


def _in_tier(broker: BrokerContext, request: ListOffsetsRequest) -> dict[_TopicPartition, _InTier]:
    """Return the lookups by time in logs whose beginning is only in the tier."""
    found: dict[_TopicPartition, _InTier] = {}
    if broker.tier is None:
        return found
    for topic in request.topics:
        for wanted in topic.partitions:
            timestamp = wanted.timestamp
            partition = broker.replicas.known(topic.name, wanted.partition_index)
            if partition is None or not partition.is_leader:
                continue
            log = partition.log
            if log.log_start_offset < log.local_log_start_offset and (
                timestamp >= 0 or timestamp == Special.MAX_TIMESTAMP
            ):
                by_time = _ByTime(log, timestamp if timestamp >= 0 else None)
                place = (topic.name, wanted.partition_index)
                found[place] = _InTier(partition.leader_epoch, by_time)
    return found


async def _go_on(
    lookups: TimeLookups, answering: _Response, wanted: _ByTime
) -> ListOffsetsResponse:
    try:
        while True:
            try:
                found = await lookups.find(*wanted)
            except ApiError as error:
                wanted = answering.throw(error)
            else:
                wanted = answering.send(found)
            await asyncio.sleep(0)
    except StopIteration as done:
        response: ListOffsetsResponse = done.value
        return response


def _answer(
    broker: BrokerContext,
    version: int,
    request: ListOffsetsRequest,
    across: Mapping[_TopicPartition, _Across],
) -> _Response:
    """Answer every partition separately; yields the lookups that the caller must do."""
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
                    raise ApiError(ErrorCode.INVALID_REQUEST, "duplicate partition")
                timestamp, offset, epoch = yield from _look_up(
                    broker, version, request, topic.name, wanted, across.get((topic.name, index))
                )
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
    across: _Across | None,
) -> _Found:
    """Return (timestamp, offset, leader epoch)."""
    timestamp = wanted.timestamp
    if timestamp < 0 and (
        timestamp not in Special.__members__.values() or version < SINCE[Special(timestamp)]
    ):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
    partition = broker.replicas.find(topic, wanted.partition_index)
    log = partition.require_leader(wanted.current_leader_epoch)
    follower = request.replica_id not in (CONSUMER, DEBUG_CONSUMER)
    if timestamp == Special.LATEST:
        _require_settled(partition, follower, version)
        return -1, _visible_end(partition, request, follower), log.latest_epoch
    if timestamp < 0 and timestamp != Special.MAX_TIMESTAMP:
        return _edge(broker, partition, Special(timestamp))
    if across is not None:
        epoch, found = across.leader_epoch, across.result()
    else:
        epoch = partition.leader_epoch
        found = yield _ByTime(log, timestamp if timestamp >= 0 else None)
    # The lookup may have taken a while: the answer is valid only in the leader epoch of its start.
    if not partition.is_leader or partition.leader_epoch != epoch:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    if found is None:
        return _NOTHING
    if found.offset >= _visible_end(partition, request, follower):
        _require_settled(partition, follower, version)
        return _NOTHING
    return found


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


def _edge(broker: BrokerContext, partition: Partition, which: Special) -> tuple[int, int, int]:
    log, tier = partition.log, broker.tier
    if which is Special.EARLIEST:
        offset = log.log_start_offset
    elif which is Special.EARLIEST_LOCAL:
        offset = log.local_log_start_offset
    elif tier is None or not log.config.remote_storage_enable:
        return _NOTHING
    else:
        remote_end = tier.reader.remote_end(log)
        if which is Special.LATEST_TIERED:
            return -1, *remote_end
        offset = pending_upload(remote_end.offset, log)
    return (-1, offset, log.epochs.epoch_at(offset)) if offset >= 0 else _NOTHING


def pending_upload(remote_end_offset: int, log: Log) -> int:
    """Return the first offset that is not in the tier, -1 if that is not known (KIP-1023)."""
    if remote_end_offset >= 0:
        return max(remote_end_offset + 1, log.log_start_offset)
    nothing_copied = log.local_log_start_offset == log.log_start_offset
    return log.log_start_offset if nothing_copied else -1
