"""Leader discovery of a replica: the nodes it queries, and its timeouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metalog.quorum.core import messages as m
from metalog.quorum.core.discovery import FIRST_WAIT_MS, Addresses
from metalog.quorum.core.messages import QuorumState
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import NOBODY, ReplicaKey, Voter, VoterEndpoint, VoterSet
from protocol.errors import ErrorCode
from testkit.memory.quorum_world import ModelLog, endpoints_of

TIMING = Timing(retry_backoff_ms=20, request_timeout_ms=1500)
BROKER = ReplicaKey(9, b"b" * 16)


def at(node_id: int) -> VoterEndpoint:
    return endpoints_of(node_id)[0][1]


def broker(
    voters: Iterable[Voter] = (), *, bootstrap: Iterable[int] = (), state: QuorumState | None = None
) -> QuorumCore:
    return QuorumCore(
        node=BROKER,
        log=ModelLog(),
        state=state or QuorumState(),
        voters=VoterSet(voters),
        voters_in_log=True,
        timing=TIMING,
        jitter=lambda bound: 0,
        addresses=Addresses(bootstrap_servers=tuple(at(node_id) for node_id in bootstrap)),
    )


def voter(node_id: int, **more: Any) -> Voter:
    return Voter(ReplicaKey(node_id, bytes([node_id]) * 16), endpoints_of(node_id), **more)


def asked(effects: list[m.Effect]) -> m.FindLeader:
    (find,) = [effect for effect in effects if isinstance(effect, m.FindLeader)]
    return find


def ask_in_vain(core: QuorumCore, times: int) -> list[m.FindLeader]:
    """Start the core, and let every request fail."""
    found, now_ms = [asked(core.step(m.Start(), 0))], 0.0
    for _ in range(times - 1):
        core.step(m.RequestFailed(NOBODY, m.RequestKind.FETCH, found[-1].fetch_id), now_ms)
        now_ms += TIMING.retry_backoff_ms
        assert core.next_deadline_ms() == now_ms
        found.append(asked(core.step(m.Tick(), now_ms)))
    return found


def test_discovery_queries_servers_in_turn_with_growing_timeout() -> None:
    found = ask_in_vain(broker(bootstrap=(1, 2, 3)), 12)
    assert [find.endpoint for find in found] == [at(2), at(3), at(1)] * 4
    waits_ms = [find.timeout_ms for find in found]
    assert waits_ms == [FIRST_WAIT_MS] * 3 + [500] * 3 + [1000] * 3 + [1500] * 3


def test_an_answer_without_a_leader_shortens_the_wait_again() -> None:
    core = broker(bootstrap=(1, 2))
    last = ask_in_vain(core, 5)[-1]
    assert last.timeout_ms == 1000
    answer = m.FetchAnswered(last.fetch_id, NOBODY, 0, None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    core.step(answer, 100)
    assert asked(core.step(m.Tick(), 120)).timeout_ms == FIRST_WAIT_MS


def test_the_answer_to_a_fetch_that_is_not_waited_for_changes_nothing() -> None:
    core = broker(bootstrap=(1, 2))
    found = ask_in_vain(core, 5)
    late = m.FetchAnswered(found[0].fetch_id, NOBODY, 0, None)
    assert core.step(late, 90) == []
    core.step(m.RequestFailed(NOBODY, m.RequestKind.FETCH, found[-1].fetch_id), 100)
    assert asked(core.step(m.Tick(), 120)).timeout_ms == 1000


def test_discovery_queries_voters_and_bootstrap_servers_once_per_address() -> None:
    core = broker([voter(1), voter(2)], bootstrap=(2, 5))
    assert [find.endpoint for find in ask_in_vain(core, 4)] == [at(5), at(1), at(2), at(5)]


def test_discovery_without_addresses_starts_after_voters_changed() -> None:
    core = broker()
    assert core.step(m.Start(), 0) == [m.LeaderChanged(None, 0)]
    assert core.next_deadline_ms() == 20
    assert core.step(m.Tick(), 20) == []
    core.step(m.VotersChanged(VoterSet([voter(1)])), 30)
    assert asked(core.step(m.Tick(), 40)).endpoint == at(1)


def test_discovery_finds_leader_at_endpoint_of_answer() -> None:
    core = broker(bootstrap=(1,))
    find = asked(core.step(m.Start(), 0))
    answer = m.FetchAnswered(
        find.fetch_id, NOBODY, 3, 7, ErrorCode.FENCED_LEADER_EPOCH, endpoints=((7, at(7)),)
    )
    (fetch,) = [e for e in core.step(answer, 1) if isinstance(e, m.SendFetch)]
    assert (fetch.to, core.role) == (7, Role.OBSERVER)
    assert core.endpoint_of(7) == at(7)


def test_the_listener_that_is_named_first_counts() -> None:
    listeners = (("INTERNAL", VoterEndpoint("i", 1)), ("CONTROLLER", VoterEndpoint("c", 1)))
    core = broker([Voter(ReplicaKey(1), listeners), Voter(ReplicaKey(2), listeners[:1])])
    assert core.endpoint_of(1) == VoterEndpoint("c", 1)
    assert core.endpoint_of(2) is None
    core.step(m.EndpointsBound(listeners), 0)
    assert core.endpoint_of(BROKER.id) == VoterEndpoint("c", 1)


def test_endpoint_of_non_voter_is_learned_from_answers() -> None:
    core = broker(bootstrap=(1,))
    find = asked(core.step(m.Start(), 0))
    assert core.endpoint_of(7) is None
    told = ((7, at(7)),)
    core.step(m.FetchAnswered(find.fetch_id, NOBODY, 0, None, endpoints=told), 1)
    assert core.endpoint_of(7) == at(7)
