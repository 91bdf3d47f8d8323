"""A follower's Fetch as its leader answers it."""

from __future__ import annotations

from testkit.memory.broker import settle
from testkit.memory.replicas import Cluster


async def test_a_fetch_that_waits_is_answered_when_its_session_is_evicted() -> None:
    """Its follower would hear of appends only when the wait is over."""
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
    c.fetch(2, times=2)  # refused, and begun anew
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
