"""Fetch state of one leader's followers here: partitions, offsets, answers.

One fetcher serves all partitions that this broker follows at one leader (or its share of them, with
`num.replica.fetchers`). It speaks in incremental fetch sessions: a request names only partitions
that changed since the last, so that thousands of idle ones cost nothing.

- A partition whose answer was an error leaves the session until its pause is over: the first
  pauses are short, because after an election leader and follower learn of it at different moments;
  they grow up to `replica.fetch.backoff.ms`.
- After thousands of elections a follower may learn of them before a leader does, which has more to
  do. A leader that refuses because it is behind is asked about a few partitions, then about twice
  as many with each answer: what it refuses takes the time that it needs to catch up.
- Every request has a serial number, and a partition remembers the first that speaks for its present
  state. An older answer says nothing about it any more (KAFKA-13207).
- One request is in flight. A second is sent when partitions were added meanwhile, or come back
  from a pause, a flush or a reset: the first may be waiting for bytes at the leader, and a leader
  must hear at once of who follows it and of what is on the disk. Without a session there is no
  second, so a request that leaves partitions out waits for a moment only.
- OFFSET_OUT_OF_RANGE and OFFSET_MOVED_TO_TIERED_STORAGE are handed out as `Reset`: what to do about
  them is another's step and may take requests of its own.
- A topic that flushes (`flush.messages`) is fetched on only when what came is on the disk: the next
  fetch tells the leader that this replica has it.

Nothing here does I/O but the partitions' logs; the connections are `fetcher_connections`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from broker.replication.effects import Effects
from broker.replication.follower import Appended, append_fetched, truncate_to_common
from broker.replication.partition import Partition
from broker.replication.replica_role import ReplicaRole
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
"""Partitions that one request names: both sides are busy with one for milliseconds, no more."""
SHORT_WAIT_MS: Final = 20
"""How long a request without a session may wait for bytes while some partition is not in it."""
BACK_OFF_FIRST_MS: Final = 10.0
BEHIND_FIRST_MS: Final = 2.0
"""A leader that is behind has its image a few milliseconds later, and until this follower has asked
again what is produced there is not committed: each wait adds no more than was waited before."""
PROBED_MIN: Final = 10
"""Partitions by which a leader that was behind is asked whether it still is."""
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
    """Names and units are those of `replica.fetch.*`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10_485_760
    max_bytes: int = 1_048_576
    backoff_ms: float = 1_000.0


class Reset(NamedTuple):
    """The leader does not have the offset that was asked for."""

    partition: Partition
    error: ErrorCode
    leader_epoch: int
    leader_log_start: int
    """-1 where the leader does not say."""


class Flush(NamedTuple):
    """What this partition has must be on the disk before it is fetched further."""

    partition: Partition


class StorageFailed(NamedTuple):
    """The partition's log takes no appends any more."""

    partition: Partition
    cause: BaseException


class Unforeseen(NamedTuple):
    """The leader's answer for this partition did what nobody foresaw; it is asked again later."""

    partition: Partition
    error: Exception
    records: Buffer


class Decided(NamedTuple):
    """The partition wants this done."""

    partition: Partition
    effects: Effects


Effect = Reset | Flush | StorageFailed | Unforeseen | Decided


class Followed:
    """One partition that is fetched, and its place in the session."""

    __slots__ = ("failures", "heard", "in_session", "lag", "partition", "paused", "serial")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.serial = 0  # of the first request that speaks for its present state
        self.in_session = False
        self.heard = False  # the leader has served it, in its leader epoch
        self.paused = False  # for a pause, a flush or a reset: in no request
        self.failures = 0
        self.lag = 0  # records that the leader had committed and this replica did not have yet


class FetcherCounters:
    """Plain integers that a scrape reads."""

    __slots__ = ("bytes", "failed_requests", "requests")

    def __init__(self) -> None:
        self.bytes = 0
        self.requests = 0
        self.failed_requests = 0


