"""Readers with incremental fetch sessions (KIP-227): one client reads all partitions, with one
session per broker that leads some.

A request names only changed partitions, and the response only new data, so a partition that either
side forgets is never read again. In the quiet phase a session that returns nothing although there
are records breaks H12. Partitions come and go; sessions are ended, left to be evicted, and used
with a wrong epoch (B31).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from client.leaders import Leader
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from simulation.clients.client import Unknown, fail_on
from simulation.clients.kind import ClientKind
from simulation.clients.load import FETCH_WAIT_MS, Access, Attempt, Load
from simulation.judges.ledger import PartitionLedger
from simulation.shapes.shape import ClientShape, TopicShape
from simulation.world.invariants import Key, require

LOST = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SILENT_S = 2.0
"""Longest time in seconds without data from a session although there are records, in the quiet
phase."""
FETCH_BYTES = 1 << 20


@dataclass
class Session:
    """The session state that both sides should have: the last request for each partition, and the
    time since which the broker has not returned existing records."""

    session_id: int = 0
    epoch: int = 0
    requested: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """Offset and leader epoch."""
    silent_s: dict[Key, float] = field(default_factory=dict)

    def answered(self, session_id: int) -> None:
        """Advance the session's epoch after a response, or reset it if the broker keeps no
        session."""
        if session_id == 0:
            self.session_id = self.epoch = 0
            return
        self.session_id = session_id
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1


class SessionReader:
    """A client that reads all partitions over one fetch session per broker."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._access = Access(load.new_client())
        self._sessions: dict[int, Session] = {}
        self._positions: dict[PartitionLedger, int] = {}
        self._left: set[PartitionLedger] = set()
        """Partitions that are not read at the moment."""

    async def step(self, rng: random.Random) -> None:
        load = self._load
        if not load.ledgers.partitions:
            return
        self._choose(rng)
        led: dict[int, dict[Key, tuple[PartitionLedger, Leader]]] = {}
        for one in [one for one in load.ledgers.partitions if one not in self._left]:
            try:
                leader = await self._access.leader(one)
            except (Unknown, ApiError) as error:
                load.failed(self._name, error)
                continue
            led.setdefault(leader.node_id, {})[one.topic_id, one.index] = (one, leader)
        brokers = sorted({*led, *self._sessions})
        if not brokers:
            return
        node_id = rng.choice(brokers)
        session = self._sessions.setdefault(node_id, Session())
        try:
            await self._fetch(rng, node_id, session, led.get(node_id, {}))
        except (Unknown, ApiError):
            self._sessions.pop(node_id, None)  # the broker may have advanced the epoch, or not
            self._access.doubt()
            raise

    def _choose(self, rng: random.Random) -> None:
        """Change the set of partitions that are read; in the quiet phase it is all of them."""
        if self._load.calm:
            self._left.clear()
        elif rng.random() < 0.1:
            one = rng.choice(self._load.ledgers.partitions)
            if one in self._left:
                self._left.remove(one)
            else:
                self._left.add(one)

    async def _fetch(
        self,
        rng: random.Random,
        node_id: int,
        session: Session,
        wanted: dict[Key, tuple[PartitionLedger, Leader]],
    ) -> None:
        load = self._load
        wishes = {key: (self._position(one), leader.epoch) for key, (one, leader) in wanted.items()}
        calm, chance = load.calm, rng.random()
        ends = not calm and chance < 0.02
        out_of_turn = not calm and session.epoch > 0 and chance > 0.98
        epoch = FINAL_EPOCH if ends else session.epoch + 7 * out_of_turn
        full = epoch <= 0
        names = (
            wishes if full else {k: w for k, w in wishes.items() if session.requested.get(k) != w}
        )
        forgotten = [] if full else [key for key in session.requested if key not in wishes]
        if not full and not wishes:
            # A session without partitions is over.
            session.requested.clear()
        request = _request(session.session_id, epoch, names, forgotten)
        attempts = {
            key: load.new_attempt(one, node_id, leader.epoch)
            for key, (one, leader) in wanted.items()
        }
        answer = await self._access.client._once(node_id, request)
        code = ErrorCode(answer.error_code)
        if out_of_turn:
            require(code in LOST, f"B31: {self._name}: epoch {epoch} after {session.epoch}: {code}")
        if code in LOST or ends or not wishes:
            del self._sessions[node_id]
            return
        fail_on(code)
        session.answered(answer.session_id)
        session.requested = wishes
        self._take(answer, session, attempts)

    def _position(self, one: PartitionLedger) -> int:
        if one not in self._positions:
            self._place(one, 0)
        return self._positions[one]

    def _place(self, one: PartitionLedger, offset: int) -> None:
        self._positions[one] = offset
        self._load.placed(f"{self._name} of {one}", one, offset)

    # --- answers ------------------------------------------------------------------------------

    def _take(self, answer: FetchResponse, session: Session, attempts: dict[Key, Attempt]) -> None:
        told = {
            (topic.topic_id, got.partition_index): got
            for topic in answer.responses
            for got in topic.partitions
        }
        for key in told:
            require(key in attempts, f"B31: {self._name} got {key}, which it did not request")
        anything = any(got.records for got in told.values())
        for key, one in attempts.items():
            found = told.get(key)
            if found is not None:
                self._read(one, found, answer.node_endpoints)
            if found is not None and (found.records or found.error_code):
                session.silent_s.pop(key, None)
            elif not anything:
                self._silent(one, session)

    def _silent(self, attempt: Attempt, session: Session) -> None:
        """Check that existing records are returned in time (H12)."""
        load, one = self._load, attempt.one
        position, truth = self._positions[one], load.promises.partitions.get(attempt.key)
        behind = truth is not None and truth.end > position
        if not behind or not load.strict or one.topic in load.promises.given_up:
            session.silent_s.pop(attempt.key, None)
            return
        since_s = session.silent_s.setdefault(attempt.key, attempt.at_s)
        require(
            attempt.at_s - since_s < SILENT_S,
            f"H12: {self._name}: {one}: session {session.session_id} of broker {attempt.broker_id} "
            f"returns nothing from {position} on since {since_s:.3f}",
        )

    def _read(self, attempt: Attempt, got: FetchResponse.PartitionData, endpoints: Any) -> None:
        load, one = self._load, attempt.one
        at = self._positions[one]
        try:
            records = load.received(attempt, got, endpoints, at, f"{self._name} of {one}")
        except ApiError as error:
            self._failed(one, error)
            return
        load.consumed(one, records)
        if records:
            require(records[0][0] == at, f"H5: {self._name}: {one}: {records[0][0]} after {at}")
            self._positions[one] = records[-1][0] + 1

    def _failed(self, one: PartitionLedger, error: ApiError) -> None:
        self._access.doubt()
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._load.failed(self._name, error)
            return
        promises = self._load.promises
        truth = promises.partitions.get((one.topic_id, one.index))
        lost = one.topic in promises.given_up | promises.may_shrink
        where = f"{self._name}: {one}: {self._positions[one]}"
        require(one.ended or lost, f"P6: {where} is out of range")
        starts = {} if truth is None or one.topic in promises.given_up else truth.starts
        self._place(one, max(starts.values(), default=0))


def _request(
    session_id: int, epoch: int, names: dict[Key, tuple[int, int]], forgotten: list[Key]
) -> FetchRequest:
    topics: dict[bytes, list[FetchRequest.FetchPartition]] = {}
    for (topic_id, index), (offset, leader_epoch) in names.items():
        wish = FetchRequest.FetchPartition(
            partition=index,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        topics.setdefault(topic_id, []).append(wish)
    gone: dict[bytes, list[int]] = {}
    for topic_id, index in forgotten:
        gone.setdefault(topic_id, []).append(index)
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(topic_id=t, partitions=ps) for t, ps in topics.items()],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic_id=t, partitions=ps) for t, ps in gone.items()
        ],
    )


def _draw(rng: random.Random, _topics: tuple[TopicShape, ...]) -> list[ClientShape]:
    count = rng.choice((0, 1, 1, 3))
    return [
        ClientShape("session reader", f"session reader {number}", rng.choice((50.0, 150.0)))
        for number in range(count)
    ]


KINDS = {
    "session reader": ClientKind(
        "session_readers",
        "reads all partitions with incremental fetch sessions",
        _draw,
        lambda load, one: SessionReader(load, one.name).step,
        apart=True,
    ),
}
