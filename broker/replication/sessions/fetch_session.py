"""Incremental fetch sessions (KIP-227).

Without sessions, a consumer of a thousand partitions would send and receive a thousand entries in
each Fetch. With a session the broker remembers the partitions: a request names only those that
changed, and a response contains only those with news. A session is soft state: if the broker has
discarded it, the client opens another.

Rules:

- `session_epoch` 0 opens a session, -1 closes it (and fetches without one). Any other value must be
  the next epoch of the session that `session_id` names. An unknown id is
  FETCH_SESSION_ID_NOT_FOUND, an unexpected epoch INVALID_FETCH_SESSION_EPOCH. Epochs run 1, 2, ...
  and wrap to 1.
- A partition is identified by topic id from Fetch v13 on, by topic name before. A client that
  switches within a session gets FETCH_SESSION_TOPIC_ID_ERROR.
- A partition has news if it has records, or if any other field of its response has changed. The
  list of fields comes from the schema, so a field of a later version is compared, too.
- Only partitions with a replica here are kept. A follower names the others again by itself. A
  consumer would wait for them in vain, so its fetch gets no session, and an open one ends.
- The cache is bounded, in sessions and in their partitions. A full cache evicts a session only for
  one with priority. Followers have priority over consumers, longer lists of partitions over shorter
  ones, and any session over one that was unused for the eviction time.

Nothing here does I/O or reads a clock; ids come from the caller's random source.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from broker.replication.sessions.follower_watch import FollowerWatch
from broker.replication.sessions.session_watch import SessionWatch
from metalog.image.values import BrokerImage
from protocol.errors import ApiError, ErrorCode
from runtime.marks import mark

NO_REPLICA: Final = -1
"""The replica id of a consumer."""
NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
PARTITIONS_MAX: Final = 200_000
"""Limit for the partitions of all sessions of a broker, at half a kilobyte each."""

DEFAULT_EVICTION_MS: Final = 120_000

Request = TypeVar("Request")
"""The struct of one partition in a request: kept whole, so a session keeps all fields."""

TopicKey = str | bytes
PartitionKey = tuple[TopicKey, int]


class CachedPartition(Generic[Request]):
    """One partition of a session: the client's latest request and the fields last sent."""

    __slots__ = ("request", "sent")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.sent: tuple[object, ...] | None = None


