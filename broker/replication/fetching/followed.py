"""Partitions that a fetcher follows: their state in the fetch session, and their backoffs.

A session's request names only partitions that changed since the last one. The others that it
contains stay as they are, and those that it forgets are listed once. A partition in a backoff, a
flush or a reset is in no request. Every request has a serial number. A partition remembers the
first request that reflects its present state (KAFKA-13207).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice

from broker.replication.fetching.leader_pace import BACK_OFF_FIRST_MS, FAILURES_MAX
from broker.replication.partition.partition import Partition
from protocol.messages.fetch import FetchRequest

PartitionId = tuple[bytes, int]
_Wish = FetchRequest.FetchPartition


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


class FollowedPartitions:
    """The partitions of one fetcher."""

    def __init__(self, backoff_max_ms: float) -> None:
        """Start without partitions. `backoff_max_ms` limits the backoff of a partition."""
        self.by_id: dict[PartitionId, Followed] = {}
        # Dictionaries as ordered sets: partitions that the next request names, and those it
        # forgets.
        self.changed: dict[PartitionId, None] = {}
        self.unheard: dict[PartitionId, None] = {}
        """Partitions to name that the leader has not served yet in their leader epoch."""
        self.in_session = 0
        """Number of partitions in the session."""
        self.serial = 0
        """Serial number of the newest request."""
        self.states_local_logs = False
        """True if the newest request reports the replicas' local logs."""
        self._backoff_max_ms = backoff_max_ms
        self._forgotten: dict[PartitionId, None] = {}
        self._pauses: list[tuple[float, PartitionId, int, Followed]] = []  # a heap
        self._pause_count = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Followed]:
        return iter(self.by_id.values())

    def find(self, partition: Partition) -> tuple[PartitionId, Followed | None]:
        """Return the id of `partition`, and its state if exactly this one is followed: a recreated
        replica is another one."""
        key = (partition.topic_id, partition.index)
        followed = self.by_id.get(key)
        return key, followed if followed is not None and followed.partition is partition else None

    def follow(self, partition: Partition) -> None:
        """Follow `partition` from now on, or in its new leader epoch."""
        key = (partition.topic_id, partition.index)
        followed = self.by_id.get(key)
        if followed is None or followed.partition is not partition:
            fresh = Followed(partition)
            if followed is not None:
                fresh.in_session = followed.in_session
            followed = self.by_id[key] = fresh
        followed.paused = False
        followed.heard = False
        followed.failures = 0
        self.name(key, followed)

    def unfollow(self, partition: Partition) -> bool:
        """Stop following `partition`. Returns: False if it was not followed."""
        key, followed = self.find(partition)
        if followed is None:
            return False
        self._leave_session(key, followed)
        del self.by_id[key]
        return True

    # The session -------------------------------------------------------------------------------

    def name(self, key: PartitionId, followed: Followed) -> None:
        """Name a partition in the next request; answers to earlier ones do not count for it."""
        self._forgotten.pop(key, None)
        if followed.heard:
            self.changed[key] = None
        else:
            self.changed.pop(key, None)
            self.unheard[key] = None
        followed.serial = self.serial + 1

    def name_all(self) -> None:
        """Name all partitions that are in no pause, for a request without a session."""
        for key, followed in self.by_id.items():
            if not followed.paused:
                self.changed[key] = None

    def _leave_session(self, key: PartitionId, followed: Followed) -> None:
        self.changed.pop(key, None)
        self.unheard.pop(key, None)
        followed.serial = self.serial + 1
        if followed.in_session:
            followed.in_session = False
            self.in_session -= 1
            self._forgotten[key] = None

    def end_session(self) -> None:
        """Name all partitions in the next request, which begins another session."""
        self._forgotten.clear()
        self.in_session = 0
        for key, followed in self.by_id.items():
            followed.in_session = False
            if not followed.paused:
                self.name(key, followed)

    # Requests ----------------------------------------------------------------------------------

    def take_all(self) -> list[PartitionId]:
        """Remove and return all partitions to name."""
        named = [*self.changed, *self.unheard]
        self.changed, self.unheard = {}, {}
        return named

    def take(self, most: int, most_unheard: int) -> list[PartitionId]:
        """Remove and return up to `most` partitions to name, up to `most_unheard` of them not
        served yet."""
        named = _taken(self.changed, most)
        if most_unheard:
            named += _taken(self.unheard, min(most - len(named), most_unheard))
        return named

    def topics(self, named: Iterable[PartitionId], max_bytes: int) -> list[FetchRequest.FetchTopic]:
        """Return the request's entries of these partitions, with up to `max_bytes` each. They
        belong to the session from now on."""
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        self.states_local_logs = False
        for key in named:
            followed = self.by_id[key]
            if not followed.in_session:
                followed.in_session = True
                self.in_session += 1
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

    def take_forgotten(self) -> list[FetchRequest.ForgottenTopic]:
        """Remove and return the partitions that the next request takes out of the session."""
        topics: dict[bytes, FetchRequest.ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.ForgottenTopic(topic_id=topic_id)
            topic.partitions.append(index)
        self._forgotten = {}
        return list(topics.values())

    # Pauses ------------------------------------------------------------------------------------

    def hold(self, key: PartitionId, followed: Followed) -> None:
        """Take a partition out of the session until it is resumed."""
        followed.paused = True
        self._leave_session(key, followed)

    def resume(self, key: PartitionId, followed: Followed) -> None:
        """End the pause of a partition."""
        followed.paused = False
        self.name(key, followed)

    def hold_until(self, key: PartitionId, followed: Followed, until_ms: float) -> None:
        """Take a partition out of the session up to a time."""
        self.hold(key, followed)
        self._pause_count += 1  # two replicas of one id may end their pauses at the same time
        heapq.heappush(self._pauses, (until_ms, key, self._pause_count, followed))

    def back_off(
        self,
        key: PartitionId,
        followed: Followed,
        now_ms: float,
        first_ms: float = BACK_OFF_FIRST_MS,
    ) -> None:
        """Take a partition out of the session for a backoff that grows with its failures."""
        followed.failures = min(followed.failures + 1, FAILURES_MAX)
        pause_ms = first_ms * 2.0 ** (followed.failures - 1)
        self.hold_until(key, followed, now_ms + min(pause_ms, self._backoff_max_ms))

    def end_pauses(self, now_ms: float) -> bool:
        """Resume the partitions whose pause is over. Returns: whether there were any."""
        pauses, ended = self._pauses, False
        while pauses and pauses[0][0] <= now_ms:
            _, key, _, followed = heapq.heappop(pauses)
            if self.by_id.get(key) is followed and followed.paused:
                self.resume(key, followed)
                ended = True
        return ended

    @property
    def next_pause_ms(self) -> float | None:
        """End of the earliest pause, or None."""
        return self._pauses[0][0] if self._pauses else None


def _taken(named: dict[PartitionId, None], most: int) -> list[PartitionId]:
    """Remove and return up to `most` partitions from the front."""
    taken = list(islice(named, most))
    for key in taken:
        del named[key]
    return taken
