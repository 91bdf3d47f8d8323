"""Fetch state of the partitions that this broker follows at one leader: offsets, sessions, answers.

One fetcher serves all partitions that this broker follows at one leader (or its share of them, with
`num.replica.fetchers`). It uses incremental fetch sessions: a request names only partitions that
changed since the last one, so thousands of idle partitions cost nothing.

- A partition whose answer was an error leaves the session until its retry backoff is over. The
  first backoffs are short, because leader and follower learn of an election at different times.
  They grow up to `replica.fetch.backoff.ms`.
- Answers to requests from before a partition's present state are ignored (`followed`, KAFKA-13207).
- A leader whose metadata is behind receives few partitions at a time (`leader_pace`).
- One request is in flight. A second is sent when partitions were added, or return from a backoff, a
  flush or a reset. The first may be waiting for bytes at the leader, and a leader must learn at
  once which replicas follow it and what is on their disks. Without a session there is no second
  request, so a request that leaves partitions out waits only briefly.
- OFFSET_OUT_OF_RANGE and OFFSET_MOVED_TO_TIERED_STORAGE are returned as `Reset`: another component
  resets the offset and may send requests for it.
- A topic that flushes (`flush.messages`) is fetched further only once the received records are on
  disk: the next fetch confirms to the leader that this replica has them.

Nothing here does I/O but the partitions' logs; `connections` owns the connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.replication.fetching.followed import Followed, FollowedPartitions, PartitionId
from broker.replication.fetching.follower import Appended, append_fetched, truncate_to_common
from broker.replication.fetching.leader_pace import (
    BACK_OFF_FIRST_MS,
    BEHIND_FIRST_MS,
    NAMED_MAX,
    LeaderPace,
)
from broker.replication.partition.effects import Effects
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import ReplicaRole
from broker.replication.throttle import ReplicationThrottle
from protocol.batch.header import Buffer
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from runtime.errors import InvariantViolated
from runtime.log import get_logger
from runtime.marks import mark
from storage.log.errors import CorruptLog, LogFailed

IN_FLIGHT_MAX: Final = 2
SHORT_WAIT_MS: Final = 20
"""How long a request without a session may wait for bytes while some partition is not in it."""
NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1

_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_BEHIND_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_RESET_ERRORS: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE}
)

_log = get_logger("broker.fetcher")

_Data = FetchResponse.PartitionData


class FetcherSettings(NamedTuple):
    """Settings of a fetcher. Names and units are those of `replica.fetch.*`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10_485_760
    max_bytes: int = 1_048_576
    backoff_ms: float = 1_000.0


class Reset(NamedTuple):
    """The leader does not have the requested offset."""

    partition: Partition
    error: ErrorCode
    leader_epoch: int
    leader_log_start: int
    """-1 if the leader does not report it."""


class Flush(NamedTuple):
    """The partition's records must be on disk before it is fetched further."""

    partition: Partition


class StorageFailed(NamedTuple):
    """The partition's log cannot accept appends any more."""

    partition: Partition
    cause: BaseException


class Unforeseen(NamedTuple):
    """An unexpected exception while applying the leader's answer for this partition, which is
    fetched again later."""

    partition: Partition
    error: Exception
    records: Buffer


class Decided(NamedTuple):
    """Effects that the partition has returned."""

    partition: Partition
    effects: Effects


Effect = Reset | Flush | StorageFailed | Unforeseen | Decided


class FetcherCounters:
    """Plain integers, read when metrics are scraped."""

    __slots__ = ("bytes", "failed_requests", "requests")

    def __init__(self) -> None:
        self.bytes = 0
        self.requests = 0
        self.failed_requests = 0


