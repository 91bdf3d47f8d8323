"""Local logs of candidates for leadership, and the rule whether they are large enough (KIP-1303).

A replica that started from the tier has few local segments. As a leader it would read from the
remote store most of what consumers fetch. So each replica reports the start time and the size of
its local log, and is eligible if it has enough by time or by bytes. This is a preference among
replicas that may lead, never a condition.

- A threshold is in force if it is above 0. With neither, the feature is off, and every replica has
  enough.
- One condition met is enough, also exactly. An unknown value counts as met: a replica without a
  report is assumed to have everything.
- A known size of 0 is never enough. Otherwise a replica that has just started, without a first
  batch and so without a start time, would be preferred.
- A span below 0 is not enough: a clock is behind, or a producer wrote a timestamp in the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

UNKNOWN: Final = -1
Lives: TypeAlias = tuple[tuple[int, int], ...]
"""Broker incarnations: broker ids with broker epochs."""
Row: TypeAlias = tuple[tuple[int, int], int, int, int]
"""One incarnation, and the start time, size and report time of its log."""


class LocalLogStats(NamedTuple):
    """A replica's report on its local log.

    start_timestamp_ms: timestamp of the first batch at the local log start, epoch milliseconds.
    size_bytes: size of its local segments. -1 is unknown.
    """

    start_timestamp_ms: int = UNKNOWN
    size_bytes: int = UNKNOWN


NOTHING_KNOWN: Final = LocalLogStats()


class LocalLogThresholds(NamedTuple):
    """Effective `leader.election.eligible.local.log.ms` and `.bytes` of a topic."""

    span_ms: int = -1
    size_bytes: int = -1

    @property
    def on(self) -> bool:
        return self.span_ms > 0 or self.size_bytes > 0


OFF: Final = LocalLogThresholds()


class LocalLogVerdict(Enum):
    """The verdict about a local log; the text completes "its local log ..."."""

    OFF = "is not required"
    SPAN = "starts early enough"
    SIZE = "is large enough"
    UNKNOWN = "is unknown"
    EMPTY = "is empty"
    FUTURE = "starts in the future"
    TOO_LITTLE = "is too small"

    @property
    def enough(self) -> bool:
        return self in _ENOUGH


_ENOUGH: Final = frozenset(
    {LocalLogVerdict.OFF, LocalLogVerdict.SPAN, LocalLogVerdict.SIZE, LocalLogVerdict.UNKNOWN}
)


def judge(stats: LocalLogStats, thresholds: LocalLogThresholds, now_ms: int) -> LocalLogVerdict:
    """Return the verdict; `now_ms` is the wall clock at the decision (epoch milliseconds)."""
    by_time, by_size = thresholds.span_ms > 0, thresholds.size_bytes > 0
    if not (by_time or by_size):
        return LocalLogVerdict.OFF
    start_ms, size = stats
    if size == 0:
        return LocalLogVerdict.EMPTY
    if by_time and start_ms >= 0 and now_ms - start_ms >= thresholds.span_ms:
        return LocalLogVerdict.SPAN
    if by_size and size >= thresholds.size_bytes:
        return LocalLogVerdict.SIZE
    if (by_time and start_ms < 0) or (by_size and size < 0):
        return LocalLogVerdict.UNKNOWN
    if by_time and start_ms > now_ms:
        return LocalLogVerdict.FUTURE
    return LocalLogVerdict.TOO_LITTLE


class ReplicaLocalLog(NamedTuple):
    """The last report on one replica's local log.

    It is valid for one broker epoch. reported_ms: wall clock when it was written to the metadata
    log (epoch milliseconds).
    """

    broker_id: int
    broker_epoch: int
    stats: LocalLogStats
    reported_ms: int = UNKNOWN


class LocalLogTable(NamedTuple):
    """The known local-log stats of one partition, as columns in the order of broker ids.

    lives: the broker incarnations. The other columns are the fields of their `ReplicaLocalLog`.

    One decision reads ten thousand tables. So values that it reads together are stored together,
    and tables with equal incarnations share that column. `plain_starts` and `plain_sizes` repeat
    two columns if every size is known and above 0: then a comparison of numbers suffices.
    """

    lives: Lives = ()
    starts_ms: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    reported_ms: tuple[int, ...] = ()
    plain_starts: tuple[int, ...] = ()
    plain_sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> LocalLogTable:
        """Build a table from rows, which must be in the order of their brokers."""
        given = list(rows)
        if not given:
            return NO_LOCAL_LOGS
        lives, starts_ms, sizes, reported_ms = zip(*given, strict=True)
        columns = _shared(lives), starts_ms, sizes, reported_ms
        return cls(*columns, starts_ms, sizes) if min(sizes) > 0 else cls(*columns)

    @property
    def rows(self) -> Iterator[Row]:
        return zip(self.lives, self.starts_ms, self.sizes, self.reported_ms, strict=True)

    @property
    def entries(self) -> tuple[ReplicaLocalLog, ...]:
        """The rows of the table as `ReplicaLocalLog`."""
        return tuple(
            ReplicaLocalLog(broker_id, broker_epoch, LocalLogStats(start_ms, size), reported_ms)
            for (broker_id, broker_epoch), start_ms, size, reported_ms in self.rows
        )

    def __bool__(self) -> bool:
        return bool(self.lives)


@lru_cache(1024)
def _shared(lives: Lives) -> Lives:
    return lives


NO_LOCAL_LOGS: Final = LocalLogTable()


def table_of(entries: Sequence[Any]) -> LocalLogTable:
    """Return a partition's table, from the local-log field of its record."""
    return LocalLogTable.of(
        [
            (
                (one.broker_id, one.broker_epoch),
                one.start_timestamp,
                one.size_bytes,
                one.reported_ms,
            )
            for one in entries
        ]
    )


def known_stats(table: LocalLogTable, broker_id: int, broker_epoch: int) -> LocalLogStats:
    """Return the stats of a replica in this broker incarnation, unknown if the table has others
    only."""
    life = broker_id, broker_epoch
    if life not in table.lives:
        return NOTHING_KNOWN
    at = table.lives.index(life)
    return LocalLogStats(table.starts_ms[at], table.sizes[at])
