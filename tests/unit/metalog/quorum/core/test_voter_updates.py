"""Updates of a voter's entry in the set: their time, and the updates that a leader accepts."""

from __future__ import annotations

from typing import Any

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.messages import QuorumState
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.voters import Endpoints, ReplicaKey, Voter, VoterEndpoint, VoterSet
from protocol.errors import ErrorCode
from testkit.memory.quorum_world import Entry, ModelLog, endpoints_of

TIMING = Timing(election_timeout_ms=1000, fetch_timeout_ms=2000)
ELSEWHERE: Endpoints = (("CONTROLLER", VoterEndpoint("elsewhere", 9093)),)
KEYS = [ReplicaKey(i, bytes([i]) * 16) for i in range(4)]


def entry(node_id: int, endpoints: Endpoints | None = None) -> Voter:
    return Voter(KEYS[node_id], endpoints or endpoints_of(node_id), 0, 1)


def voters(*ids: int, **moved: Endpoints) -> VoterSet:
    return VoterSet(entry(i, moved.get(f"n{i}")) for i in ids)


def core_of(
    *ids: int, listens: Endpoints, kraft_version: int = 1, key: ReplicaKey = KEYS[1]
) -> tuple[QuorumCore, ModelLog]:
    """Return node 1 of a quorum whose log has its endpoints as the others'; it starts at 0 ms."""
    log = ModelLog()
    log.kraft_version = kraft_version
    core = QuorumCore(
        node=key,
        log=log,
        state=QuorumState(),
        voters=voters(*ids),
        voters_in_log=True,
        timing=TIMING,
        jitter=lambda bound: 0,
        addresses=Addresses(listens),
    )
    core.step(m.Start(), 0)
    return core, log


def sent(effects: list[m.Effect]) -> list[Any]:
    return [e for e in effects if isinstance(e, m.SendVoterUpdate | m.AppendVoters)]


def follower(**facts: Any) -> QuorumCore:
    core, _ = core_of(1, 2, 3, **facts)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    return core


def tick_of_leader(core: QuorumCore, now_ms: float) -> list[Any]:
    """Return what a tick sends about the voter set while the leader, node 2, lives."""
    core.step(m.BeginEpochRequested(5, 2, 1), now_ms)
    return sent(core.step(m.Tick(), now_ms))


def leader(log_has: int = 1, **facts: Any) -> tuple[QuorumCore, ModelLog]:
    """Return a sole voter whose log is committed up to `records` records of its epoch."""
    core, log = core_of(1, **facts)
    log.entries += [Entry(core.epoch, i) for i in range(log_has)]
    core.step(m.Flushed(log_has), 1)
    return core, log


# --- the own entry ----------------------------------------------------------------------------


def test_moved_voter_sends_update_after_fetch_timeout() -> None:
    core = follower(listens=ELSEWHERE)
    assert core.next_deadline_ms() == 2000
    assert sent(core.step(m.Tick(), 1999)) == []
    core.step(m.SnapshotPieceFetched(1), 1999)
    assert sent(core.step(m.Tick(), 2000)) == [m.SendVoterUpdate(2, 1, entry(1, ELSEWHERE))]


@pytest.mark.parametrize(
    "facts",
    [
        {"listens": endpoints_of(1)},
        {"listens": ()},
        {"listens": ELSEWHERE, "kraft_version": 0},
        {"listens": ELSEWHERE, "key": ReplicaKey(1, b"?" * 16)},
        {"listens": ELSEWHERE, "key": ReplicaKey(9)},
    ],
    ids=["true", "not bound", "static voters", "another disk", "no voter"],
)
def test_voter_without_update_has_no_deadline(facts: dict[str, Any]) -> None:
    core = follower(**facts)
    assert tick_of_leader(core, 2000) == []
    assert core._voter_updates.deadline_ms() is None


def test_one_update_at_a_time_and_the_next_a_fetch_timeout_after_the_answer() -> None:
    core = follower(listens=ELSEWHERE)
    assert len(tick_of_leader(core, 2000)) == 1
    assert tick_of_leader(core, 9000) == []
    core.step(m.VoterUpdateAnswered(ErrorCode.REQUEST_TIMED_OUT), 9500)
    assert tick_of_leader(core, 11_499) == []
    assert len(tick_of_leader(core, 11_500)) == 1
    core.step(m.RequestFailed(2, m.RequestKind.UPDATE_VOTER), 12_000)
    assert tick_of_leader(core, 13_999) == []
    assert len(tick_of_leader(core, 14_000)) == 1
    core.step(m.VotersChanged(voters(1, 2, 3, n1=ELSEWHERE)), 14_001)
    core.step(m.VoterUpdateAnswered(ErrorCode.NONE), 14_002)
    assert tick_of_leader(core, 99_000) == []