class FetchSession(Generic[Request]):
    """State of one client's fetch session. `epoch` is the one the next request must carry.

    `replica_id` is the broker that opened the session, -1 for a consumer; other replicas cannot use
    it.
    """

    __slots__ = (
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "privileged",
        "replica_id",
        "session_id",
        "size",
        "uses_topic_ids",
        "watch",
    )

    def __init__(
        self,
        session_id: int,
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: float,
        replica_id: int = NO_REPLICA,
    ) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = 1
        self.size = 0
        self.partitions: dict[PartitionKey, CachedPartition[Request]] = {}
        self.watch = FollowerWatch() if privileged else SessionWatch()

    def close(self) -> None:
        """Unsubscribe from all partitions, after the session has left the cache."""
        self.watch.close()

    def to_look_at(self) -> list[tuple[PartitionKey, Request]]:
        """Return the partitions with news that the next response is to cover."""
        partitions = self.partitions
        turn = self.watch.turn()
        return [(key, partitions[key].request) for key in turn if key in partitions]

    def advance(self, now_ms: float) -> None:
        """Advance the epoch and the time of last use, after a request has been accepted."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        self.last_used_ms = now_ms

    def update(
        self, wanted: Iterable[tuple[PartitionKey, Request]], forgotten: Collection[PartitionKey]
    ) -> None:
        """Apply the partitions that an incremental request adds, changes and forgets."""
        partitions = self.partitions
        named: dict[PartitionKey, None] = {}
        for key, request in wanted:
            named[key] = None
            cached = partitions.get(key)
            if cached is None:
                partitions[key] = CachedPartition(request)
            else:
                cached.request = request
        for key in forgotten:
            partitions.pop(key, None)
        self.watch.requested(named, forgotten)
        self.size = len(partitions)

    def news(self, key: PartitionKey, facts: tuple[object, ...], *, force: bool) -> bool:
        """Return whether `facts` must go into an incremental response, and remember them as sent.

        `force` is set for records and for anything the client must react to (errors, divergence):
        those are sent each time. The next response without them differs, so recovery is news as
        well.
        """
        cached = self.partitions.get(key)
        if cached is None:
            return True
        if force:
            cached.sent = facts
            return True
        if cached.sent == facts:
            return False
        cached.sent = facts
        return True


class FetchPlan(NamedTuple, Generic[Request]):
    """The partitions that one Fetch request reads. If `incremental`, the response contains only
    news."""

    session: FetchSession[Request] | None
    incremental: bool
    partitions: list[tuple[PartitionKey, Request]]

    @property
    def session_id(self) -> int:
        """The id for the response, 0 when there is no session."""
        return NO_SESSION_ID if self.session is None else self.session.session_id


class FetchSessionCache(Generic[Request]):
    """All sessions of one broker: at most `slots_max`, with `partitions_max` partitions."""

    def __init__(
        self,
        slots_max: int,
        rng: random.Random,
        *,
        eviction_ms: float = DEFAULT_EVICTION_MS,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._slots_max = slots_max
        self._rng = rng
        self._eviction_ms = eviction_ms
        self._partitions_max = partitions_max
        self.partition_count = 0
        """Partitions remembered in all sessions."""
        # Kept in the order of last use, oldest first.
        self._sessions: dict[int, FetchSession[Request]] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession[Request]]:
        return iter(self._sessions.values())

    def begin(
        self,
        *,
        session_id: int,
        session_epoch: int,
        wanted: list[tuple[PartitionKey, Request]],
        forgotten: Collection[PartitionKey],
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: float,
        replica_id: int = NO_REPLICA,
        absent: Collection[PartitionKey] = (),
    ) -> FetchPlan[Request]:
        """Decide what a request reads and advance its session. Sessions of other replicas do not
        change.

        Args:
            replica_id: the replica that owns the session, `NO_REPLICA` for a consumer.
            absent: those of `wanted` that have no replica here; no session keeps them.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR, to be answered at the top level.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            earlier = self._sessions.get(session_id)
            if earlier is not None and earlier.replica_id == replica_id:
                self.forget(session_id)
            session = None
            if session_epoch == INITIAL_EPOCH:
                kept = _without(wanted, absent)
                if not absent or (privileged and kept):
                    session = self._create(kept, privileged, uses_topic_ids, now_ms, replica_id)
            return FetchPlan(session, False, wanted)
        session = self._find(session_id, session_epoch, uses_topic_ids, replica_id)
        size = session.size
        session.update(_without(wanted, absent) if absent else wanted, forgotten)
        self.partition_count += session.size - size
        others = [each for each in wanted if each[0] in absent] if absent else []
        if self.partition_count > self._partitions_max or (absent and not session.privileged):
            # The response has no session id, so the client opens another session.
            partitions = session.to_look_at()
            self.forget(session_id)
            return FetchPlan(None, False, partitions + others)
        if not session.partitions:
            # No partition is left to fetch: the session ends, and this fetch reads only `absent`
            # ones.
            self.forget(session_id)
            return FetchPlan(None, False, others)
        session.advance(now_ms)
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return FetchPlan(session, True, session.to_look_at() + others)

    def forget(self, session_id: int) -> None:
        """End a session; an unknown one is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.size
            session.close()

    def forget_earlier_lives(self, replica_id: int, broker_epoch: int) -> None:
        """End the sessions of a follower's earlier processes, after it has restarted with
        `broker_epoch`."""
        for session_id, watch in self._of_followers():
            if watch.is_of_earlier_life(replica_id, broker_epoch):
                self.forget(session_id)

    def followers_registered(
        self, changed: Collection[int], brokers: Mapping[int, BrokerImage]
    ) -> None:
        """End the sessions that followers opened before they registered again.

        A session without a broker epoch stays: it may be one of the new process, which fetches
        before its registration is answered.

        Args:
            changed: ids of the brokers whose registrations have changed.
            brokers: all registrations by broker id.
        """
        epochs = {each: brokers[each].epoch for each in changed if each in brokers}
        for session_id, watch in self._of_followers() if epochs else ():
            if 0 <= watch.broker_epoch < epochs.get(watch.replica_id, 0):
                self.forget(session_id)

    def _of_followers(self) -> list[tuple[int, FollowerWatch]]:
        """Return the sessions of followers, as a list that `forget` does not change."""
        return [
            (session.session_id, session.watch)
            for session in self._sessions.values()
            if isinstance(session.watch, FollowerWatch)
        ]

    def _find(
        self, session_id: int, session_epoch: int, uses_topic_ids: bool, replica_id: int
    ) -> FetchSession[Request]:
        session = self._sessions.get(session_id)
        if session is None or session.replica_id != replica_id:
            mark("session.unknown")
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None)
        if session.epoch != session_epoch:
            mark("session.epoch-out-of-turn")
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, None)
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, None)
        return session

    def _create(
        self,
        wanted: list[tuple[PartitionKey, Request]],
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: float,
        replica_id: int,
    ) -> FetchSession[Request] | None:
        size = len(wanted)
        while (
            len(self._sessions) >= self._slots_max
            or self.partition_count + size > self._partitions_max
        ):
            if size > self._partitions_max or not self._evict(size, privileged, now_ms):
                mark("session.refused")
                return None
        session: FetchSession[Request] = FetchSession(
            self._new_id(),
            privileged=privileged,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
            replica_id=replica_id,
        )
        session.update(wanted, ())
        self.partition_count += session.size
        self._sessions[session.session_id] = session
        return session

    def _evict(self, size: int, privileged: bool, now_ms: float) -> bool:
        """Evict a session if one of `size` partitions has priority over it. Returns: whether one
        was evicted."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False  # no slots at all
        victim: FetchSession[Request] | None = None
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            victim = oldest
        else:
            candidates = (
                session
                for session in self._sessions.values()
                if _weaker(session, size, privileged)
                and (
                    (privileged and not session.privileged)
                    or now_ms - session.created_ms > self._eviction_ms
                )
            )
            victim = min(
                candidates, key=lambda session: (session.privileged, session.size), default=None
            )
        if victim is None:
            return False
        self.forget(victim.session_id)
        self.evictions += 1
        mark("session.evicted")
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randrange(1, 2**31)
            if session_id not in self._sessions:
                return session_id


def _without(
    wanted: list[tuple[PartitionKey, Request]], absent: Collection[PartitionKey]
) -> list[tuple[PartitionKey, Request]]:
    return [each for each in wanted if each[0] not in absent] if absent else wanted


def _weaker(session: FetchSession[Request], size: int, privileged: bool) -> bool:
    """Return whether `session` ranks below a new one: first by privilege, then by size."""
    return (session.privileged, session.size) < (privileged, size)
