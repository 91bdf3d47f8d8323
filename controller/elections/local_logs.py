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
from typing import NamedTuple, TypeAlias

from immutables import Map

from controller.elections.eligibility import PartitionReplicas
from metalog.image.local_log import (
    NOTHING_KNOWN,
    UNKNOWN,
    LocalLogStats,
    LocalLogThresholds,
    ReplicaLocalLog,
    judge,
    known_stats,
)
from metalog.image.values import BrokerImage

Table: TypeAlias = tuple[ReplicaLocalLog, ...]
TooLittle: TypeAlias = Callable[[Table], tuple[int, ...]]
"""Brokers of a table, in its order, whose replicas do not have enough."""


@dataclass(frozen=True, slots=True)
class LocalLogOrder:
    """An `ElectionOrder` of a topic that has a threshold: one stable sort on a copy."""

    thresholds: LocalLogThresholds
    brokers: Map[int, BrokerImage]

    def __call__(
        self, partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
    ) -> tuple[int, ...]:
        return eligible_first(replicas, self.at(now_ms)(partition.local_logs))

    def at(self, now_ms: int) -> TooLittle:
        """Who has too little at that time; made once for the ten thousand partitions of a decision.

        It says what `judge` does, which it asks where something is not known, or nothing is there.
        """
        thresholds, brokers = self.thresholds, self.brokers
        span_ms, enough_bytes = thresholds.span_ms, thresholds.size_bytes
        since_ms = now_ms - span_ms if span_ms > 0 else UNKNOWN
        by_size = enough_bytes > 0

        def too_little(table: Table) -> tuple[int, ...]:
            short: tuple[int, ...] = ()
            for broker_id, broker_epoch, (start_ms, size), _ in table:
                if size and 0 <= start_ms <= since_ms:
                    continue
                if by_size and size >= enough_bytes:
                    continue
                known = start_ms >= 0 and size > 0
                if not known and judge(LocalLogStats(start_ms, size), thresholds, now_ms).enough:
                    continue
                broker = brokers.get(broker_id)
                if broker is not None and broker.epoch == broker_epoch:
                    short += (broker_id,)
            return short

        return too_little

    def known(self, table: Table, broker_id: int) -> ReplicaLocalLog:
        """What is known of this replica in the life that its broker has now."""
        broker = self.brokers.get(broker_id)
        for one in table:
            if broker is not None and one[:2] == (broker_id, broker.epoch):
                return one
        return ReplicaLocalLog(broker_id, UNKNOWN, NOTHING_KNOWN)


def eligible_first(replicas: tuple[int, ...], short: tuple[int, ...]) -> tuple[int, ...]:
    """Those that are not short before those that are; both stay in their order."""
    return tuple(sorted(replicas, key=short.__contains__)) if short else replicas


class Told(NamedTuple):
    """What a leader says that a member of the ISR has, in that life of its broker."""

    broker_id: int
    broker_epoch: int
    stats: LocalLogStats


def with_report(table: Table, told: Iterable[Told], now_ms: int) -> Table:
    """The table after a leader's report. What it does not know leaves what is known of the same
    life as it is: a new leader knows its own log alone."""
    entries = {one.broker_id: one for one in table}
    for broker_id, broker_epoch, (start_ms, size) in told:
        if start_ms < 0 and size < 0:
            continue
        known = known_stats(table, broker_id, broker_epoch)
        stats = LocalLogStats(
            known.start_timestamp_ms if start_ms < 0 else start_ms,
            known.size_bytes if size < 0 else size,
        )
        entries[broker_id] = ReplicaLocalLog(broker_id, broker_epoch, stats, now_ms)
    return tuple(entries[broker_id] for broker_id in sorted(entries))


def kept(
    table: Table,
    before: Mapping[int, bytes],
    after: Mapping[int, bytes],
    doubted: frozenset[int],
) -> Table:
    """What still holds once the replicas, with their directories, are `after`; the logs of
    `doubted` brokers may be other ones."""
    return tuple(
        one
        for one in table
        if one.broker_id in after
        and after[one.broker_id] == before.get(one.broker_id, after[one.broker_id])
        and one.broker_id not in doubted
    )
