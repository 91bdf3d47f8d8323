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

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

UNKNOWN: Final = -1


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


def table_of(entries: Iterable[Any]) -> tuple[ReplicaLocalLog, ...]:
    """The whole table of a partition, from the field that both its records have for it."""
    return tuple(
        ReplicaLocalLog(
            one.broker_id,
            one.broker_epoch,
            LocalLogStats(one.start_timestamp, one.size_bytes),
            one.reported_ms,
        )
        for one in entries
    )


def known_stats(
    table: tuple[ReplicaLocalLog, ...], broker_id: int, broker_epoch: int
) -> LocalLogStats:
    """What is known of a replica in this life of its broker: a table may be older than that."""
    for one in table:
        if one.broker_id == broker_id and one.broker_epoch == broker_epoch:
            return one.stats
    return NOTHING_KNOWN
