"""Local logs of a partition's replicas, as its leader knows them, and the rules for reporting them.

A leader reports to the controller what the ISR's members have of the log locally (KIP-1303). Read
literally, each append would be news. So a change is reported

- with any change of the ISR;
- at once when a member crosses a threshold in either direction or becomes known, because this would
  change the controller's judgement;
- otherwise once in `kraftbox.local.log.report.interval.ms`, if the metadata differs from the
  replicas' values. A controller that does not store the values receives them once per interval, not
  more often.

A report alone is a proposal of the present ISR. It waits for an ISR change, never the other way
round. An ISR change that is needed while a report is in flight is sent at once, and the controller
accepts it before or after the report. A refused or lost report is dropped: nothing is reported
again for one interval.

A partition has this object only while a threshold is in force for its topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.replication.partition.isr import IsrMember, IsrProposal
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
    """Local-log stats of a member of the ISR, as reported in this broker epoch."""

    broker_id: int
    broker_epoch: int
    stats: LocalLogStats


def own_stats(log: Log) -> LocalLogStats:
    """Return the local-log stats of a log at this moment; unknown ones if the disk cannot be
    read."""
    return LocalLogStats(start_ms_of(log), log.size_bytes)


def start_ms_of(log: Log) -> int:
    try:
        return log.reader.local_start_ms()
    except LogFailed:
        return UNKNOWN


class LocalLogs:
    """Reports of one partition's local logs. All times are monotonic milliseconds, except
    `wall_ms`."""

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
        """The values in the metadata."""
        self.in_flight: IsrProposal | None = None
        """The report that is in flight."""
        self.stated_start_ms = UNKNOWN
        self.stated_bytes = UNKNOWN
        """Values that the newest fetch of a follower reported, among those that name the
        partition."""
        # Values last sent to the controller, by broker.
        self._told: dict[int, MemberLocalLog] = {}
        self._next_ms = NEVER_MS
        self._held_until_ms = NEVER_MS
        self.begin()

    def begin(self) -> None:
        """Begin a leader epoch: the controller knows the values in the metadata, and no others."""
        self.in_flight = None
        self._next_ms = self._held_until_ms = NEVER_MS
        self._told = {
            one.broker_id: MemberLocalLog(one.broker_id, one.broker_epoch, one.stats)
            for one in self.known.entries
        }

    # --- on a follower ------------------------------------------------------------------------

    def state(self, log: Log) -> None:
        """Note the log's values, which a fetch that names the partition now reports."""
        self.stated_start_ms, self.stated_bytes = start_ms_of(log), log.size_bytes

    def is_stated(self, log: Log) -> bool:
        """Return whether the newest fetch reported the log's present values to the leader."""
        return self.stated_bytes == log.size_bytes and self.stated_start_ms == start_ms_of(log)

    # --- when to report -----------------------------------------------------------------------

    def may_report(self, now_ms: float) -> bool:
        return self.in_flight is None and now_ms >= self._held_until_ms

    def crosses(self, member: MemberLocalLog, wall_ms: int) -> bool:
        """Return whether the controller must learn this member's values at once."""
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
        """Return whether `crosses` is certainly false, for a log whose size stayed on its side of
        the threshold. Nearly every fetch calls it, so it creates no objects."""
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
        """Return whether it is time to report values that differ from the metadata."""
        return now_ms >= self._next_ms and any(
            stats not in (NOTHING_KNOWN, known_stats(self.known, broker_id, epoch))
            for broker_id, epoch, stats in members
        )

    # --- reporting ----------------------------------------------------------------------------

    def tell(
        self,
        lives: Iterable[IsrMember],
        members: Iterable[MemberLocalLog],
        own_epoch: int,
        now_ms: float,
    ) -> list[MemberLocalLog]:
        """Return the values to send with a proposal of `lives`, and note them as sent. Values from
        a later broker epoch than the proposal names are left out. The leader's own values have its
        own epoch."""
        epochs = {member.broker_id: member.broker_epoch for member in lives}
        said = [one for one in members if one.broker_epoch in (epochs[one.broker_id], own_epoch)]
        self.told(said, now_ms)
        return said

    def told(self, members: Iterable[MemberLocalLog], now_ms: float) -> None:
        """Note that these values are in a request that is sent now."""
        for member in members:
            if member.stats != NOTHING_KNOWN:
                self._told[member.broker_id] = member
        self._next_ms = now_ms + self.interval_ms

    def over(self, now_ms: float, *, accepted: bool) -> None:
        """Note that the report in flight was answered or lost."""
        self.in_flight = None
        if not accepted:
            self._held_until_ms = now_ms + self.interval_ms

    # --- the rule -----------------------------------------------------------------------------

    def is_enough(self, stats: LocalLogStats, wall_ms: int) -> bool:
        return judge(stats, self.thresholds, wall_ms).enough
