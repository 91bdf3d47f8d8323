"""Plan of the reads of a fetch that need a worker or the tier, as a value computed before any read.

A plan covers the partitions in the order of the request with one budget for all, like the response.
It contains the reads that must not block the event loop, all to be done at once. Data in memory
only takes its share of the budget here; it is read when the response is built. Then the results are
checked by `still_holds`, because roles, log starts and segments may have changed, and are limited
to the remaining budget by `fitted`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.replication.partition.partition import Partition
from broker.replication.sessions.fetch_session import PartitionKey
from protocol.batch.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Buffer

if TYPE_CHECKING:
    from storage.log.log import Log


class Place(Enum):
    """Location of the batches from an offset on."""

    HERE = "here"
    """A synchronous call can answer: with data from the page cache, with nothing, or with an
    error."""
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
    """Limits of a read of one partition."""

    key: PartitionKey
    partition: Partition
    offset: int
    max_bytes: int
    """The request's limit for this partition; may be any number."""
    end_offset: int
    """No batch that reaches it is returned."""


class ColdSlice(NamedTuple):
    """A read from this disk, in a worker."""

    log: Log
    offset: int
    max_bytes: int
    end_offset: int
    whole_first: bool
    """Read the first batch whole even if it is larger than the limit: the response needs one."""


class RemoteRange(NamedTuple):
    """A read from the tier. Its size is unknown in advance, so it uses up its whole limit."""

    log: Log
    offset: int
    max_bytes: int


Elsewhere: TypeAlias = ColdSlice | RemoteRange


def plan_reads(
    wishes: Iterable[Wish], max_bytes: int, *, remote: bool
) -> dict[PartitionKey, Elsewhere]:
    """Return the reads that need a worker or the tier.

    Args:
        max_bytes: the limit of the whole response.
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
                visible = log.reader.visible_bytes(offset, end_offset)
            except ApiError:
                continue  # the response will contain this error
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
    """A read that was not started, and the error code. It holds no exception, which would reference
    the fetch that references this."""

    code: ErrorCode


class ColdData(NamedTuple):
    """The result of a cold slice."""

    log: Log
    generation: int
    """Of the log's segments when it was read."""
    records: bytes = b""
    error: ApiError | None = None


def still_holds(data: ColdData, log: Log, offset: int) -> bool:
    """Return whether the data that was read from `offset` on is still the log's data there."""
    return (
        data.log is log
        and data.generation == log.segments.generation
        and log.log_start_offset <= offset
    )


def fitted(records: Buffer, max_bytes: int, *, whole_first: bool) -> Buffer:
    """Return batches up to a limit. The last one may be incomplete; the first is whole or missing.
    With `whole_first` it is included even if it is larger than the limit."""
    if len(records) <= max_bytes:
        return records
    if len(records) < HEADER_BYTES:
        return b""
    first = int.from_bytes(records[8:12], "big") + LENGTH_OVERHEAD_BYTES
    if first <= max_bytes:
        return records[:max_bytes]
    return records[:first] if whole_first else b""
