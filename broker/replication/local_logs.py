"""Local logs of a partition's replicas, as its leader knows them, and the time to report them.

A leader tells the controller what the members of the ISR have of the log locally (KIP-1303). Read
literally, each append is news: so what has changed is told

- with any change of the ISR;
- at once when a member crosses a threshold, either way, or becomes known: the controller's verdict,
  which goes by what it was told, would be another one;
- else once in `kraftbox.local.log.report.interval.ms`, where the metadata say something else than
  the replicas do. A controller that stores nothing hears it once per interval, no more.

A report alone is a proposal of the ISR that holds. It waits for an ISR change, never the other way
round: a change that is wanted while a report is under way goes at once, and the controller takes it
on either side of the report. A report that was refused or lost is dropped: nothing is told anew for
an interval.

A partition has this only while a threshold is in force for its topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.replication.isr import IsrMember, IsrProposal
from metalog.image.local_log import (
    NO_LOCAL_LOGS,
    NOTHING_KNOWN,
    UNKNOWN,
    LocalLogStats,
    LocalLogTable,
    LocalLogThresholds,
    judge,
    known_stats,
)
from storage.log.errors import LogFailed

if TYPE_CHECKING:
    from storage.log.log import Log

REPORT_INTERVAL_MS: Final = 30_000.0
NEVER_MS: Final = float("-inf")


class MemberLocalLog(NamedTuple):
    """What a member of the ISR has, said in this life of its broker."""

    broker_id: int
    broker_epoch: int
    stats: LocalLogStats


def own_stats(log: Log) -> LocalLogStats:
    """What a log has, in this moment; a disk that does not say it says nothing."""
    return LocalLogStats(start_ms_of(log), log.size_bytes)


def start_ms_of(log: Log) -> int:
    try:
        return log.local_start_ms()
    except LogFailed:
        return UNKNOWN


class LocalLogs:
    """See the module. All times are monotonic milliseconds, but for `wall_ms`."""

    __slots__ = (
        "_held_until_ms",
        "_next_ms",
        "_told",
        "in_flight",
        "interval_ms",
        "known",
        "stated_bytes",
        "stated_start_ms",
        "thresholds",
    )

    def __init__(
        self,
        thresholds: LocalLogThresholds,
        interval_ms: float = REPORT_INTERVAL_MS,
        known: LocalLogTable = NO_LOCAL_LOGS,
    ) -> None:
        self.thresholds = thresholds
        self.interval_ms = interval_ms
        self.known = known
        """What the metadata say."""
        self.in_flight: IsrProposal | None = None
        """The report that is under way."""
        self.stated_start_ms = UNKNOWN
        self.stated_bytes = UNKNOWN
        """A follower's: what its newest fetch that named the partition has said."""
        # What the controller was told last, by broker.
        self._told: dict[int, MemberLocalLog] = {}
        self._next_ms = NEVER_MS
        self._held_until_ms = NEVER_MS
        self.begin()

    def begin(self) -> None:
        """A leader epoch begins: what the metadata say is what the controller knows."""
        self.in_flight = None
        self._next_ms = self._held_until_ms = NEVER_MS
        self._told = {
            one.broker_id: MemberLocalLog(one.broker_id, one.broker_epoch, one.stats)
            for one in self.known.entries
        }

    # --- a follower's -------------------------------------------------------------------------

    def state(self, log: Log) -> None:
        """A fetch that names the partition says this of the log."""
        self.stated_start_ms, self.stated_bytes = start_ms_of(log), log.size_bytes

    def is_stated(self, log: Log) -> bool:
        """Whether the leader was told what the log has now."""
        return self.stated_bytes == log.size_bytes and self.stated_start_ms == start_ms_of(log)

    # --- when ---------------------------------------------------------------------------------

    def may_report(self, now_ms: float) -> bool:
        return self.in_flight is None and now_ms >= self._held_until_ms

    def crosses(self, member: MemberLocalLog, wall_ms: int) -> bool:
        """Whether the controller must hear of this member at once."""
        stats = member.stats
        if stats == NOTHING_KNOWN:
            return False
        told = self._told.get(member.broker_id)
        if told is None or told.broker_epoch != member.broker_epoch:
            return True
        if told.stats == stats:
            return False
        before = judge(told.stats, self.thresholds, wall_ms)
        return before.enough is not judge(stats, self.thresholds, wall_ms).enough

    def is_settled(self, broker_id: int, epoch: int, start_ms: int, size_bytes: int) -> bool:
        """Whether `crosses` is false for sure, of a log that has only grown or shrunk on its side
        of the threshold: nearly every fetch asks, so nothing is made for it."""
        told = self._told.get(broker_id)
        if told is None or told.broker_epoch != epoch:
            return False
        before_ms, before = told.stats
        limit = self.thresholds.size_bytes
        return (
            before_ms == start_ms
            and before > 0
            and size_bytes > 0
            and (limit <= 0 or (before >= limit) is (size_bytes >= limit))
        )

    def is_due(self, members: Iterable[MemberLocalLog], now_ms: float) -> bool:
        """Whether it is time to tell what the metadata do not say."""
        return now_ms >= self._next_ms and any(
            stats not in (NOTHING_KNOWN, known_stats(self.known, broker_id, epoch))
            for broker_id, epoch, stats in members
        )

    # --- telling ------------------------------------------------------------------------------

    def tell(
        self,
        lives: Iterable[IsrMember],
        members: Iterable[MemberLocalLog],
        own_epoch: int,
        now_ms: float,
    ) -> list[MemberLocalLog]:
        """What goes with a proposal of these lives: not what a member has said in a later one than
        the proposal names. The leader speaks for itself, in its own epoch."""
        epochs = {member.broker_id: member.broker_epoch for member in lives}
        said = [one for one in members if one.broker_epoch in (epochs[one.broker_id], own_epoch)]
        self.told(said, now_ms)
        return said

    def told(self, members: Iterable[MemberLocalLog], now_ms: float) -> None:
        """These are in a request that goes out now."""
        for member in members:
            if member.stats != NOTHING_KNOWN:
                self._told[member.broker_id] = member
        self._next_ms = now_ms + self.interval_ms

    def over(self, now_ms: float, *, accepted: bool) -> None:
        """The report under way has its answer, or will have none."""
        self.in_flight = None
        if not accepted:
            self._held_until_ms = now_ms + self.interval_ms

    # --- the rule -----------------------------------------------------------------------------

    def is_enough(self, stats: LocalLogStats, wall_ms: int) -> bool:
        return judge(stats, self.thresholds, wall_ms).enough
