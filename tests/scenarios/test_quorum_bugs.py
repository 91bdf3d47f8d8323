"""Known bugs of metadata quorums, each as a short transcript of the core.

Numbers are Kafka's tickets: 13-15 of the list of known bugs in the reliability notes.
"""

from __future__ import annotations

from typing import Any

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.messages import OffsetAndEpoch, QuorumState
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import Timing
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import NOBODY, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from testkit.memory.quorum_world import Entry, ModelLog, endpoints_of

KEYS = [ReplicaKey(i, bytes([i]) * 16) for i in range(5)]


def core_of(
    node: int, *voter_ids: int, epochs: tuple[int, ...] = (), state: QuorumState | None = None
) -> QuorumCore:
    """Return a started core whose log has one record of each of `epochs`."""
    log = ModelLog()
    log.entries = [Entry(epoch, i) for i, epoch in enumerate(epochs)]
    core = QuorumCore(
        node=KEYS[node],
        log=log,
        state=state or QuorumState(log.last_epoch),
        voters=VoterSet(Voter(KEYS[i], endpoints_of(i)) for i in voter_ids),
        voters_in_log=True,
        timing=Timing(election_timeout_ms=1000, fetch_timeout_ms=2000),
        jitter=lambda bound: 0,
        addresses=Addresses(),
    )
    core.step(m.Start(), 0)
    return core


def awaited(core: QuorumCore) -> int:
    return next(number for number in range(10_000) if core.awaits(number))


def asks(core: QuorumCore) -> bool:
    return any(core.awaits(number) for number in range(10_000))


def answer(core: QuorumCore, *facts: Any, **more: Any) -> list[m.Effect]:
    return core.step(m.FetchAnswered(awaited(core), *facts, **more), 1)


def follow(core: QuorumCore, leader_id: int, epoch: int) -> None:
    core.step(m.BeginEpochRequested(900, leader_id, epoch), 1)


def win(core: QuorumCore) -> int:
    """Win an election at 1000 ms with the vote of node 2, and return the epoch."""
    core.step(m.Tick(), 1000)
    core.step(m.VoteAnswered(2, core.epoch, None, True, pre_vote=True), 1001)
    core.step(m.VoteAnswered(2, core.epoch, None, True), 1002)
    assert core.role is Role.LEADER
    return core.epoch


def append(core: QuorumCore, *values: Any) -> None:
    log = core._replica.log
    assert isinstance(log, ModelLog)
    log.entries += [Entry(core.epoch, value) for value in values]


def fetch(core: QuorumCore, replica: ReplicaKey, offset: int, epoch: int) -> Any:
    return core.step(m.FetchRequested(1, replica, core.epoch, offset, epoch), 1003)


def test_15489_a_leader_cut_off_from_the_majority_resigns() -> None:
    core = core_of(1, 1, 2, 3)
    win(core)
    core.step(m.Tick(), 1002 + 2000 * 1.5 - 1)
    assert core.role is Role.LEADER
    core.step(m.Tick(), 1002 + 2000 * 1.5)
    assert core.role is Role.RESIGNED


def test_16144_a_sole_voter_never_resigns_for_want_of_fetches() -> None:
    core = core_of(1, 1)
    assert core.role is Role.LEADER and core.next_deadline_ms() is None
    core.step(m.Tick(), 1e9)
    assert core.role is Role.LEADER


def test_12460_truncating_below_the_high_watermark_is_refused() -> None:
    core = core_of(1, 1, 2, 3, epochs=(1, 1, 2))
    follow(core, 2, 3)
    answer(core, 2, 3, 2, high_watermark=3)
    with pytest.raises(InvariantViolated, match="below the high watermark"):
        answer(core, 2, 3, 2, diverging=OffsetAndEpoch(1, 1))


def test_10527_a_leader_that_restarts_does_not_lead_that_epoch_again() -> None:
    core = core_of(1, 1, 2, 3, epochs=(4,), state=QuorumState(4, 1, None))
    assert core.role is Role.RESIGNED and core.active_leader_id is None
    core.step(m.Tick(), 1000)
    core.step(m.VoteAnswered(2, 4, None, True, pre_vote=True), 1001)
    assert core.role is Role.CANDIDATE and core.epoch == 5


