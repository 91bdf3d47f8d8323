"""Elections, one step at a time: exact effects in exact order."""

from __future__ import annotations

from metalog.quorum.core import messages as m
from metalog.quorum.core.messages import OffsetAndEpoch, QuorumState
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import ReplicaKey
from protocol.errors import ErrorCode
from tests.unit.metalog.quorum.core.cores import (
    KEYS,
    answered,
    ask_vote,
    kinds,
    log_of,
    make,
    voters,
)


def test_an_election_goes_through_pre_vote_and_vote() -> None:
    core = make(1, (1, 2, 3), state=QuorumState(epoch=4))
    assert kinds(core.step(m.Start(), 0)) == ["FindLeader", "LeaderChanged"]
    assert core.next_deadline_ms() == 1000.0
    asked = core.step(m.Tick(), 1000)
    assert asked == [
        m.SendVote(2, 4, OffsetAndEpoch(0, 0), pre_vote=True),
        m.SendVote(3, 4, OffsetAndEpoch(0, 0), pre_vote=True),
    ]
    voted = core.step(m.VoteAnswered(3, 4, None, True, pre_vote=True), 1001)
    assert voted[0] == m.PersistState(QuorumState(5, None, KEYS[1]))
    assert voted[1:] == [
        m.SendVote(2, 5, OffsetAndEpoch(0, 0), pre_vote=False),
        m.SendVote(3, 5, OffsetAndEpoch(0, 0), pre_vote=False),
    ]
    won = core.step(m.VoteAnswered(2, 5, None, True), 1002)
    assert kinds(won) == [
        "PersistState",
        "AppendLeaderChange",
        "SendBeginEpoch",
        "SendBeginEpoch",
        "LeaderChanged",
    ]
    assert won[1] == m.AppendLeaderChange(5, 1, (1, 2, 3), (1, 2), write_voters=False)


def test_a_late_pre_vote_does_not_count_as_a_vote() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    core.step(m.VoteAnswered(2, 0, None, True, pre_vote=True), 1001)
    assert core.step(m.VoteAnswered(3, 1, None, True, pre_vote=True), 1002) == []
    assert core.role is Role.CANDIDATE


def test_a_restarted_leader_does_not_vote_or_lead_in_its_epoch() -> None:
    core = make(1, (1, 2, 3), state=QuorumState(3, leader_id=1))
    core.step(m.Start(), 0)
    assert core.role is Role.RESIGNED
    reply = core.step(m.VoteRequested(9, KEYS[2], 3, OffsetAndEpoch(9, 9)), 1)[-1]
    assert isinstance(reply, m.ReplyVote) and not reply.granted


def test_a_vote_is_persisted_before_the_answer_and_given_once_per_epoch() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    effects = ask_vote(core, 2, 1, (0, 0))
    order = kinds(effects)
    assert effects[-1] == m.ReplyVote(9, ErrorCode.NONE, 1, None, True)
    persisted = [e.state for e in effects if isinstance(e, m.PersistState)]
    assert persisted[-1] == QuorumState(1, None, KEYS[2])
    assert order.index("ReplyVote") > max(i for i, k in enumerate(order) if k == "PersistState")
    assert ask_vote(core, 2, 1, (0, 0))[-1].granted
    assert not ask_vote(core, 3, 1, (0, 0))[-1].granted
    other_disk = m.VoteRequested(9, ReplicaKey(2, b"?" * 16), 1, OffsetAndEpoch(0, 0))
    assert not core.step(other_disk, 2)[-1].granted  # type: ignore[union-attr]


def test_a_shorter_log_gets_no_vote() -> None:
    core = make(1, (1, 2, 3), log=log_of(1, 2), state=QuorumState(2))
    core.step(m.Start(), 0)
    assert not ask_vote(core, 2, 3, (1, 2))[-1].granted
    assert not ask_vote(core, 2, 4, (9, 1))[-1].granted
    assert ask_vote(core, 2, 5, (2, 2))[-1].granted


def test_an_old_epoch_and_a_wrong_voter_get_errors() -> None:
    core = make(1, (1, 2, 3), state=QuorumState(5))
    core.step(m.Start(), 0)
    assert ask_vote(core, 2, 4, (0, 0))[-1].error is ErrorCode.FENCED_LEADER_EPOCH
    wrong = ask_vote(core, 2, 6, (0, 0), voter=ReplicaKey(1, b"?" * 16))[-1]
    assert wrong.error is ErrorCode.INVALID_VOTER_KEY and core.epoch == 5