def test_moved_voter_without_leader_sends_no_update() -> None:
    core, _ = core_of(1, 2, 3, listens=ELSEWHERE)
    assert core._voter_updates.deadline_ms() is None
    assert sent(core.step(m.Tick(), 2000)) == []


def test_endpoints_bound_later_are_sent_then() -> None:
    core = follower(listens=endpoints_of(1))
    assert tick_of_leader(core, 5000) == []
    core.step(m.EndpointsBound(ELSEWHERE), 6000)
    assert core._voter_updates.deadline_ms() == 2000
    assert tick_of_leader(core, 6000) == [m.SendVoterUpdate(2, 1, entry(1, ELSEWHERE))]


def test_a_leader_writes_its_own_entry_when_its_epoch_is_committed() -> None:
    core, log = core_of(1, listens=ELSEWHERE)
    assert core.is_leader and sent(core.step(m.Tick(), 2000)) == []
    log.entries.append(Entry(core.epoch, "leader change"))
    core.step(m.Flushed(1), 2001)
    assert core.next_deadline_ms() == 2000
    changed = voters(1, n1=ELSEWHERE)
    assert sent(core.step(m.Tick(), 2001)) == [m.AppendVoters(core.epoch, changed)]
    log.entries.append(Entry(core.epoch, "voters"))
    log.voters_offset = 1
    core.step(m.VotersChanged(changed), 2001)
    assert core.next_deadline_ms() is None


# --- the entries of others --------------------------------------------------------------------


def asked(core: QuorumCore, voter: Voter, *, epoch: int | None = None) -> list[Any]:
    event = m.VoterUpdateRequested(7, core.epoch if epoch is None else epoch, voter)
    return [e for e in core.step(event, 10) if not isinstance(e, m.LeaderChanged)]


def test_an_update_is_appended_before_it_is_answered() -> None:
    core, log = leader(listens=endpoints_of(1))
    changed = voters(1, n1=ELSEWHERE)
    assert asked(core, entry(1, ELSEWHERE)) == [
        m.AppendVoters(1, changed),
        m.ReplyVoterUpdate(7, ErrorCode.NONE, 1, 1, appended=True),
    ]
    log.entries.append(Entry(1, "voters"))
    log.voters_offset = 1
    core.step(m.VotersChanged(changed), 10)
    pending = m.ReplyVoterUpdate(7, ErrorCode.REQUEST_TIMED_OUT, 1, 1)
    assert asked(core, entry(1)) == [pending], "one change at a time"
    core.step(m.Flushed(2), 11)
    assert len(asked(core, entry(1))) == 2


@pytest.mark.parametrize(
    ("voter", "error"),
    [
        (entry(2), ErrorCode.VOTER_NOT_FOUND),
        (Voter(ReplicaKey(1, b"?" * 16), ELSEWHERE, 0, 1), ErrorCode.VOTER_NOT_FOUND),
        (Voter(KEYS[1], (("OTHER", VoterEndpoint("h", 1)),), 0, 1), ErrorCode.INVALID_REQUEST),
        (Voter(KEYS[1], (), 0, 1), ErrorCode.INVALID_REQUEST),
        (Voter(KEYS[1], ELSEWHERE, 0, 0), ErrorCode.INVALID_REQUEST),
        (Voter(KEYS[1], ELSEWHERE, 2, 3), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_entry_that_would_not_do_is_refused(voter: Voter, error: ErrorCode) -> None:
    core, _ = leader(listens=endpoints_of(1))
    assert asked(core, voter) == [m.ReplyVoterUpdate(7, error, 1, 1)]


def test_an_update_waits_for_the_leaders_own_record() -> None:
    core, _ = leader(log_has=0, listens=endpoints_of(1))
    assert asked(core, entry(1, ELSEWHERE))[-1].error is ErrorCode.REQUEST_TIMED_OUT


def test_voter_update_with_wrong_epoch_or_role_is_refused() -> None:
    core, _ = leader(listens=endpoints_of(1))
    moved = entry(1, ELSEWHERE)
    assert asked(core, moved, epoch=0)[-1].error is ErrorCode.FENCED_LEADER_EPOCH
    assert asked(core, moved, epoch=2)[-1].error is ErrorCode.UNKNOWN_LEADER_EPOCH
    standby = follower(listens=endpoints_of(1))
    not_leader = m.ReplyVoterUpdate(7, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 2)
    assert asked(standby, moved) == [not_leader]


def test_static_voters_have_no_entry_to_change() -> None:
    core, _ = leader(listens=endpoints_of(1), kraft_version=0)
    assert asked(core, entry(2, ELSEWHERE)) == [m.ReplyVoterUpdate(7, ErrorCode.NONE, 1, 1)]
