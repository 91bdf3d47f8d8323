"""Local logs in elections: who goes first, and what the image knows of them (KIP-1303).

The rule whether a replica has enough locally is `metalog.image.local_log.judge`. Here is what a
controller does by it: replicas with enough are tried before the others, in assignment order among
both. That is a preference, so whoever is left is elected, and it passes with time alone: nothing
keeps who was preferred.

What is known of a partition is one table, which goes into the log with its changes. An entry is
about one life of a broker and one log: it goes when the replica does, gets another directory, or
came back from an unclean shutdown. One of an earlier life is never asked.
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
"""A bit for each life in a table, the first is the highest: 1 where it does not have enough. Also
of earlier ones, which are not asked."""
TooLittle: TypeAlias = Callable[[LocalLogTable], tuple[int, ...]]
"""Brokers of a table whose replicas do not have enough."""


@dataclass(frozen=True, slots=True)
class LocalLogOrder:
    """An `ElectionOrder` of a topic that has a threshold: one stable sort on a copy."""

    thresholds: LocalLogThresholds
    brokers: Map[int, BrokerImage]

    def __call__(
        self, partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        return eligible_first(replicas, self.at(now_ms)(partition.local_logs))

    def short_at(self, now_ms: int) -> Short:
        """Who is short at that time; made once for the ten thousand partitions of a decision.

        It says what `judge` does, which it asks of tables that are not plain, and where there are
        limits of both kinds."""
        thresholds = self.thresholds
        since_ms = now_ms - thresholds.span_ms
        by_time, by_size = thresholds.span_ms > 0 and since_ms >= 0, thresholds.size_bytes > 0
        if by_time == by_size:
            return partial(_judged, thresholds, now_ms)
        judged = partial(_judged, thresholds, now_ms)
        return _by_start(since_ms, judged) if by_time else _by_bytes(thresholds.size_bytes, judged)

    def at(self, now_ms: int) -> TooLittle:
        """Who has too little at that time, made once for a decision."""
        short_of, brokers = self.short_at(now_ms), self.brokers
        # Neighbours mostly name the same lives, and as often the same of them are short.
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
        """What is known of this replica in the life that its broker has now."""
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
    """Those that are not short before those that are; both stay in their order."""
    return tuple(sorted(replicas, key=short.__contains__)) if short else replicas


Told: TypeAlias = tuple[int, int, LocalLogStats]
"""What a leader says that a member of the ISR has: broker, epoch of that life, stats."""


def with_report(table: LocalLogTable, told: Iterable[Told], now_ms: int) -> LocalLogTable:
    """The table after a leader's report. What it does not know leaves what is known of the same
    life as it is: a new leader knows its own log alone."""
    rows = {row[0][0]: row for row in table.rows}
    for broker_id, broker_epoch, (start_ms, size) in told:
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
    """What still holds once the replicas, with their directories, are `after`; the logs of
    `doubted` brokers may be other ones."""
    return LocalLogTable.of(
        row
        for row in table.rows
        if (broker_id := row[0][0]) in after
        and after[broker_id] == before.get(broker_id, after[broker_id])
        and broker_id not in doubted
    )
