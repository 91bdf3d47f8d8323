"""Fetch state of the partitions that this broker follows at one leader: offsets, sessions, answers.

One fetcher serves all partitions that this broker follows at one leader (or its share of them, with
`num.replica.fetchers`). It uses incremental fetch sessions: a request names only partitions that
changed since the last one, so thousands of idle partitions cost nothing.

- A partition whose answer was an error leaves the session until its retry backoff is over. The
  first backoffs are short, because leader and follower learn of an election at different times.
  They grow up to `replica.fetch.backoff.ms`.
- After thousands of elections a follower may learn of them before a leader, which has more to do.
  If a leader refuses because its metadata is behind, the next request names a few partitions, then
  about twice as many after each success. Each refusal costs the leader time that it needs to catch
  up.
- Every request has a serial number. A partition remembers the first request that reflects its
  present state; answers to older ones are ignored (KAFKA-13207).
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

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from broker.replication.fetching.follower import Appended, append_fetched, truncate_to_common
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
NAMED_MAX: Final = 500
"""Maximum number of partitions that one request names: both sides spend only milliseconds on it."""
SHORT_WAIT_MS: Final = 20
"""How long a request without a session may wait for bytes while some partition is not in it."""
BACK_OFF_FIRST_MS: Final = 10.0
BEHIND_FIRST_MS: Final = 2.0
"""First backoff for a leader that is behind. It has its image a few milliseconds later, and until
this follower fetches again, new records there are not committed. So each wait is at most as long as
all waits before it."""
PROBED_MIN: Final = 10
"""Partitions in a request that checks whether a leader is still behind."""
PROBE_PAUSE_MAX_MS: Final = 40.0
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

PartitionId = tuple[bytes, int]
_Data = FetchResponse.PartitionData
_Wish = FetchRequest.FetchPartition


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


class Followed:
    """One partition that is fetched, and its state in the session."""

    __slots__ = ("failures", "heard", "in_session", "lag", "partition", "paused", "serial")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.serial = 0  # of the first request that reflects its present state
        self.in_session = False
        self.heard = False  # the leader has served it, in its leader epoch
        self.paused = False  # for a backoff, a flush or a reset: in no request
        self.failures = 0
        self.lag = 0  # records that the leader had committed and this replica did not have yet


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
        self._followed: dict[PartitionId, Followed] = {}
        # Dictionaries as ordered sets: partitions that the next request names, and those it
        # forgets.
        self._changed: dict[PartitionId, None] = {}
        self._unheard: dict[PartitionId, None] = {}
        self._probed_max = NAMED_MAX  # limit for partitions of `_unheard` in one request
        self._probe_pause_ms = BEHIND_FIRST_MS
        # no probe before this time, while the leader is behind
        self._probe_at_ms: float | None = None
        # in the newest answer: a partition served for the first time; a refusal
        self._heard = self._behind = False
        self._forgotten: dict[PartitionId, None] = {}
        self._pauses: list[tuple[float, PartitionId, Followed]] = []
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        self._sessionless = False  # the leader had no room for a session
        self._in_session = 0
        self._serial = 0
        self._in_flight: deque[int] = deque()
        self._urgent = False
        self._failures = 0
        self._pause_until_ms = 0.0
        self.states_local_logs = False
        """True if the newest request reports the replicas' local logs."""

    # --- which partitions ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Partition]:
        return (followed.partition for followed in self._followed.values())

    @property
    def in_flight(self) -> int:
        """Number of requests without an answer."""
        return len(self._in_flight)

    @property
    def failed_partitions(self) -> int:
        """Number of partitions that back off after an error."""
        return sum(followed.failures > 0 for followed in self._followed.values())

    @property
    def lag_max(self) -> int:
        """The largest distance to a leader's high watermark, in records."""
        return max((followed.lag for followed in self._followed.values()), default=0)

    def lags(self) -> list[tuple[Partition, int]]:
        """Return each partition with its distance to the leader's high watermark, in records."""
        return [(followed.partition, followed.lag) for followed in self._followed.values()]

    def follow(self, partition: Partition) -> None:
        """Fetch `partition` from now on, or in its new leader epoch."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            fresh = Followed(partition)
            if followed is not None:
                fresh.in_session = followed.in_session
            followed = self._followed[key] = fresh
        followed.paused = False
        followed.heard = False
        followed.failures = 0
        self._name(key, followed)
        self._urgent |= self._probe_at_ms is None

    def unfollow(self, partition: Partition) -> bool:
        """Stop fetching `partition`. Returns: False if it was not fetched."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            return False
        self._leave_session(key, followed)
        del self._followed[key]
        return True

    def resume(self, partition: Partition) -> None:
        """Continue fetching `partition` after a flush or a reset."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition and followed.paused:
            followed.paused = False
            self._name(key, followed)
            self._urgent = True

    def restate(self, partition: Partition) -> None:
        """Name the partition again if its local log differs from the last report (KIP-1303). The
        log end has not changed, so this may wait for the answer in flight, which stays valid."""
        key = (partition.topic_id, partition.index)
        followed, logs = self._followed.get(key), partition.local_logs
        if (
            followed is not None
            and logs is not None
            and followed.partition is partition
            and not followed.paused
            and not logs.is_stated(partition.log)
        ):
            self._changed[key] = None

    def retry_later(self, partition: Partition, now_ms: float) -> None:
        """Retry the reset of `partition` after a backoff."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition:
            self._pause(key, followed, now_ms)

    def _name(self, key: PartitionId, followed: Followed) -> None:
        self._forgotten.pop(key, None)
        if followed.heard:
            self._changed[key] = None
        else:
            self._changed.pop(key, None)
            self._unheard[key] = None
        followed.serial = self._serial + 1

    def _leave_session(self, key: PartitionId, followed: Followed) -> None:
        self._changed.pop(key, None)
        self._unheard.pop(key, None)
        followed.serial = self._serial + 1
        if followed.in_session:
            followed.in_session = False
            self._in_session -= 1
            self._forgotten[key] = None

    def _hold(self, key: PartitionId, followed: Followed) -> None:
        followed.paused = True
        self._leave_session(key, followed)

    def _pause(
        self,
        key: PartitionId,
        followed: Followed,
        now_ms: float,
        first_ms: float = BACK_OFF_FIRST_MS,
    ) -> None:
        followed.failures = min(followed.failures + 1, 16)
        pause_ms = first_ms * 2.0 ** (followed.failures - 1)
        pause_ms = min(pause_ms, self.settings.backoff_ms)
        self._hold(key, followed)
        heapq.heappush(self._pauses, (now_ms + pause_ms, key, followed))

    # --- requests -----------------------------------------------------------------------------

    def due_ms(self, now_ms: float) -> float | None:
        """Return the earliest time of the next request, or None until another event."""
        self._end_pauses(now_ms)
        if self._in_flight and not self._may_pipeline():
            return None
        if self._is_to_name or self._in_session:
            return self._pause_until_ms
        return None

    def wake_ms(self) -> float | None:
        """Return the end of the next backoff, of a partition or of a leader that is behind; None
        without one."""
        pause_ms = self._pauses[0][0] if self._pauses else None
        probe_ms = self._probe_at_ms if self._unheard else None
        return min((at_ms for at_ms in (pause_ms, probe_ms) if at_ms is not None), default=None)

    @property
    def _is_to_name(self) -> bool:
        return bool(self._changed or (self._unheard and self._probe_at_ms is None))

    def _may_pipeline(self) -> bool:
        return (
            self._urgent
            and self._session_epoch != FIRST_EPOCH
            and len(self._in_flight) < IN_FLIGHT_MAX
        )

    def next_request(self, broker_epoch: int, now_ms: float) -> FetchRequest | None:
        """Return the request to send now, if any (after `due_ms`); call `answered` or `lost`
        afterwards."""
        if now_ms < self._pause_until_ms or (self._in_flight and not self._may_pipeline()):
            return None
        if self._session_epoch == FIRST_EPOCH:
            if self._sessionless:
                for key, followed in self._followed.items():
                    if not followed.paused:
                        self._changed[key] = None
            if not self._is_to_name:
                return None
        elif not (self._is_to_name or self._in_session):
            return None
        named = self._next_named()
        self._serial += 1
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._node_id, replica_epoch=broker_epoch
            ),
            max_wait_ms=self._max_wait_ms(named),
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._topics(named),
            forgotten_topics_data=self._forgotten_topics(),
        )
        self._urgent = self._is_to_name
        self._in_flight.append(self._serial)
        self.counters.requests += 1
        if self._session_epoch != FIRST_EPOCH:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        return request

    def _max_wait_ms(self, named: list[PartitionId]) -> int:
        """Return how long the leader may hold the request. Partitions left out learn and report
        nothing in that time."""
        if self._is_to_name:
            return 0
        if self._sessionless and len(named) < len(self._followed):
            return min(SHORT_WAIT_MS, self.settings.wait_max_ms)
        return self.settings.wait_max_ms

    def _next_named(self) -> list[PartitionId]:
        """Remove and return the partitions that the next request names."""
        if self._sessionless:
            named = [*self._changed, *self._unheard]
            self._changed, self._unheard = {}, {}
            return named
        named = _taken(self._changed, NAMED_MAX)
        if self._probe_at_ms is None:
            named += _taken(self._unheard, min(NAMED_MAX - len(named), self._probed_max))
        return named

    def _end_pauses(self, now_ms: float) -> None:
        if self._probe_at_ms is not None and self._probe_at_ms <= now_ms:
            self._probe_at_ms = None
            self._urgent |= bool(self._unheard)
        pauses = self._pauses
        while pauses and pauses[0][0] <= now_ms:
            _, key, followed = heapq.heappop(pauses)
            if self._followed.get(key) is followed and followed.paused:
                followed.paused = False
                self._name(key, followed)
                self._urgent = True

    def _topics(self, named: Iterable[PartitionId]) -> list[FetchRequest.FetchTopic]:
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        max_bytes = self.settings.max_bytes
        self.states_local_logs = False
        for key in named:
            followed = self._followed[key]
            if not followed.in_session:
                followed.in_session = True
                self._in_session += 1
            partition = followed.partition
            log = partition.log
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchRequest.FetchTopic(
                    topic=partition.topic, topic_id=key[0]
                )
            wish = _Wish(
                partition=partition.index,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=log.log_end_offset,
                last_fetched_epoch=log.latest_epoch,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=max_bytes,
            )
            logs = partition.local_logs
            if logs is not None:
                logs.state(log)
                wish.local_log_start_timestamp = logs.stated_start_ms
                wish.local_log_size_bytes = logs.stated_bytes
                self.states_local_logs = True
            topic.partitions.append(wish)
        return list(topics.values())

    def _forgotten_topics(self) -> list[FetchRequest.ForgottenTopic]:
        topics: dict[bytes, FetchRequest.ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.ForgottenTopic(topic_id=topic_id)
            topic.partitions.append(index)
        self._forgotten = {}
        return list(topics.values())

    # --- answers ------------------------------------------------------------------------------

    def lost(self, now_ms: float) -> None:
        """Start a new session after a backoff: the connection was lost, or could not be made."""
        self.counters.failed_requests += 1
        self._in_flight.clear()
        self._end_session()
        self._failures = min(self._failures + 1, 16)
        pause_ms = BACK_OFF_FIRST_MS * 2.0 ** (self._failures - 1)
        self._pause_until_ms = now_ms + min(pause_ms, self.settings.backoff_ms)

    def try_once(self) -> None:
        """Skip the backoff before the first reconnect, to find out at once whether the leader is
        reachable."""
        if self._failures == 1:
            self._pause_until_ms = 0.0

    def hurry(self) -> None:
        """Skip all backoffs: the leader may be reachable again."""
        self._pause_until_ms = 0.0
        self._probe_at_ms = None

    def answered(self, response: FetchResponse, now_ms: float) -> list[Effect]:
        """Apply the answer to the oldest request in flight; return what the caller must do."""
        serial = self._in_flight.popleft()
        if response.error_code:
            error = ErrorCode(response.error_code)
            if error not in _SESSION_ERRORS:
                self._failures = min(self._failures + 1, 16)
                pause_ms = BACK_OFF_FIRST_MS * 2.0 ** (self._failures - 1)
                self._pause_until_ms = now_ms + min(pause_ms, self.settings.backoff_ms)
            self._end_session()
            return []
        self._failures = 0
        if self._session_epoch == FIRST_EPOCH:
            self._session_id = response.session_id
            self._sessionless = response.session_id == NO_SESSION
            self._session_epoch = 1 if response.session_id != NO_SESSION else FIRST_EPOCH
        effects: list[Effect] = []
        self._heard = self._behind = False
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                key = (topic_id, data.partition_index)
                followed = self._followed.get(key)
                if followed is None or followed.paused:
                    continue
                if serial < followed.serial:
                    mark("replication.stale-answer")
                    continue
                self._apply(key, followed, data, now_ms, effects)
        self._learn_pace(now_ms)
        return effects

    def _learn_pace(self, now_ms: float) -> None:
        """Adapt the number of unconfirmed partitions in the next requests, and their time, to the
        leader."""
        if self._heard:
            self._probed_max = min(2 * self._probed_max, NAMED_MAX)
            # A leader that serves some partitions has more work left than one that serves none yet.
            self._probe_pause_ms = BACK_OFF_FIRST_MS if self._behind else BEHIND_FIRST_MS
        if self._behind:
            self._probed_max = PROBED_MIN
            self._probe_at_ms = now_ms + self._probe_pause_ms
            self._probe_pause_ms = min(2 * self._probe_pause_ms, PROBE_PAUSE_MAX_MS)

    def _end_session(self) -> None:
        """Drop the session: the next request names all partitions, and older answers are
        ignored."""
        # Send the session id once more: the leader ends that session when it opens the next.
        self._session_epoch = FIRST_EPOCH
        self._forgotten.clear()
        self._in_session = 0
        for key, followed in self._followed.items():
            followed.in_session = False
            if not followed.paused:
                self._name(key, followed)

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
                self._hold(key, followed)
                effects.append(Flush(partition))
                return
        if appended.record_count or appended.log_start_moved:
            self._name(key, followed)

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
                self._name(key, followed)
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
            self._hold(key, followed)
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
            self._pause(key, followed, now_ms)
            return None
        except InvariantViolated:
            raise
        except Exception as error:  # noqa: BLE001 - one partition's bytes must not stop the others
            self._pause(key, followed, now_ms)
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
        self._hold(key, followed)
        heapq.heappush(self._pauses, (now_ms + pause_ms, key, followed))
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
            self._hold(key, followed)
            effects.append(Reset(partition, error, partition.leader_epoch, data.log_start_offset))
        else:
            behind = error in _BEHIND_ERRORS and not followed.heard
            self._pause(key, followed, now_ms, BEHIND_FIRST_MS if behind else BACK_OFF_FIRST_MS)
            self._behind |= behind


def _taken(named: dict[PartitionId, None], most: int) -> list[PartitionId]:
    """Remove and return up to `most` partitions from the front."""
    taken = list(islice(named, most))
    for key in taken:
        del named[key]
    return taken
