"""Reads of a fetch: their place and budget, the plan of those that block, the resulting records.

A partition's data is in one of these places:

- local: a synchronous call can answer, with data from the page cache, with nothing, or with an
  error;
- cold: on this disk, probably not in the page cache, so a worker reads it;
- remote: in the tier only (KIP-405). Its reader reads it, or refuses the read if it is full.

A plan of cold and remote reads is computed before any read. It covers the partitions in the order
of the request with one budget for all, like the response. It contains the reads that must not
block the event loop, all to be done at once. Data in memory only takes its share of the budget
here; it is read when the response is built. Then the results are checked by `still_holds`, because
roles, log starts and segments may have changed, and `fitted` limits them to the remaining budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from broker.fetch.recent import RecentRead
from broker.fetch.request import Due, Wanted
from broker.replication.partition.partition import Partition
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.sessions.fetch_session import PartitionKey
from protocol.batch.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.schema import Buffer
from runtime.marks import mark
from storage.log.errors import BelowLocalStart, OffsetOutOfRange

if TYPE_CHECKING:
    from broker.tiering.reader import RemoteRead, RemoteReader
    from storage.log.indexes import AbortedTxn
    from storage.log.log import Log

CACHED_BYTES_MAX: Final = 4 << 20
"""Limit for older data read on the loop if the page cache has it: a millisecond."""


class Place(Enum):
    """Location of the batches from an offset on."""

    LOCAL = "local"
    """A synchronous call can answer: with data from the page cache, with nothing, or with an
    error."""
    COLD = "cold"
    """On this disk, probably not in the page cache."""
    REMOTE = "remote"
    """In the tier only (KIP-405)."""


def place_of(log: Log, offset: int) -> Place:
    bounds = log.bounds
    if offset >= bounds.log_end_offset:
        return Place.LOCAL
    if offset < bounds.local_log_start_offset:
        return Place.REMOTE if offset >= bounds.log_start_offset else Place.LOCAL
    return Place.LOCAL if log.is_recent(offset) else Place.COLD


def needs_background(due: Due, replicas: ReplicaManager, bytes_max: int, *, remote: bool) -> bool:
    """Return whether any data needs a worker or the tier. Data that was read before, or read ahead,
    is in the page cache, and costs less on the loop than a worker does.

    Args:
        bytes_max: the limit of the whole response.
        remote: whether this fetch may read from the tier.
    """
    left = CACHED_BYTES_MAX
    for key, wanted in due:
        partition = replicas.known(*key)
        if partition is None or not partition.is_readable:
            continue
        log, offset = partition.log, wanted.fetch_offset
        place = place_of(log, offset)
        if place is Place.REMOTE:
            if remote:
                return True
        elif place is Place.COLD:
            most = max(0, min(wanted.partition_max_bytes, bytes_max))
            try:
                size = log.reader.cached_bytes(offset, most, left)
            except ApiError:
                return True  # the read will find and report this error
            if size is None:
                return True
            left -= size
    return False


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


Arrived: TypeAlias = "ColdData | RemoteRead | Refused"
"""The result of a background read."""


class Span(NamedTuple):
    """Limits of one read when the response is built."""

    log: Log
    offset: int
    end_offset: int
    """No batch that reaches it is returned."""
    max_bytes: int
    whole_first: bool
    """Return the first batch whole even if it is larger than the limit."""


def read_local(
    recent: RecentRead,
    log: Log,
    offset: int,
    end_offset: int,
    max_bytes: int,
    whole_first: bool,
    *,
    remote: bool,
) -> bytes:
    """Return batches of the local log; the arguments are those of `Span`, and the cache to use.

    Args:
        remote: whether another fetch of the same sender will get data that is in the tier only;
            this one returns none.

    Raises:
        ApiError: of `Log.read`.
    """
    try:
        return recent.read(log, offset, max_bytes, max_offset=end_offset, min_one_batch=whole_first)
    except BelowLocalStart:
        if not remote:
            raise
        return b""


def read_records(
    recent: RecentRead,
    log: Log,
    offset: int,
    end_offset: int,
    max_bytes: int,
    whole_first: bool,
    key: PartitionKey,
    arrived: dict[PartitionKey, Arrived | None],
    remote: RemoteReader | None,
) -> tuple[Buffer, Sequence[AbortedTxn] | None]:
    """Return a partition's records: those of its background read, else those of the local log.

    Args:
        arrived: results of background reads; the partition's is removed. For the arguments before
            see `Span`.
        remote: the reader of the tier, None if the sender must not read from it.

    Returns:
        As `take_arrived`.

    Raises:
        ApiError: of the read.
    """
    if arrived and key in arrived:
        span = Span(log, offset, end_offset, max_bytes, whole_first)
        return take_arrived(arrived.pop(key), span, recent, remote)
    if offset == log.bounds.log_end_offset:
        return b"", None
    in_tier = remote is not None
    return read_local(recent, log, offset, end_offset, max_bytes, whole_first, remote=in_tier), None


def take_arrived(
    arrived: Arrived | None, span: Span, recent: RecentRead, remote: RemoteReader | None
) -> tuple[Buffer, Sequence[AbortedTxn] | None]:
    """Return the result of a background read, if it is still the log's data there.

    Args:
        arrived: None if it is missing, because the disk or the tier has taken too long.

    Returns:
        The records, and the aborted transactions if the tier returned them with the records.

    Raises:
        ApiError: of the read. It is a new exception: the stored one must not keep this fetch in
            memory.
    """
    log, offset, end_offset, max_bytes, whole_first = span
    if arrived is None:
        return b"", None
    if isinstance(arrived, Refused):
        raise ApiError(arrived.code)
    if not isinstance(arrived, ColdData):
        return _take_remote(arrived, span, remote)
    if not still_holds(arrived, log, offset) or isinstance(arrived.error, BelowLocalStart):
        records = read_local(
            recent, log, offset, end_offset, max_bytes, whole_first, remote=remote is not None
        )
        return records, None
    if arrived.error is not None:
        raise ApiError(arrived.error.code)
    found = arrived.records if offset < end_offset else b""
    return fitted(found, max_bytes, whole_first=whole_first), None


def _take_remote(
    read: RemoteRead, span: Span, remote: RemoteReader | None
) -> tuple[Buffer, Sequence[AbortedTxn]]:
    log, offset, window = span.log, span.offset, read.window
    if read.error is not None:
        raise ApiError(read.error)
    if window is None or remote is None or not remote.holds(window, log, offset):
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
        return b"", ()  # the next fetch reads it again
    cut = window.cut(offset, span.max_bytes)
    if cut is None or cut.last_offset >= span.end_offset:
        return b"", ()
    records = fitted(cut.records, span.max_bytes, whole_first=span.whole_first)
    if records:
        remote.taken(read, cut.last_offset)
    return records, cut.aborted


def divergence(partition: Partition, wanted: Wanted) -> FetchResponse.EpochEndOffset | None:
    """Return where the reader's log diverges from the leader's, None if it does not (KIP-595).

    Raises:
        ApiError: OFFSET_OUT_OF_RANGE if the leader's epochs do not go back that far.
    """
    log = partition.log
    if wanted.last_fetched_epoch == log.latest_epoch and wanted.fetch_offset <= log.log_end_offset:
        return None
    epoch, end_offset = log.history.end_offset_for(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, None)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        mark("replication.fetch-diverges")
        return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
