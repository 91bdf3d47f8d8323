"""The part of a fetch that is not at hand, as a value: decided before anything is read.

A plan goes over the partitions in the order of the request with one budget for all, as the answer
does. It names what is read off the loop, all of it at once. What is at hand only takes its share
of the budget here; it is read when the answer is made. What came back is judged by `still_holds`
then, because roles, log starts and segments may have changed, and is cut to what is left by
`fitted`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.replication.fetch_session import PartitionKey
from broker.replication.partition import Partition
from protocol.batch.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Buffer

if TYPE_CHECKING:
    from storage.log.log import Log


class Place(Enum):
    """Where the batches from an offset on are."""

    HERE = "here"
    """A plain call answers: from the page cache, that there is nothing, or that it is refused."""
    COLD = "cold"
    """On this disk, probably not in the page cache."""
    REMOTE = "remote"
    """In the tier only (KIP-405)."""


def place_of(log: Log, offset: int) -> Place:
    if offset >= log.log_end_offset:
        return Place.HERE
    if offset < log.local_log_start_offset:
        return Place.REMOTE if offset >= log.log_start_offset else Place.HERE
    return Place.HERE if log.is_recent(offset) else Place.COLD


class Wish(NamedTuple):
    """What a reader may have of one partition."""

    key: PartitionKey
    partition: Partition
    offset: int
    max_bytes: int
    """Of this partition, as the request limits it; may be any number."""
    end_offset: int
    """No batch that reaches it is shown."""


class ColdSlice(NamedTuple):
    """To be read from this disk, in a worker."""

    log: Log
    offset: int
    max_bytes: int
    end_offset: int
    whole_first: bool
    """The first batch is read whole though it is larger than the limit: the answer needs one."""


class RemoteRange(NamedTuple):
    """To be read from the tier. How much there is nobody knows: it takes all of its limit."""

    log: Log
    offset: int
    max_bytes: int


Elsewhere: TypeAlias = ColdSlice | RemoteRange


def plan_reads(
    wishes: Iterable[Wish], max_bytes: int, *, remote: bool
) -> dict[PartitionKey, Elsewhere]:
    """What to read off the loop.

    Args:
        max_bytes: the limit of the whole answer.
        remote: whether the tier may be read.
    """
    planned: dict[PartitionKey, Elsewhere] = {}
    left, first = max(0, max_bytes), True
    for key, partition, offset, partition_max, end_offset in wishes:
        log = partition.log
        limit = max(0, min(left, partition_max))
        place = place_of(log, offset)
        visible = limit
        if place is not Place.REMOTE:
            try:
                visible = log.visible_bytes(offset, end_offset)
            except ApiError:
                continue  # the answer finds out and says so
            if not visible:
                continue
        elif not remote:
            continue
        if not limit and not first:
            continue
        if place is Place.REMOTE:
            planned[key] = RemoteRange(log, offset, limit)
        elif place is Place.COLD:
            planned[key] = ColdSlice(log, offset, limit, end_offset, first)
        first = False
        left -= min(limit, visible)
    return planned


class Refused(NamedTuple):
    """A read that was not begun, and why. Not its exception, which would hold the fetch that holds
    this."""

    code: ErrorCode


class ColdData(NamedTuple):
    """What a cold slice brought."""

    log: Log
    generation: int
    """Of the log's segments when it was read."""
    records: bytes = b""
    error: ApiError | None = None


def still_holds(data: ColdData, log: Log, offset: int) -> bool:
    """Whether what was read from `offset` on is what the log has there now."""
    return (
        data.log is log
        and data.generation == log.segments.generation
        and log.log_start_offset <= offset
    )


def fitted(records: Buffer, max_bytes: int, *, whole_first: bool) -> Buffer:
    """Batches cut to a limit. The last may be cut inside, the first is there whole or not at all;
    with `whole_first` it is there even if it is larger than the limit."""
    if len(records) <= max_bytes:
        return records
    if len(records) < HEADER_BYTES:
        return b""
    first = int.from_bytes(records[8:12], "big") + LENGTH_OVERHEAD_BYTES
    if first <= max_bytes:
        return records[:max_bytes]
    return records[:first] if whole_first else b""