class Fetcher:
    """The state of one fetcher: its partitions, its session and its backoffs."""

    def __init__(
        self,
        leader_id: int,
        node_id: int,
        settings: FetcherSettings,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.leader_id = leader_id
        self.settings = settings
        self.counters = FetcherCounters()
        self._node_id = node_id
        self._throttle = throttle
        self._partitions = FollowedPartitions(settings.backoff_ms)
        self._pace = LeaderPace(settings.backoff_ms)
        # in the newest answer: a partition served for the first time; a refusal
        self._heard = self._behind = False
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        self._sessionless = False  # the leader had no room for a session
        self._in_flight: deque[int] = deque()
        self._urgent = False

    # --- which partitions ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return (followed.partition for followed in self._partitions)

    @property
    def in_flight(self) -> int:
        """Number of requests without an answer."""
        return len(self._in_flight)

    @property
    def failed_partitions(self) -> int:
        """Number of partitions that back off after an error."""
        return sum(followed.failures > 0 for followed in self._partitions)

    @property
    def lag_max(self) -> int:
        """The largest distance to a leader's high watermark, in records."""
        return max((followed.lag for followed in self._partitions), default=0)

    def lags(self) -> list[tuple[Partition, int]]:
        """Return each partition with its distance to the leader's high watermark, in records."""
        return [(followed.partition, followed.lag) for followed in self._partitions]

    @property
    def states_local_logs(self) -> bool:
        """True if the newest request reports the replicas' local logs."""
        return self._partitions.states_local_logs

    def follow(self, partition: Partition) -> None:
        """Fetch `partition` from now on, or in its new leader epoch."""
        self._partitions.follow(partition)
        self._urgent |= self._pace.probe_at_ms is None

    def unfollow(self, partition: Partition) -> bool:
        """Stop fetching `partition`. Returns: False if it was not fetched."""
        return self._partitions.unfollow(partition)

    def resume(self, partition: Partition) -> None:
        """Continue fetching `partition` after a flush or a reset."""
        key, followed = self._partitions.find(partition)
        if followed is not None and followed.paused:
            self._partitions.resume(key, followed)
            self._urgent = True

    def restate(self, partition: Partition) -> None:
        """Name the partition again if its local log differs from the last report (KIP-1303). The
        log end has not changed, so this may wait for the answer in flight, which stays valid."""
        (key, followed), logs = self._partitions.find(partition), partition.local_logs
        if (
            followed is not None
            and logs is not None
            and not followed.paused
            and not logs.is_stated(partition.log)
        ):
            self._partitions.changed[key] = None

    def retry_later(self, partition: Partition, now_ms: float) -> None:
        """Retry the reset of `partition` after a backoff."""
        key, followed = self._partitions.find(partition)
        if followed is not None:
            self._partitions.back_off(key, followed, now_ms)

    # --- requests -----------------------------------------------------------------------------

    def due_ms(self, now_ms: float) -> float | None:
        """Return the earliest time of the next request, or None until another event."""
        self._end_pauses(now_ms)
        if self._in_flight and not self._may_pipeline():
            return None
        if self._is_to_name or self._partitions.in_session:
            return self._pace.pause_until_ms
        return None

    def wake_ms(self) -> float | None:
        """Return the end of the next backoff, of a partition or of a leader that is behind; None
        without one."""
        pause_ms = self._partitions.next_pause_ms
        probe_ms = self._pace.probe_at_ms if self._partitions.unheard else None
        return min((at_ms for at_ms in (pause_ms, probe_ms) if at_ms is not None), default=None)

    @property
    def _is_to_name(self) -> bool:
        partitions = self._partitions
        return bool(partitions.changed or (partitions.unheard and self._pace.probe_at_ms is None))

    def _may_pipeline(self) -> bool:
        return (
            self._urgent
            and self._session_epoch != FIRST_EPOCH
            and len(self._in_flight) < IN_FLIGHT_MAX
        )

    def next_request(self, broker_epoch: int, now_ms: float) -> FetchRequest | None:
        """Return the request to send now, if any (after `due_ms`); call `answered` or `lost`
        afterwards."""
        partitions = self._partitions
        if now_ms < self._pace.pause_until_ms or (self._in_flight and not self._may_pipeline()):
            return None
        if self._session_epoch == FIRST_EPOCH:
            if self._sessionless:
                partitions.name_all()
            if not self._is_to_name:
                return None
        elif not (self._is_to_name or partitions.in_session):
            return None
        if self._sessionless:
            named = partitions.take_all()
        else:
            named = partitions.take(NAMED_MAX, self._pace.unserved_max)
        partitions.serial += 1
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._node_id, replica_epoch=broker_epoch
            ),
            max_wait_ms=self._max_wait_ms(named),
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=partitions.topics(named, self.settings.max_bytes),
            forgotten_topics_data=partitions.take_forgotten(),
        )
        self._urgent = self._is_to_name
        self._in_flight.append(partitions.serial)
        self.counters.requests += 1
        if self._session_epoch != FIRST_EPOCH:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        return request

    def _max_wait_ms(self, named: list[PartitionId]) -> int:
        """Return how long the leader may hold the request. Partitions left out learn and report
        nothing in that time."""
        if self._is_to_name:
            return 0
        if self._sessionless and len(named) < len(self._partitions):
            return min(SHORT_WAIT_MS, self.settings.wait_max_ms)
        return self.settings.wait_max_ms

    def _end_pauses(self, now_ms: float) -> None:
        if self._pace.end_probe_pause(now_ms):
            self._urgent |= bool(self._partitions.unheard)
        if self._partitions.end_pauses(now_ms):
            self._urgent = True

    # --- answers ------------------------------------------------------------------------------

    def lost(self, now_ms: float) -> None:
        """Start a new session after a backoff: the connection was lost, or could not be made."""
        self.counters.failed_requests += 1
        self._in_flight.clear()
        self._end_session()
        self._pace.failed(now_ms)

    def try_once(self) -> None:
        """Skip the backoff before the first reconnect, to find out at once whether the leader is
        reachable."""
        self._pace.try_once()

    def hurry(self) -> None:
        """Skip all backoffs: the leader may be reachable again."""
        self._pace.hurry()

    def answered(self, response: FetchResponse, now_ms: float) -> list[Effect]:
        """Apply the answer to the oldest request in flight; return what the caller must do."""
        serial = self._in_flight.popleft()
        if response.error_code:
            error = ErrorCode(response.error_code)
            if error not in _SESSION_ERRORS:
                self._pace.failed(now_ms)
            self._end_session()
            return []
        self._pace.answered()
        if self._session_epoch == FIRST_EPOCH:
            self._session_id = response.session_id
            self._sessionless = response.session_id == NO_SESSION
            self._session_epoch = 1 if response.session_id != NO_SESSION else FIRST_EPOCH
        effects: list[Effect] = []
        self._heard = self._behind = False
        followed_by_id = self._partitions.by_id
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                key = (topic_id, data.partition_index)
                followed = followed_by_id.get(key)
                if followed is None or followed.paused:
                    continue
                if serial < followed.serial:
                    mark("replication.stale-answer")
                    continue
                self._apply(key, followed, data, now_ms, effects)
        if self._heard or self._behind:
            self._pace.learn(now_ms, served=self._heard, behind=self._behind)
        return effects

    def _end_session(self) -> None:
        """Drop the session: the next request names all partitions, and older answers are
        ignored."""
        # Send the session id once more: the leader ends that session when it opens the next.
        self._session_epoch = FIRST_EPOCH
        self._partitions.end_session()

    def _apply(
        self,
        key: PartitionId,
        followed: Followed,
        data: _Data,
        now_ms: float,
        effects: list[Effect],
    ) -> None:
        partition = followed.partition
        if partition.role is not ReplicaRole.FOLLOWER:
            return
        if data.error_code:
            self._refused(key, followed, data, now_ms, effects)
            return
        if not followed.heard:
            followed.heard = self._heard = True
        appended = self._take_over(key, followed, data, now_ms, effects)
        if appended is None:
            return
        if appended.effects:
            effects.append(Decided(partition, appended.effects))
        followed.failures = 0
        followed.lag = max(0, data.high_watermark - partition.log.log_end_offset)
        if appended.record_count:
            self._count(partition, appended.size_bytes)
            if partition.follower_throttled and self._is_over_rate(key, followed, appended, now_ms):
                return
            if partition.flush_due:
                self._partitions.hold(key, followed)
                effects.append(Flush(partition))
                return
        if appended.record_count or appended.log_start_moved:
            self._partitions.name(key, followed)

    def _take_over(
        self,
        key: PartitionId,
        followed: Followed,
        data: _Data,
        now_ms: float,
        effects: list[Effect],
    ) -> Appended | None:
        """Apply the answer to the log. Returns: None if nothing follows for this partition."""
        partition = followed.partition
        try:
            if data.diverging_epoch.epoch >= 0:
                diverging = data.diverging_epoch
                truncate_to_common(
                    partition, diverging.epoch, diverging.end_offset, data.log_start_offset
                )
                self._partitions.name(key, followed)
                return None
            records = data.records
            assert not isinstance(records, list)
            return append_fetched(
                partition,
                records,
                leader_high_watermark=data.high_watermark,
                leader_log_start=data.log_start_offset,
            )
        except LogFailed as error:
            self._partitions.hold(key, followed)
            effects.append(StorageFailed(partition, error.cause))
            return None
        except CorruptLog as error:
            _log.warning(
                "fetched batches do not follow the end of the log",
                topic=partition.topic,
                partition=partition.index,
                leader=self.leader_id,
                error=str(error),
            )
            self._partitions.back_off(key, followed, now_ms)
            return None
        except InvariantViolated:
            raise
        except Exception as error:  # noqa: BLE001 - one partition's bytes must not stop the others
            self._partitions.back_off(key, followed, now_ms)
            records = data.records
            head = b"" if records is None or isinstance(records, list) else records
            effects.append(Unforeseen(partition, error, head))
            return None

    def _count(self, partition: Partition, size_bytes: int) -> None:
        self.counters.bytes += size_bytes
        partition.counters.replication_bytes_in += size_bytes
        if self._node_id in partition.adding:
            partition.counters.reassignment_bytes_in += size_bytes

    def _is_over_rate(
        self, key: PartitionId, followed: Followed, appended: Appended, now_ms: float
    ) -> bool:
        """Return whether a throttled partition pauses now. A member of the ISR never pauses
        (KIP-73)."""
        throttle = self._throttle
        if throttle is None or self._node_id in followed.partition.isr:
            return False
        throttle.record(appended.size_bytes, now_ms)
        pause_ms = throttle.pause_ms(now_ms)
        if pause_ms <= 0:
            return False
        self._partitions.hold_until(key, followed, now_ms + pause_ms)
        return True

    def _refused(
        self,
        key: PartitionId,
        followed: Followed,
        data: FetchResponse.PartitionData,
        now_ms: float,
        effects: list[Effect],
    ) -> None:
        error, partition = ErrorCode(data.error_code), followed.partition
        if error in _RESET_ERRORS:
            self._partitions.hold(key, followed)
            effects.append(Reset(partition, error, partition.leader_epoch, data.log_start_offset))
        else:
            behind = error in _BEHIND_ERRORS and not followed.heard
            self._partitions.back_off(
                key, followed, now_ms, BEHIND_FIRST_MS if behind else BACK_OFF_FIRST_MS
            )
            self._behind |= behind
