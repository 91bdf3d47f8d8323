"""Local logs of replicas that are to lead, and whether they are enough (KIP-1303).

A replica that began behind the tier has few local segments: as a leader it would fetch from the
remote store what consumers ask for. So a replica says since when and how much it has, and counts as
eligible when it has enough by time or by bytes. It is a preference among replicas that may lead,
never a condition.

- Each threshold is in force above 0. With neither the feature is off, and everybody has enough.
- One condition met is enough, also exactly. What is not known counts as met: a replica that has
  told nothing is taken for one that has all.
- A known size of 0 is never enough, else a replica that has just begun, which has no first batch
  and so no time, would be the favourite.
- A span below 0 is not enough: a clock is behind, or a producer wrote a time in the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

UNKNOWN: Final = -1
Lives: TypeAlias = tuple[tuple[int, int], ...]
"""Brokers, each with the epoch of the life that is meant."""
Row: TypeAlias = tuple[tuple[int, int], int, int, int]
"""One life, and of its log the time of the start, the size, and when that was reported."""


class LocalLogStats(NamedTuple):
    """What a replica says of its local log: timestamp of the first batch at the local log start
    (epoch milliseconds), and the size of its local segments. -1 is unknown."""

    start_timestamp_ms: int = UNKNOWN
    size_bytes: int = UNKNOWN


NOTHING_KNOWN: Final = LocalLogStats()


class LocalLogThresholds(NamedTuple):
    """`leader.election.eligible.local.log.ms` and `.bytes` as they are in force for a topic."""

    span_ms: int = -1
    size_bytes: int = -1

    @property
    def on(self) -> bool:
        return self.span_ms > 0 or self.size_bytes > 0


OFF: Final = LocalLogThresholds()


class LocalLogVerdict(Enum):
    """Whether it is enough, and why; the text completes "its local log ..."."""

    OFF = "is not asked for"
    SPAN = "goes back far enough"
    SIZE = "is large enough"
    UNKNOWN = "is not known"
    EMPTY = "is empty"
    FUTURE = "begins in the future"
    TOO_LITTLE = "is too short"

    @property
    def enough(self) -> bool:
        return self in _ENOUGH


_ENOUGH: Final = frozenset(
    {LocalLogVerdict.OFF, LocalLogVerdict.SPAN, LocalLogVerdict.SIZE, LocalLogVerdict.UNKNOWN}
)


def judge(stats: LocalLogStats, thresholds: LocalLogThresholds, now_ms: int) -> LocalLogVerdict:
    """The rule; `now_ms` is the wall clock at the decision (epoch milliseconds)."""
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
    """What the cluster knows of one replica's local log: what its broker said in that life, and
    when that was written down (wall clock, epoch milliseconds)."""

    broker_id: int
    broker_epoch: int
    stats: LocalLogStats
    reported_ms: int = UNKNOWN


class LocalLogTable(NamedTuple):
    """All that is known of one partition's local logs: a column each for the lives of brokers, in
    the order of their ids, and for the parts of their `ReplicaLocalLog`.

    One decision asks ten thousand tables. So what it reads of one lies together, and tables that
    name the same lives share them. `plain_starts` and `plain_sizes` are the columns once more,
    where every size is known and above 0: then numbers are all that is to be compared.
    """

    lives: Lives = ()
    starts_ms: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    reported_ms: tuple[int, ...] = ()
    plain_starts: tuple[int, ...] = ()
    plain_sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> LocalLogTable:
        """The table of these rows, which are in the order of their brokers."""
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
        """What is known of each."""
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
    """The whole table of a partition, from the field that both its records have for it."""
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
    """What is known of a replica in this life of its broker: a table may be older than that."""
    life = broker_id, broker_epoch
    if life not in table.lives:
        return NOTHING_KNOWN
    at = table.lives.index(life)
    return LocalLogStats(table.starts_ms[at], table.sizes[at])