def test_12619_no_high_watermark_before_the_leaders_own_record_is_committed() -> None:
    core = core_of(1, 1, 2, 3, epochs=(1, 1, 1))
    epoch = win(core)
    append(core, "leader change")
    core.step(m.Flushed(4), 1003)
    assert not [e for e in fetch(core, KEYS[2], 3, 1) if isinstance(e, m.HighWatermarkAdvanced)]
    assert core.high_watermark is None
    assert m.HighWatermarkAdvanced(4) in fetch(core, KEYS[2], 4, epoch)


def test_12619_new_leader_does_not_send_its_follower_high_watermark() -> None:
    """Others may know a later high watermark; Kafka's followers end if they receive an earlier
    one."""
    core = core_of(1, 1, 2, 3, epochs=(1, 1, 1))
    follow(core, 3, 1)
    answer(core, 3, 1, 3, high_watermark=2)
    core.step(m.Tick(), 2001)
    core.step(m.VoteAnswered(2, 1, None, True, pre_vote=True), 2002)
    core.step(m.VoteAnswered(2, 2, None, True), 2003)
    assert core.role is Role.LEADER and core.high_watermark == 2
    assert core.shown_high_watermark is None
    append(core, "leader change")
    core.step(m.Flushed(4), 2004)
    core.step(m.FetchRequested(1, KEYS[2], 2, 4, 2), 2005)
    assert core.shown_high_watermark == 4


def test_17067_only_a_prospective_with_a_majority_becomes_a_candidate() -> None:
    core = core_of(1, 1, 2, 3)
    core.step(m.Tick(), 1000)
    epoch = core.epoch
    assert core.role is Role.PROSPECTIVE
    core.step(m.VoteAnswered(2, epoch, None, False, pre_vote=True), 1001)
    assert core.role is Role.PROSPECTIVE and core.epoch == epoch
    core.step(m.VoteAnswered(3, epoch, None, True, pre_vote=True), 1002)
    assert core.role is Role.CANDIDATE and core.epoch == epoch + 1


def test_17426_a_voters_id_on_another_disk_is_not_that_voter() -> None:
    core = core_of(1, 1, 2, 3)
    epoch = win(core)
    append(core, "leader change")
    core.step(m.Flushed(1), 1003)
    fetch(core, ReplicaKey(2, b"?" * 16), 1, epoch)
    assert core.high_watermark is None
    asked = m.VoteRequested(
        7, KEYS[3], epoch + 1, OffsetAndEpoch(9, 9), voter=ReplicaKey(1, b"?" * 16)
    )
    reply = core.step(asked, 1004)[-1]
    assert isinstance(reply, m.ReplyVote) and reply.error is ErrorCode.INVALID_VOTER_KEY


def test_14618_a_snapshot_is_named_after_the_first_offset_that_is_not_in_it() -> None:
    core = core_of(1, 1, 2, 3, epochs=(1, 1, 1, 1))
    log = core._replica.log
    assert isinstance(log, ModelLog)
    log.snapshot(3)
    log.clean()
    win(core)
    append(core, "leader change")
    behind = fetch(core, KEYS[2], 2, 1)[-1]
    assert behind.snapshot == OffsetAndEpoch(3, 1)
    exactly = fetch(core, KEYS[2], 3, 1)[-1]
    assert exactly.snapshot is None and exactly.diverging is None


def test_a_leader_that_sends_a_snapshot_in_pieces_is_not_missed() -> None:
    """A snapshot may take longer than the fetch timeout: as in Kafka, each piece restarts it.

    A voter that stood for election in between lost the pieces under way. If a piece took longer
    than the rest of the timeout, it never got a snapshot.
    """
    core = core_of(1, 1, 2, 3)
    follow(core, 2, 4)
    fetch_id = awaited(core)
    (effect,) = answer(core, 2, 4, 2, snapshot=OffsetAndEpoch(40, 3))
    assert isinstance(effect, m.InstallSnapshot)
    for now_ms in (1900.0, 3800.0, 5700.0):
        core.step(m.SnapshotPieceFetched(fetch_id), now_ms)
        core.step(m.Tick(), now_ms + 1900)
        assert (core.role, core.awaits(fetch_id)) == (Role.FOLLOWER, True)
    core.step(m.Tick(), 5700 + 2000)
    assert core.role is Role.PROSPECTIVE
    core.step(m.SnapshotPieceFetched(fetch_id), 7701)
    assert core.role is Role.PROSPECTIVE, "a piece that nobody waits for any more"