def test_follower_in_contact_with_leader_refuses_pre_votes() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    assert core.role is Role.FOLLOWER
    assert ask_vote(core, 3, 1, (0, 0), pre_vote=True)[-1].granted
    core.step(answered(core, 2, 1, 2, high_watermark=0), 2)
    assert not ask_vote(core, 3, 1, (0, 0), pre_vote=True)[-1].granted
    assert core.leader_id == 2


def test_a_prospective_that_loses_goes_back_to_its_leader_in_its_epoch() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    core.step(m.Tick(), 2001)
    assert core.role is Role.PROSPECTIVE and core.epoch == 1
    core.step(m.VoteAnswered(3, 1, 2, False, pre_vote=True), 2002)
    core.step(m.VoteAnswered(2, 1, 2, False, pre_vote=True), 2003)
    assert core.role is Role.FOLLOWER and core.epoch == 1


def test_candidate_counts_each_voter_once_and_no_non_voter() -> None:
    core = make(1, (0, 1, 2, 3, 4))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    for voter, granted in ((2, True), (2, True), (2, False), (9, True)):
        core.step(m.VoteAnswered(voter, 0, None, granted, pre_vote=True), 1001)
        assert core.role is Role.PROSPECTIVE
    core.step(m.VoteAnswered(3, 0, None, True, pre_vote=True), 1002)
    assert core.role is Role.CANDIDATE


def test_a_request_for_a_vote_that_fails_late_is_not_sent_again() -> None:
    """A voter that has answered gets no second request, and none is sent once the election is
    over."""
    failed = m.RequestFailed(2, m.RequestKind.VOTE, poll=(0, True))
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    core.step(m.VoteAnswered(2, 0, None, False, pre_vote=True), 1001)
    deadline_ms = core.next_deadline_ms()
    assert core.step(failed, 1002) == [] and core.next_deadline_ms() == deadline_ms
    core.step(m.BeginEpochRequested(5, 3, 1), 1003)
    deadline_ms = core.next_deadline_ms()
    assert core.step(failed, 1004) == [] and core.next_deadline_ms() == deadline_ms


def test_failed_vote_of_an_earlier_election_leaves_the_next_one_undecided() -> None:
    """The pre-vote request to voter 3 times out when its vote may still arrive."""
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    core.step(m.VoteAnswered(2, 0, None, True, pre_vote=True), 1001)
    assert core.role is Role.CANDIDATE and core.epoch == 1
    deadline_ms = core.next_deadline_ms()
    core.step(m.RequestFailed(3, m.RequestKind.VOTE, poll=(0, True)), 1002)
    core.step(m.VoteAnswered(2, 1, None, False), 1003)
    assert core.next_deadline_ms() == deadline_ms
    core.step(m.RequestFailed(3, m.RequestKind.VOTE, poll=(1, False)), 1004)
    assert core.next_deadline_ms() != deadline_ms


def test_removed_voter_abandons_election() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    core.step(m.VotersChanged(voters(1, 2, 3, 4)), 1001)
    assert core.role is Role.PROSPECTIVE
    effects = core.step(m.VotersChanged(voters(2, 3)), 1002)
    assert core.role is Role.UNATTACHED and "FindLeader" in kinds(effects)
    core.step(m.VoteAnswered(2, 0, None, True, pre_vote=True), 1003)
    assert core.role is Role.UNATTACHED


def test_a_shorter_log_gets_no_pre_vote_either() -> None:
    core = make(1, (1, 2, 3), log=log_of(1, 2), state=QuorumState(2))
    core.step(m.Start(), 0)
    assert not ask_vote(core, 2, 2, (1, 2), pre_vote=True)[-1].granted
    assert ask_vote(core, 2, 2, (2, 2), pre_vote=True)[-1].granted


def test_replica_that_knows_leader_of_epoch_refuses_votes_in_it() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    assert not ask_vote(core, 3, 1, (9, 1))[-1].granted
    assert core.voted is None
    core.step(m.Tick(), 2001)
    assert core.role is Role.PROSPECTIVE
    assert not ask_vote(core, 3, 1, (9, 1))[-1].granted, "the leader of the epoch is known"
    assert core.voted is None
    assert ask_vote(core, 3, 2, (9, 1))[-1].granted
    assert core.voted == KEYS[3]
