"""The leader's answer to a follower's Fetch."""

from __future__ import annotations

import pytest

from broker.replication.fetching.fetcher import Reset
from broker.replication.sessions import follower_watch
from protocol.errors import ErrorCode
from testkit.memory.broker import fetch_request, registration, settle
from testkit.memory.replicas import Cluster, answer


async def test_a_fetch_that_waits_is_answered_when_its_session_is_evicted() -> None:
    """Otherwise the follower would learn of appends only at the end of the wait."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    request = c.request(2, 1)
    assert request is not None
    request.max_wait_ms = 500
    waiting = c[1].call(request)
    (session,) = c[1].context.sessions
    c[1].context.sessions.forget(session.session_id)
    c[1].append(b"a")
    await settle()
    assert waiting.done()
    c.take(2, 1, await waiting)
    c.fetch(2, times=2)  # refused, then a new session
    assert c[2].values == [b"a"]


async def test_a_sessions_next_fetch_ends_the_wait_of_the_one_before() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    first = c.request(2, 1)
    assert first is not None
    first.max_wait_ms = 500
    waiting = c[1].call(first)
    c.change(leader=1)
    second = c.request(2, 1)
    assert second is not None
    second.max_wait_ms = 500
    waits_on = c[1].call(second)
    await settle()
    assert waiting.done()
    assert (await waiting).responses == []
    c[1].append(b"a")
    await settle()
    c.take(2, 1, await waiting)
    c.take(2, 1, await waits_on)
    assert c[2].values == [b"a"]


async def test_a_fetch_is_answered_at_once_while_others_have_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch does not check all of thousands of partitions; the next one continues where it
    ended."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    c.change(isr=[1, 2])
    most = follower_watch.LOOKED_AT_MAX
    monkeypatch.setattr(follower_watch, "LOOKED_AT_MAX", 0)
    request = c.request(2, 1)
    assert request is not None
    request.topics, request.max_wait_ms = [], 500
    c.take(2, 1, c[1].call(request))
    monkeypatch.setattr(follower_watch, "LOOKED_AT_MAX", most)
    request = c.request(2, 1)
    assert request is not None
    request.max_wait_ms = 500
    waiting = c[1].call(request)
    assert not waiting.done()
    waiting.cancel()


# --- outside of the log (KIP-405) -----------------------------------------------------------------


def in_the_middle() -> Cluster:
    """Return a leader with log 1 to 5, of which 1 and 2 are only in the tier."""
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    for value in (b"a", b"b", b"c", b"d", b"e"):
        c[1].append(value)
    c[1].log.advance_log_start(1)
    c[1].log.bounds.local_log_start_offset = 3
    return c


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE),
        (2, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE),
        (3, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (6, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2**63 - 1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_follower_fetch_returns_log_start_offset_of_leader(
    offset: int, code: ErrorCode
) -> None:
    c = in_the_middle()
    request = c.request(2, 1)
    assert request is not None
    wanted = request.topics[0].partitions[0]
    wanted.fetch_offset, wanted.last_fetched_epoch = offset, -1
    (data,) = c[1].call(request).responses[0].partitions
    facts = (data.error_code, data.high_watermark, data.log_start_offset)
    assert facts == (code, 5, 1)
    assert data.last_stable_offset == (-1 if code else 5)
    assert bool(data.records) is (offset == 3)


async def test_follower_reset_uses_log_start_offset_of_response() -> None:
    c = in_the_middle()
    request = c.request(2, 1)
    assert request is not None
    request.topics[0].partitions[0].last_fetched_epoch = -1
    response = c[1].call(request)
    (reset,) = [one for one in c.take(2, 1, response) if isinstance(one, Reset)]
    assert (reset.error, reset.leader_log_start) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


@pytest.mark.parametrize("offset", [0, 1, 2])
async def test_without_a_tier_a_consumer_is_out_of_range_below_the_local_start(offset: int) -> None:
    c = in_the_middle()
    (data,) = c[1].call(fetch_request(offset), 12).responses[0].partitions
    facts = (data.error_code, data.high_watermark, data.log_start_offset)
    assert facts == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)


async def test_a_session_may_begin_before_its_follower_knows_its_epoch() -> None:
    """A broker follows as soon as the metadata makes it a follower; its registration reply may be
    later."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    (earlier,) = c[1].context.sessions
    c[2].fetchers.clear()
    c[2].follow(c[2].partition())  # the follower's next incarnation, as its leader sees it
    epoch, c.epochs[2] = c.epochs[2] + 10, -1
    c.fetch(2)
    assert len(c[1].context.sessions) == 2, "nobody knows which life is the later one"
    c.epochs[2] = epoch
    c.fetch(2)
    assert earlier in c[1].context.sessions, "the leader does not know that epoch yet"
    c.records.append(registration(2)[0].replace(broker_epoch=epoch))
    c.catch_up(1)
    c.fetch(2)
    assert earlier not in c[1].context.sessions
    assert len(c[1].context.sessions) == 1


