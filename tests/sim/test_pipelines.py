"""Producers with several requests in flight and readers with fetch sessions: activity and
checks."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from broker.replication.replicas.appender import Appender
from broker.replication.sessions.fetch_session import FetchSession, FetchSessionCache
from protocol.batch.header import BatchHeader
from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from simulation.clients import pipelines
from simulation.clients.client import Unknown
from simulation.clients.pipelines import OUT_OF_ORDER, Idempotent, Pipeline, Wagon
from simulation.event import Event
from simulation.judges.ledger import PartitionLedger
from simulation.schedule import Schedule
from simulation.shapes.shape import ClientShape
from simulation.swarm import RunOutcome, run
from simulation.world.invariants import Violation
from storage.log.producers import ProducerState
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

KILL = Event("kill", 1000, "kill", "leader of t0-0", {"for_ms": 1500})
UNHEARD = Event("cut", 1000, "cut out", "leader of t0-0", {"for_ms": 3500, "from": "clients"})
"""Requests of clients are carried out, but clients wait in vain for the answers."""


def with_clients(*clients: ClientShape, event: Event = KILL, slots: int = 1000) -> Schedule:
    setting = {"max.incremental.fetch.session.cache.slots": str(slots)}
    drawn = schedule(event, quiet_from_ms=5000, **setting)
    return replace(drawn, shape=replace(drawn.shape, clients=(*drawn.shape.clients, *clients)))


def pipeline(kind: str, acks: int) -> ClientShape:
    return ClientShape(kind, "p", 50.0, {"in_flight": 5, "acks": acks})


def sends(outcome: RunOutcome) -> list[Any]:
    return [one for one in outcome.history if one.what == "send" and one.client.startswith("p")]


def in_flight(outcome: RunOutcome) -> int:
    """Return the largest number of one client's concurrent requests."""
    ends = [(one.begin_s, 1) for one in sends(outcome)] + [(s.end_s, -1) for s in sends(outcome)]
    most = now = 0
    for _, step in sorted(ends):
        now += step
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("kind", "acks"),
    [("idempotent pipeline", -1), ("plain pipeline", -1), ("plain pipeline", 1)],
)
def test_several_requests_are_in_flight_and_keep_their_order(kind: str, acks: int) -> None:
    outcome = run(with_clients(pipeline(kind, acks), event=UNHEARD))
    assert outcome.broken is None, outcome.broken
    assert 3 <= in_flight(outcome) <= 5
    assert any(one.answer != "ok" for one in sends(outcome)), "nothing had to be sent again"


def test_produce_with_acks_0_gets_no_response() -> None:
    outcome = run(with_clients(pipeline("plain pipeline", 0)))
    assert outcome.broken is None, outcome.broken
    assert {one.answer for one in sends(outcome)} == {"? not asked"}
    sent = {value for one in sends(outcome) for value in one.values}
    read = {value for one in outcome.history if one.what == "final" for value in one.values}
    assert len(sent & read) > 20


def with_first_refused(code: ErrorCode) -> RunOutcome:
    """Return one idempotent producer, whose very first batch is refused once."""
    append, refused = Appender.append, list[BatchHeader]()

    def refuse(self: Appender, one: Any, data: Any, header: BatchHeader, now_ms: int) -> Any:
        if header.producer_id >= 0 and not refused:
            refused.append(header)
            raise ApiError(code)
        return append(self, one, data, header, now_ms)

    with mock.patch.object(Appender, "append", refuse):
        outcome = run(with_clients(pipeline("idempotent pipeline", -1)))
    assert {header.base_sequence for header in refused} == {0}
    return outcome


def test_a_producer_whose_first_batch_is_overtaken_gives_it_up_and_begins_a_new_epoch() -> None:
    """T1: the log accepts a later batch of a producer that it does not know, as Kafka's does."""
    outcome = with_first_refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert outcome.broken is None, outcome.broken
    first, *others = sorted(sends(outcome), key=lambda one: one.serial)
    assert first.answer == "NOT_ENOUGH_REPLICAS"
    assert "? OUT_OF_ORDER_SEQUENCE_NUMBER" in {one.answer for one in others}
    read = {value for one in outcome.history if one.what == "final" for value in one.values}
    assert not read & set(first.values)
    assert len(read & {value for one in others for value in one.values}) > 20


def test_a_first_batch_that_nothing_has_overtaken_is_never_out_of_order() -> None:
    broken = with_first_refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER).broken
    assert broken is not None
    assert broken.code == "T1"