def test_a_leader_that_resigned_is_nobodys_leader_when_it_stands_again() -> None:
    """The node keeps its own id on disk, but clients must not be sent to it.

    Regression: once it stood for election, it reported itself as leader of the epoch from which it
    had resigned.
    """
    core = core_of(1, 1, 2, 3)
    epoch = win(core)
    assert core.active_leader_id == 1
    now_ms = 1002 + 2000 * 1.5
    core.step(m.Tick(), now_ms)
    core.step(m.Tick(), now_ms + 1000)
    assert core.role is Role.PROSPECTIVE
    assert (core.active_leader_id, core.leader_id) == (None, 1)
    (reply,) = fetch(core, KEYS[2], 0, 0)
    assert (reply.error, reply.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    asked = m.VoteRequested(7, KEYS[3], epoch, OffsetAndEpoch(9, epoch), pre_vote=True)
    (vote,) = core.step(asked, now_ms + 1001)
    assert (vote.granted, vote.leader_id) == (True, None)
    (begun,) = core.step(m.EndEpochRequested(8, 3, epoch), now_ms + 1002)
    assert (begun.error, begun.leader_id) == (ErrorCode.INVALID_REQUEST, None)


def refused(core: QuorumCore, now_ms: float, *, leader_id: int = 2) -> None:
    failed = m.RequestFailed(leader_id, m.RequestKind.FETCH, awaited(core), refused=True)
    core.step(failed, now_ms)


def pre_vote(core: QuorumCore, epoch: int) -> bool:
    asked = m.VoteRequested(7, KEYS[3], epoch, OffsetAndEpoch(9, epoch), pre_vote=True)
    return next(e.granted for e in core.step(asked, 3) if isinstance(e, m.ReplyVote))


def test_a_leader_whose_port_is_closed_is_not_waited_for() -> None:
    """Kafka's followers wait for the fetch timeout. Only a pre-vote is sent earlier here."""
    core = core_of(1, 1, 2, 3)
    follow(core, 2, 4)
    answer(core, 2, 4, 2)
    assert not pre_vote(core, 4)
    core.step(m.RequestFailed(2, m.RequestKind.FETCH, awaited(core)), 2)
    assert not pre_vote(core, 4), "a connection that broke off says nothing"
    core.step(m.Tick(), 23)
    refused(core, 24)
    assert (core.role, core.epoch) == (Role.FOLLOWER, 4)
    assert pre_vote(core, 4), "it does not know any more that the leader lives"
    effects = core.step(m.Tick(), 24)
    assert (core.role, core.epoch) == (Role.PROSPECTIVE, 4)
    assert [e.pre_vote for e in effects if isinstance(e, m.SendVote)] == [True, True]


def test_a_port_that_stays_closed_to_one_follower_makes_it_wait_longer_each_time() -> None:
    """M17: the other voters fetch from the leader, so they refuse, and no epoch begins."""
    core = core_of(1, 1, 2, 3)
    follow(core, 2, 4)
    waited = []
    now_ms = 10.0
    for _ in range(9):
        refused(core, now_ms)
        begun_ms = now_ms
        while core.role is Role.FOLLOWER:
            deadline_ms = core.next_deadline_ms()
            assert deadline_ms is not None
            now_ms = max(now_ms, deadline_ms)
            core.step(m.Tick(), now_ms)
            if asks(core) and core.role is Role.FOLLOWER:
                refused(core, now_ms)
        waited.append(now_ms - begun_ms)
        for voter_id in (2, 3):
            core.step(m.VoteAnswered(voter_id, 4, 2, False, pre_vote=True), now_ms)
        assert (core.role, core.epoch) == (Role.FOLLOWER, 4)
    assert waited == [0, 20, 60, 140, 300, 620, 1260, 1980, 1980]
    answer(core, 2, 4, 2)
    refused(core, 50_000)
    core.step(m.Tick(), 50_000)
    assert core.role is Role.PROSPECTIVE, "it has heard of the leader since, and begins anew"


def test_observer_without_leader_queries_other_voters() -> None:
    core = core_of(4, 1, 2, 3)
    follow(core, 2, 4)
    refused(core, 2)
    core.step(m.Tick(), 2)
    assert core.role is Role.UNATTACHED


def test_a_log_of_an_epoch_before_the_leaders_snapshot_is_replaced() -> None:
    """The end of its epoch is not known any more; an answer by offset would be repeated forever."""
    core = core_of(1, 1, 2, 3, epochs=(1, 1, 3, 3))
    log = core._replica.log
    assert isinstance(log, ModelLog)
    log.snapshot(3)
    log.clean()
    win(core)
    append(core, "leader change")
    longer = fetch(core, KEYS[2], 40, 2)[-1]
    assert longer.snapshot == OffsetAndEpoch(3, 3) and longer.diverging is None


def test_15078_an_empty_follower_of_a_whole_log_loads_no_snapshot() -> None:
    core = core_of(1, 1, 2, 3, epochs=(1, 1, 1))
    log = core._replica.log
    assert isinstance(log, ModelLog)
    log.snapshots = [OffsetAndEpoch(0, 0)]
    win(core)
    reply = fetch(core, KEYS[2], 0, 0)[-1]
    assert reply.snapshot is None and reply.diverging is None


def test_a_leader_that_hangs_does_not_keep_a_replica_from_the_next_one() -> None:
    core = core_of(4, 1, 2, 3)
    answer(core, NOBODY, 3, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    hanging = awaited(core)
    effects = core.step(m.BeginEpochRequested(5, 3, 4), 2)
    sent = [effect for effect in effects if isinstance(effect, m.SendFetch)]
    assert [effect.to for effect in sent] == [3]
    late = m.FetchAnswered(hanging, 2, 3, 2, high_watermark=0, size_bytes=10)
    assert core.step(late, 3) == [] and core.awaits(sent[0].fetch_id)


def test_a_fetch_speaks_only_of_what_is_flushed() -> None:
    core = core_of(1, 1, 2, 3)
    follow(core, 2, 1)
    answer(core, 2, 1, 2, high_watermark=0, size_bytes=10)
    append(core, "not on the disk")
    effects = core.step(m.BeginEpochRequested(5, 3, 2), 2)
    assert not [effect for effect in effects if isinstance(effect, m.SendFetch)]
    effects = core.step(m.Flushed(1), 3)
    assert [e.fetch_offset for e in effects if isinstance(e, m.SendFetch)] == [1]


def test_candidates_do_not_wait_for_a_dead_voter() -> None:
    core = core_of(1, 1, 2, 3)
    core.step(m.Tick(), 1000)
    core.step(m.VoteAnswered(2, core.epoch, None, True, pre_vote=True), 1001)
    assert core.role is Role.CANDIDATE
    core.step(m.RequestFailed(3, m.RequestKind.VOTE, poll=(core.epoch, False)), 1002)
    core.step(m.VoteAnswered(2, core.epoch, None, False), 1003)
    deadline_ms = core._replica.state.deadline_ms  # type: ignore[union-attr]
    assert deadline_ms is not None and deadline_ms <= 1003 + 1 + 100


def test_a_non_voter_does_not_believe_for_long_in_a_leader_it_has_lost() -> None:
    """Other nodes may not know yet that it is gone; a repeated request returns the next leader."""
    core = core_of(4, 1, 2, 3)
    answer(core, NOBODY, 3, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert core.role is Role.OBSERVER
    core.step(m.Tick(), 2001)
    assert core.role is Role.UNATTACHED
    told = m.FetchAnswered(awaited(core), NOBODY, 3, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (fetch_again,) = [e for e in core.step(told, 2002) if isinstance(e, m.SendFetch)]
    assert fetch_again.to == 2 and not fetch_again.patient
    assert core.next_deadline_ms() == 2002 + 250
    core.step(m.Tick(), 2252)
    told = m.FetchAnswered(awaited(core), NOBODY, 4, 3, ErrorCode.FENCED_LEADER_EPOCH)
    (fetch_next,) = [e for e in core.step(told, 2253) if isinstance(e, m.SendFetch)]
    assert fetch_next.to == 3 and fetch_next.patient
    assert core.next_deadline_ms() == 2253 + 2000


def test_isolated_resigned_leader_does_not_follow_itself() -> None:
    core = core_of(1, 1, 2, 3)
    win(core)
    core.step(m.Tick(), 1002 + 3000)
    assert core.role is Role.RESIGNED
    core.step(m.Tick(), 6000)
    assert core.role is Role.PROSPECTIVE
    assert core.active_leader_id is None  # it would direct clients to itself
    for voter_id in (2, 3):
        core.step(m.RequestFailed(voter_id, m.RequestKind.VOTE, poll=(core.epoch, True)), 6001)
    assert core.role is Role.PROSPECTIVE
    deadline_ms = core._replica.state.deadline_ms  # type: ignore[union-attr]
    assert deadline_ms is not None and deadline_ms <= 6001 + 1 + 100
    core.step(m.Tick(), deadline_ms)
    assert core.role is Role.PROSPECTIVE
