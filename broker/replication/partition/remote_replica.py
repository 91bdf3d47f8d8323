"""Fetch state of one follower, as its leader keeps it.

"Caught up" is a time, not a number of records (KIP-16). A fetch whose offset reached the log end at
the read was caught up then. A fetch whose offset reached the log end of the previous fetch was
caught up at that one. Any other fetch changes nothing. The log end is that of the read, so an
append between read and calculation does no harm. A follower that is always one fetch behind stays
in the ISR.

A follower that has read a partition to its end goes on fetching in its session without naming it.
Then the session's time applies to it (`resting`), and nothing has to be recorded until the next
append: thousands of idle partitions cost nothing per fetch. When the session ends, or continues
without the partition, its time is recorded as well. The follower's next session needs several
requests to name thousands of partitions, and an append may come before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

UNKNOWN: Final = -1
NEVER_MS: Final = float("-inf")


class FetchTimes(Protocol):
    """Source of a follower's fetch times: a session that covers a partition without naming it."""

    fetch_ms: float
    """Time of the newest fetch (monotonic milliseconds)."""


class RemoteReplica:
    """One follower of a partition. All times are monotonic milliseconds."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetch_ms",
        "leader_end_at_fetch",
        "local_bytes",
        "local_start_ms",
        "log_end",
        "log_start",
        "resting",
    )

    def __init__(self, now_ms: float = NEVER_MS) -> None:
        """Start without any fetch. `now_ms` is given for members of the ISR: their lag time begins
        with the leader epoch."""
        self.log_end = UNKNOWN  # until it fetches in this leader epoch
        self.log_start = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.fetch_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN
        self.caught_up_ms = now_ms
        self.resting: FetchTimes | None = None
        # Local part of its log, if it reports it (KIP-1303).
        self.local_start_ms = UNKNOWN
        self.local_bytes = UNKNOWN

    def fetched(
        self,
        offset: int,
        log_start: int,
        broker_epoch: int,
        leader_end: int,
        now_ms: float,
        times: FetchTimes | None = None,
    ) -> None:
        """Note a fetch of the follower at `offset` while the leader's log ended at `leader_end`.

        `times` are those of the session through which it goes on fetching, if it has one.
        """
        self.wake()
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
            self.resting = times
        elif offset >= self.leader_end_at_fetch >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        if broker_epoch != self.broker_epoch:
            # A new broker incarnation, perhaps with another disk.
            self.broker_epoch = broker_epoch
            self.local_start_ms = self.local_bytes = UNKNOWN
        self.log_end = offset
        self.log_start = log_start
        self.leader_end_at_fetch = leader_end
        self.fetch_ms = now_ms

    def wake(self) -> None:
        """Record the session's fetch time before the log grows or the partition is named again: all
        fetches up to now reached the log end."""
        resting = self.resting
        if resting is not None:
            self.resting = None
            if resting.fetch_ms > self.fetch_ms:
                self.fetch_ms = resting.fetch_ms
                self.caught_up_ms = max(self.caught_up_ms, resting.fetch_ms)

    def rests_by(self, times: object) -> bool:
        """Return whether the follower is at rest with these times."""
        return self.resting is times

    def stated(self, broker_epoch: int, local_start_ms: int, local_bytes: int) -> bool:
        """Note the local-log stats in a fetch of that broker epoch; -1 leaves a value as it is.
        Returns: whether a value changed."""
        if broker_epoch != self.broker_epoch:
            return False
        if local_start_ms == UNKNOWN:
            local_start_ms = self.local_start_ms
        if local_bytes == UNKNOWN:
            local_bytes = self.local_bytes
        if local_bytes == self.local_bytes and local_start_ms == self.local_start_ms:
            return False
        self.local_start_ms, self.local_bytes = local_start_ms, local_bytes
        return True

    def is_in_sync(self, leader_end: int, now_ms: float, lag_max_ms: float) -> bool:
        """Return whether the follower is at the log end, or caught up within
        `replica.lag.time.max.ms`."""
        return self.log_end == leader_end or now_ms - self.caught_up_ms <= lag_max_ms

    def may_join(self, high_watermark: int, leader_epoch_start: int) -> bool:
        """Return whether it has all records that may have been acknowledged (KAFKA-7128)."""
        return self.log_end >= high_watermark and self.log_end >= leader_epoch_start


def laggards(
    replicas: Mapping[int, RemoteReplica],
    members: Iterable[int],
    *,
    leader_end: int,
    now_ms: float,
    lag_max_ms: float,
) -> frozenset[int]:
    """Return the members that are no longer in sync. The leader is never in `replicas`, so it is
    never returned."""
    return frozenset(
        member
        for member in members
        if (replica := replicas.get(member)) is not None
        and not replica.is_in_sync(leader_end, now_ms, lag_max_ms)
    )