@pytest.mark.parametrize(
    "later", [None, Unknown("the connection broke"), ApiError(ErrorCode.REQUEST_TIMED_OUT)]
)
@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_first_batch_may_be_overtaken_by_one_without_response(later: Any, code: ErrorCode) -> None:
    """T1: the later batch may be in the log, which then refuses the first one.

    Seeds: tiered 403; 636 and 5978.
    """
    told: list[Any] = []
    load: Any = SimpleNamespace(new_client=lambda: None, failed=lambda *about: told.append(about))
    ledger = PartitionLedger("t", 0, b"t")
    train = [
        Wagon(ledger.sending("p", number, (b"%d" % number,)), Producer(1000, 0, number))
        for number in (0, 1)
    ]
    refused, late = ApiError(code), ApiError(OUT_OF_ORDER)
    one = Pipeline(load, "p", -1, 5)
    one._judge(ledger, train, [refused, later])
    one._judge(ledger, train, [late, None])
    assert one.hopeless == {train[0].batch}
    other = Pipeline(load, "p", -1, 5)
    nobody = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    other._judge(ledger, train, [nobody, nobody])
    with pytest.raises(Violation, match="^T1"):
        other._judge(ledger, train, [late, None])


@pytest.mark.parametrize("uncertain", [False, True])
async def test_batch_that_may_exist_is_not_sent_in_a_new_epoch(uncertain: bool) -> None:
    """It would be in the log twice (seed 636)."""
    load: Any = SimpleNamespace(new_client=lambda: None, calm=True)
    ledger = PartitionLedger("t", 0, b"t")
    batches = [ledger.sending("p", number, (b"%d" % number,)) for number in (0, 1)]
    batches[1].uncertain = uncertain
    places = iter([(batch, Producer(1000, 0, batch.number)) for batch in batches])
    one = Idempotent(load, "p", 5)
    anew: list[int] = []
    numbered: Any = SimpleNamespace(
        choose=mock.AsyncMock(return_value=ledger),
        next=lambda *_: next(places),
        begin_anew=lambda: anew.append(1),
        place=lambda *_: Producer(1000, 1, 0),
    )
    trains: list[list[Wagon]] = []

    async def ran(_ledger: PartitionLedger, train: list[Wagon]) -> list[Wagon]:
        trains.append(train)
        one.hopeless.add(batches[0])
        return train if len(trains) == 1 else []

    with (
        mock.patch.object(one, "_numbered", numbered),
        mock.patch.object(one, "run", ran),
        mock.patch.object(pipelines, "counts", return_value=True),
    ):
        await one.step(random.Random(1))
    assert [wagon.batch for wagon in trains[1]] == batches[1:]
    assert [wagon.producer.epoch for wagon in trains[1]] == [int(not uncertain)]
    assert bool(anew) is not uncertain


READERS = tuple(ClientShape("session reader", f"s{n}", 20.0) for n in range(3))


def test_sessions_are_refused_and_get_requests_out_of_turn() -> None:
    outcome = run(with_clients(*READERS, slots=2))
    assert outcome.broken is None, outcome.broken
    assert {"session.refused", "session.epoch-out-of-turn"} <= set(outcome.marks)
    reads = [one for one in outcome.history if one.client.startswith("s0 of") and one.values]
    assert len(reads) > 20


NEWS = FetchSession.news


def _forgets_news(session: FetchSession[Any], key: Any, facts: Any, **how: Any) -> bool:
    """Drop the news of a consumer's session about partitions that it has reported before."""
    told = session.partitions[key].sent is not None if key in session.partitions else False
    return NEWS(session, key, facts, **how) and not (told and not session.privileged)


def _any_epoch(
    cache: FetchSessionCache[Any], session_id: int, _epoch: int, _ids: bool, _replica_id: int
) -> FetchSession[Any]:
    session = cache._sessions.get(session_id)
    if session is None:
        raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return session


@pytest.mark.parametrize(
    ("code", "owner", "name", "bug"),
    [
        ("H12", FetchSession, "news", _forgets_news),
        ("B31", FetchSessionCache, "_find", _any_epoch),
        ("T1", ProducerState, "duplicate_of", lambda *_: None),
    ],
)
def test_a_planted_bug_is_found(code: str, owner: Any, name: str, bug: Any) -> None:
    clients = (*READERS[:2], pipeline("idempotent pipeline", -1))
    with mock.patch.object(owner, name, bug):
        broken = run(with_clients(*clients, event=UNHEARD)).broken
    assert broken is not None and broken.code == code, broken