async def test_sessions_follower_registers_again_ends_those_of_its_earlier_epoch() -> None:
    """P26: the new process may have nothing to fetch here, so no request of it ends them."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    c[2].fetchers.clear()
    c[2].follow(c[2].partition())
    earlier_epoch, c.epochs[2] = c.epochs[2], -1
    c.fetch(2)
    earlier, unnamed = c[1].context.sessions
    c.records.append(registration(2)[0].replace(broker_epoch=earlier_epoch))
    c.catch_up(1)
    assert len(c[1].context.sessions) == 2
    c.records.append(registration(2)[0].replace(broker_epoch=earlier_epoch + 10))
    c.catch_up(1)
    assert list(c[1].context.sessions) == [unnamed]
    assert c[1].context.sessions.partition_count == len(unnamed.partitions)


async def test_late_fetch_of_earlier_broker_epoch_leaves_no_session() -> None:
    """P26, seed 95014: the network delivers the old process's first fetch after the registration of
    the new one.

    Later requests of the session, if any, receive FETCH_SESSION_ID_NOT_FOUND.
    """
    c = Cluster(2)
    c.create(1, 2)
    late = c.request(2, 1)
    assert late is not None and late.session_epoch == 0
    epoch = late.replica_state.replica_epoch + 10
    c.records.append(registration(2)[0].replace(broker_epoch=epoch))
    c.catch_up(1)
    c[1].call(late)
    assert not list(c[1].context.sessions)
    assert not list(c[1].partition().subscriptions.watches())


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA])
async def test_follower_fetch_checks_partition_with_open_proposal_once(error: ErrorCode) -> None:
    """A follower's fetch skips partitions with an open proposal until the proposal is answered.

    A leader of ten thousand new partitions has as many proposals open. Otherwise each fetch would
    check all of them in rounds, though no follower can join in the meantime.
    """
    c = Cluster()
    c.create(1, 2, 3, isr=[1])
    c.fetch(2)
    partition = c[1].partition()
    assert partition.proposal is not None
    c.fetch(3, times=2)
    looks = partition.counters.fetches
    c.fetch(3, times=3)
    assert partition.counters.fetches == looks
    answer(c, error)
    assert partition.proposal is None
    c.fetch(3)
    assert partition.counters.fetches == looks + 1
    _, proposal = c[1].proposals[-1]
    assert proposal.broker_ids == ({1, 3} if error else {1, 2, 3})


@pytest.mark.parametrize("epoch", [2**63 - 1, -1, 0])
async def test_a_fetch_with_an_epoch_that_is_not_the_replicas_changes_nothing_of_its_session(
    epoch: int,
) -> None:
    """B32: any client can send a replica's id with any epoch.

    The real replica's session and its waiting fetch stay until the metadata has that epoch.
    """
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    (session,) = c[1].context.sessions
    request = c.request(2, 1)
    assert request is not None
    request.max_wait_ms = 500
    waiting = c[1].call(request)
    remote = c[1].partition().remote[2]
    before = (remote.log_end, remote.broker_epoch, remote.fetch_ms, remote.caught_up_ms)
    forged = fetch_request(0)
    forged.replica_state.replica_id, forged.replica_state.replica_epoch = 2, epoch
    for session_epoch in (0, -1):
        forged.session_epoch = session_epoch
        c[1].call(forged)
    await settle()
    assert session in c[1].context.sessions and not waiting.done()
    assert (remote.log_end, remote.broker_epoch, remote.fetch_ms, remote.caught_up_ms) == before


@pytest.mark.parametrize("session_epoch", ["next", 0, -1])
@pytest.mark.parametrize("replica_id", [-1, 1, 3])
async def test_a_fetch_of_another_replica_changes_nothing_of_a_session(
    replica_id: int, session_epoch: int | str
) -> None:
    """B31: knowing a session's id and epoch does not make a client its owner."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    (session,) = c[1].context.sessions
    partitions, epoch = set(session.partitions), session.epoch
    request = c.request(2, 1)
    assert request is not None
    request.max_wait_ms = 500
    waiting = c[1].call(request)
    forged = fetch_request(0)
    forged.replica_state.replica_id, forged.replica_state.replica_epoch = replica_id, 1
    forged.session_id = session.session_id
    forged.session_epoch = session.epoch if isinstance(session_epoch, str) else session_epoch
    forged.forgotten_topics_data = [
        type(forged).ForgottenTopic(topic_id=key[0], partitions=[key[1]]) for key in partitions
    ]
    response = c[1].call(forged)
    if session_epoch == "next":
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    await settle()
    assert session in c[1].context.sessions and not waiting.done()
    assert set(session.partitions) == partitions and session.epoch == epoch + 1