class Fetcher:
    """The state of one fetcher. See the module."""

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
        # Dictionaries as ordered sets: what the next request names, and what it takes back.
        self._changed: dict[PartitionId, None] = {}
        self._unheard: dict[PartitionId, None] = {}
        self._probed_max = NAMED_MAX  # of those one request names
        self._probe_pause_ms = BEHIND_FIRST_MS
        self._probe_at_ms: float | None = None  # none before, where the leader is behind
        self._heard = self._behind = False  # of the newest answer: a partition more; a refusal
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
        """Whether the newest request says what replicas have locally."""

    # --- which partitions ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Partition]:
        return (followed.partition for followed in self._followed.values())

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self._in_flight)

    @property
    def failed_partitions(self) -> int:
        """Partitions that pause after an error."""
        return sum(followed.failures > 0 for followed in self._followed.values())

    @property
    def lag_max(self) -> int:
        """The largest distance to a leader's high watermark, in records."""
        return max((followed.lag for followed in self._followed.values()), default=0)

    def lags(self) -> list[tuple[Partition, int]]:
        """Each partition with its distance to the leader's high watermark, in records."""
        return [(followed.partition, followed.lag) for followed in self._followed.values()]

    def follow(self, partition: Partition) -> None:
        """Fetches `partition` from now on, or under its new leader epoch."""
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
        """Fetches it no longer; False if it was not fetched."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            return False
        self._leave_session(key, followed)
        del self._followed[key]
        return True

    def resume(self, partition: Partition) -> None:
        """A flush or a reset of `partition` is over."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition and followed.paused:
            followed.paused = False
            self._name(key, followed)
            self._urgent = True

    def restate(self, partition: Partition) -> None:
        """What it has locally may be something else, with no new offset: the partition is named
        again if what was said of it is not so any more (KIP-1303). That may wait for the answer
        under way, which is taken over as it is."""
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
        """A reset of `partition` failed."""
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
        """When `next_request` may have one at the earliest, None until something else happens."""
        self._end_pauses(now_ms)
        if self._in_flight and not self._may_pipeline():
            return None
        if self._is_to_name or self._in_session:
            return self._pause_until_ms
        return None

    def wake_ms(self) -> float | None:
        """When a pause ends next, of a partition or of a leader that is behind; None when none
        runs."""
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
        """The request to send now, if any (after `due_ms`); `answered` or `lost` must follow."""
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
        """Those that are left out hear of nothing meanwhile, and tell nothing."""
        if self._is_to_name:
            return 0
        if self._sessionless and len(named) < len(self._followed):
            return min(SHORT_WAIT_MS, self.settings.wait_max_ms)
        return self.settings.wait_max_ms

    def _next_named(self) -> list[PartitionId]:
        """Takes the partitions that the next request names."""
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
        """The connection is gone, or could not be made: begin again after a pause."""
        self.counters.failed_requests += 1
        self._in_flight.clear()
        self._end_session()
        self._failures = min(self._failures + 1, 16)
        pause_ms = BACK_OFF_FIRST_MS * 2.0 ** (self._failures - 1)
        self._pause_until_ms = now_ms + min(pause_ms, self.settings.backoff_ms)

    def try_once(self) -> None:
        """Whether the leader is there is to be known now: no pause before the first attempt."""
        if self._failures == 1:
            self._pause_until_ms = 0.0

    def hurry(self) -> None:
        """The leader may be reached again: no pause."""
        self._pause_until_ms = 0.0
        self._probe_at_ms = None

    def answered(self, response: FetchResponse, now_ms: float) -> list[Effect]:
        """Takes over the oldest outstanding answer; says what else must be done."""
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
        """How many of those that the leader may not know yet the next requests name, and when."""
        if self._heard:
            self._probed_max = min(2 * self._probed_max, NAMED_MAX)
            # One that has caught up in part has more to do than one that has yet to begin.
            self._probe_pause_ms = BACK_OFF_FIRST_MS if self._behind else BEHIND_FIRST_MS
        if self._behind:
            self._probed_max = PROBED_MIN
            self._probe_at_ms = now_ms + self._probe_pause_ms
            self._probe_pause_ms = min(2 * self._probe_pause_ms, PROBE_PAUSE_MAX_MS)

    def _end_session(self) -> None:
        """All partitions are named in the next request, and older answers mean nothing."""
        # The id goes along once more: the leader ends that session when it opens the next.
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
        """Brings the answer into the log; None when there is nothing more to say about it."""
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
                "the leader sent what cannot follow the own log",
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
        """Whether a throttled partition pauses now. In the ISR it never does (KIP-73)."""
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
    """So many from the front, which are in there no longer."""
    taken = list(islice(named, most))
    for key in taken:
        del named[key]
    return taken
