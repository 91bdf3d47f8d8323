"""Local logs in elections: election order, and maintenance of the known stats (KIP-1303).

`metadata.image.local_log.judge` decides whether a replica has enough of the log locally. Replicas
with enough are tried before the others; both groups stay in assignment order. That is a preference:
the others are still elected if no replica has enough. It changes with time alone; nothing keeps an
earlier preference.

The stats of a partition are one table, which the metadata log stores with the partition's changes.
An entry is about one incarnation of a broker and one log. It is dropped when the replica is
removed, moves to another directory, or returns from an unclean shutdown. Entries of earlier broker
incarnations are never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from immutables import Map

from controller.elections.eligibility import PartitionReplicas
from metalog.image.local_log import (
    NOTHING_KNOWN,
    UNKNOWN,
    Lives,
    LocalLogStats,
    LocalLogTable,
    LocalLogThresholds,
    ReplicaLocalLog,
    judge,
)
from metalog.image.values import BrokerImage

Short: TypeAlias = Callable[[LocalLogTable], int]
"""Returns one bit per incarnation in a table, the first the highest: 1 if it does not have enough.

Bits of earlier incarnations are set, too, but not used.
"""
TooLittle: TypeAlias = Callable[[LocalLogTable], tuple[int, ...]]
"""Returns the brokers of a table whose replicas do not have enough."""


@dataclass(frozen=True, slots=True)
class LocalLogOrder:
    """An `ElectionOrder` of a topic with a threshold: one stable sort on a copy."""

    thresholds: LocalLogThresholds
    brokers: Map[int, BrokerImage]

    def __call__(
        self, partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        return eligible_first(replicas, self.at(now_ms)(partition.local_logs))

    def short_at(self, now_ms: int) -> Short:
        """Return a function that finds replicas with too little at `now_ms`, reusable for all
        partitions.

        It gives the same results as `judge`. It calls `judge` itself for tables that are not plain,
        and if there are limits on both time and size.
        """
        thresholds = self.thresholds
        since_ms = now_ms - thresholds.span_ms
        by_time, by_size = thresholds.span_ms > 0 and since_ms >= 0, thresholds.size_bytes > 0
        if by_time == by_size:
            return partial(_judged, thresholds, now_ms)
        judged = partial(_judged, thresholds, now_ms)
        return _by_start(since_ms, judged) if by_time else _by_bytes(thresholds.size_bytes, judged)

    def at(self, now_ms: int) -> TooLittle:
        """Return a function that finds the brokers with too little at `now_ms`; create it once per
        decision."""
        short_of, brokers = self.short_at(now_ms), self.brokers
        # Consecutive tables mostly contain the same incarnations with the same flags.
        last: tuple[Lives, int, tuple[int, ...]] = (), 0, ()

        def too_little(table: LocalLogTable) -> tuple[int, ...]:
            nonlocal last
            lives, flags = table.lives, short_of(table)
            if lives is not last[0] or flags != last[1]:
                bit = 1 << len(lives)
                found: list[int] = []
                for broker_id, epoch in lives:
                    bit >>= 1
                    broker = brokers.get(broker_id)
                    if flags & bit and broker is not None and broker.epoch == epoch:
                        found.append(broker_id)
                last = lives, flags, tuple(found)
            return last[2]

        return too_little

    def known(self, table: LocalLogTable, broker_id: int) -> ReplicaLocalLog:
        """Return what is known of this replica for the current incarnation of its broker."""
        broker = self.brokers.get(broker_id)
        for one in table.entries:
            if broker is not None and one[:2] == (broker_id, broker.epoch):
                return one
        return ReplicaLocalLog(broker_id, UNKNOWN, NOTHING_KNOWN)


def _judged(thresholds: LocalLogThresholds, now_ms: int, table: LocalLogTable) -> int:
    flags = 0
    for one in table.entries:
        flags += flags + (not judge(one.stats, thresholds, now_ms).enough)
    return flags


# Nearly all tables are of three replicas: without a loop each takes half the time.


def _by_start(since_ms: int, judged: Short) -> Short:
    def short(table: LocalLogTable) -> int:
        try:
            first, second, third = table.plain_starts
        except ValueError:
            return judged(table)
        flags = 4 if first > since_ms else 0
        if second > since_ms:
            flags += 2
        return flags + 1 if third > since_ms else flags

    return short


def _by_bytes(size_bytes: int, judged: Short) -> Short:
    def short(table: LocalLogTable) -> int:
        try:
            first, second, third = table.plain_sizes
        except ValueError:
            return judged(table)
        flags = 4 if first < size_bytes else 0
        if second < size_bytes:
            flags += 2
        return flags + 1 if third < size_bytes else flags

    return short


def eligible_first(replicas: tuple[int, ...], short: tuple[int, ...]) -> tuple[int, ...]:
    """Return the replicas that are not short, then the others, each group in its order."""
    return tuple(sorted(replicas, key=short.__contains__)) if short else replicas


ReportedLog: TypeAlias = tuple[int, int, LocalLogStats]
"""A leader's report about an ISR member: broker, broker epoch, stats."""


def with_report(table: LocalLogTable, reports: Iterable[ReportedLog], now_ms: int) -> LocalLogTable:
    """Return the table after a leader's report.

    Unknown values in the report leave known ones of the same incarnation unchanged: a new leader
    knows only its own log.
    """
    rows = {row[0][0]: row for row in table.rows}
    for broker_id, broker_epoch, (start_ms, size) in reports:
        if start_ms < 0 and size < 0:
            continue
        life, known = (broker_id, broker_epoch), rows.get(broker_id)
        if known is not None and known[0] == life:
            start_ms = known[1] if start_ms < 0 else start_ms
            size = known[2] if size < 0 else size
        rows[broker_id] = life, start_ms, size, now_ms
    return LocalLogTable.of(rows[broker_id] for broker_id in sorted(rows))


def kept(
    table: LocalLogTable,
    before: Mapping[int, bytes],
    after: Mapping[int, bytes],
    doubted: frozenset[int],
) -> LocalLogTable:
    """Return the entries that stay valid when the replicas, with directories, change to `after`.

    Args:
        doubted: brokers whose logs may have been replaced.
    """
    return LocalLogTable.of(
        row
        for row in table.rows
        if (broker_id := row[0][0]) in after
        and after[broker_id] == before.get(broker_id, after[broker_id])
        and broker_id not in doubted
    )
