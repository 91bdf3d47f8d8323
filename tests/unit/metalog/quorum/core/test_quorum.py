"""The core, one step at a time: exact effects in exact order."""

from __future__ import annotations

from typing import Any

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.messages import OffsetAndEpoch, QuorumState
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import EPOCH_JUMP_MAX, Timing
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import NOBODY, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from simulation.quorum_world import Entry, ModelLog, endpoints_of

KEYS = [ReplicaKey(i, bytes([i]) * 16) for i in range(5)]
TIMING = Timing(election_timeout_ms=1000, fetch_timeout_ms=2000)


def voters(*ids: int) -> VoterSet:
    return VoterSet(Voter(KEYS[i], endpoints_of(i)) for i in ids)


def make(
    node: int,
    ids: tuple[int, ...],
    *,
    log: ModelLog | None = None,
    state: QuorumState = QuorumState(),  # noqa: B008 - an immutable value
    voters_in_log: bool = True,
) -> QuorumCore:
    return QuorumCore(
        node=KEYS[node],
        log=log or ModelLog(),
        state=state,
        voters=voters(*ids),
        voters_in_log=voters_in_log,
        timing=TIMING,
        jitter=lambda bound: 0,
        addresses=Addresses(),
    )


def kinds(effects: list[Any]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def log_of(*epochs: int) -> ModelLog:
    log = ModelLog()
    log.entries = [Entry(epoch, i) for i, epoch in enumerate(epochs)]
    return log


# --- one voter --------------------------------------------------------------------------------


def test_a_sole_voter_leads_in_one_step_and_persists_before_it_acts() -> None:
    core = make(1, (1,), state=QuorumState(epoch=4))
    effects = core.step(m.Start(), 0)
    assert effects == [
        m.PersistState(QuorumState(5, None, KEYS[1])),
        m.PersistState(QuorumState(5, 1, None)),
        m.AppendLeaderChange(5, 1, (1,), (1,), write_voters=False),
        m.LeaderChanged(1, 5),
    ]
    core.validate()
    assert core.role is Role.LEADER and core.next_deadline_ms() is None


def test_a_sole_voter_shows_a_high_watermark_when_its_own_record_is_flushed() -> None:
    log = log_of(1, 1, 1)
    core = make(1, (1,), log=log, state=QuorumState(1, 1))
    core.step(m.Start(), 0)
    assert core.step(m.Flushed(3), 1) == []
    assert core.high_watermark is None
    log.entries.append(Entry(2, "leader change"))
    assert core.step(m.Flushed(4), 2) == [m.HighWatermarkAdvanced(4)]
    assert core.high_watermark == 4


def test_the_voters_of_the_formatting_are_written_by_the_first_leader() -> None:
    core = make(1, (1,), voters_in_log=False)
    (append,) = [e for e in core.step(m.Start(), 0) if isinstance(e, m.AppendLeaderChange)]
    assert append.write_voters


def test_an_epoch_in_the_log_that_the_state_file_never_saw_counts() -> None:
    core = make(1, (1,), log=log_of(3, 7), state=QuorumState(3))
    core.step(m.Start(), 0)
    assert core.epoch == 8


def test_a_sole_voter_is_not_resigned_by_check_quorum() -> None:
    core = make(1, (1,))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1e9)
    assert core.role is Role.LEADER


# --- several voters ---------------------------------------------------------------------------


def elect(core: QuorumCore, *, now_ms: float = 1000.0) -> list[Any]:
    """Time out and win both polls with the vote of node 2."""
    core.step(m.Tick(), now_ms)
    core.step(m.VoteAnswered(2, core.epoch, None, True, pre_vote=True), now_ms)
    return core.step(m.VoteAnswered(2, core.epoch, None, True), now_ms)


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


def test_a_leader_commits_by_majority_and_only_from_its_own_record_on() -> None:
    log = log_of(1)
    core = make(1, (1, 2, 3), log=log, state=QuorumState(1))
    core.step(m.Start(), 0)
    elect(core)
    log.entries += [Entry(2, "leader change"), Entry(2, "a")]
    assert core.step(m.Flushed(3), 1001) == []
    fetched = core.step(m.FetchAsked(7, KEYS[2], 2, 1, 1), 1002)
    assert kinds(fetched) == ["ReplyFetch"] and core.high_watermark is None
    fetched = core.step(m.FetchAsked(8, KEYS[2], 2, 2, 2), 1003)
    assert fetched[0] == m.HighWatermarkAdvanced(2)


def test_an_observer_does_not_move_the_high_watermark() -> None:
    log = ModelLog()
    core = make(1, (1, 2, 3), log=log)
    core.step(m.Start(), 0)
    elect(core)
    log.entries.append(Entry(1, "leader change"))
    core.step(m.Flushed(1), 1001)
    assert kinds(core.step(m.FetchAsked(7, KEYS[4], 1, 1, 1), 1002)) == ["ReplyFetch"]
    stranger = ReplicaKey(2, b"?" * 16)
    assert kinds(core.step(m.FetchAsked(8, stranger, 1, 1, 1), 1003)) == ["ReplyFetch"]
    assert core.high_watermark is None


def test_a_leader_that_no_majority_fetches_from_resigns() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    elect(core)
    core.step(m.FetchAsked(7, KEYS[2], 1, 0, 0), 2000)
    assert core.step(m.Tick(), 4000)[0] == m.SendBeginEpoch(3, 1)
    assert core.role is Role.LEADER
    effects = core.step(m.Tick(), 5000)
    assert core.role is Role.RESIGNED
    assert effects[-1] == m.LeaderChanged(None, 1)
    assert core.leader_id == 1


WIPED = ReplicaKey(4, b"?" * 16)
"""Voter 4 after a new disk: not that voter any more (M15)."""


@pytest.mark.parametrize(
    ("fetching", "stays"),
    [
        ([KEYS[2], KEYS[3]], True),
        ([KEYS[2]], False),
        ([KEYS[2], KEYS[1]], False),
        ([KEYS[2], ReplicaKey(9, b"o" * 16), ReplicaKey(-1)], False),
        ([KEYS[2], WIPED], False),
    ],
)
def test_a_leader_of_five_needs_two_other_voters_to_stay(
    fetching: list[ReplicaKey], stays: bool
) -> None:
    """M17: it counts each voter once, itself, and nobody else; no later than 1.5 x the fetch
    timeout after the last majority it resigns."""
    core = make(1, (0, 1, 2, 3, 4))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    for pre_vote in (True, False):
        for other in (2, 3):
            core.step(m.VoteAnswered(other, core.epoch, None, True, pre_vote=pre_vote), 1000)
    assert core.role is Role.LEADER
    for now_ms in range(1500, 4000, 500):
        for key in fetching:
            core.step(m.FetchAsked(7, key, 1, 0, 0), now_ms)
        core.step(m.Tick(), now_ms)
        assert core.role is Role.LEADER
    core.step(m.Tick(), 4000)
    assert core.role is (Role.LEADER if stays else Role.RESIGNED)
    if stays:
        core.step(m.Tick(), 3500 + 2999)
        assert core.role is Role.LEADER
        core.step(m.Tick(), 3500 + 3000)
        assert core.role is Role.RESIGNED


def test_a_restarted_leader_does_not_vote_or_lead_in_its_epoch() -> None:
    core = make(1, (1, 2, 3), state=QuorumState(3, leader_id=1))
    core.step(m.Start(), 0)
    assert core.role is Role.RESIGNED
    reply = core.step(m.VoteAsked(9, KEYS[2], 3, OffsetAndEpoch(9, 9)), 1)[-1]
    assert isinstance(reply, m.ReplyVote) and not reply.granted


def ask_vote(core: QuorumCore, who: int, epoch: int, last: tuple[int, int], **kwargs: Any) -> Any:
    return core.step(m.VoteAsked(9, KEYS[who], epoch, OffsetAndEpoch(*last), **kwargs), 1)


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
    other_disk = m.VoteAsked(9, ReplicaKey(2, b"?" * 16), 1, OffsetAndEpoch(0, 0))
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


def test_a_follower_that_hears_its_leader_refuses_pre_votes() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochAsked(5, 2, 1), 1)
    assert core.role is Role.FOLLOWER
    assert ask_vote(core, 3, 1, (0, 0), pre_vote=True)[-1].granted
    core.step(answered(core, 2, 1, 2, high_watermark=0), 2)
    assert not ask_vote(core, 3, 1, (0, 0), pre_vote=True)[-1].granted
    assert core.leader_id == 2


def test_a_prospective_that_loses_goes_back_to_its_leader_in_its_epoch() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochAsked(5, 2, 1), 1)
    core.step(m.Tick(), 2001)
    assert core.role is Role.PROSPECTIVE and core.epoch == 1
    core.step(m.VoteAnswered(3, 1, 2, False, pre_vote=True), 2002)
    core.step(m.VoteAnswered(2, 1, 2, False, pre_vote=True), 2003)
    assert core.role is Role.FOLLOWER and core.epoch == 1


def answered(core: QuorumCore, node_id: int, *facts: Any, **more: Any) -> m.FetchAnswered:
    """The answer to the fetch that the core waits for."""
    awaited = next(number for number in range(100) if core.awaits(number))
    return m.FetchAnswered(awaited, node_id, *facts, **more)


def follower(log: ModelLog) -> QuorumCore:
    core = make(1, (1, 2, 3), log=log, state=QuorumState(log.last_epoch))
    core.step(m.Start(), 0)
    core.step(answered(core, NOBODY, core.epoch + 1, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER), 1)
    assert core.role is Role.FOLLOWER
    return core


def test_a_follower_fetches_again_only_when_flushed() -> None:
    log = ModelLog()
    core = follower(log)
    effects = core.step(answered(core, 2, 1, 2, high_watermark=2, size_bytes=10), 2)
    assert effects == [m.AppendFetched(2)]
    log.entries += [Entry(1, "a"), Entry(1, "b"), Entry(1, "c")]
    assert core.step(m.Flushed(3), 3) == [
        m.HighWatermarkAdvanced(2),
        m.SendFetch(3, 2, 1, 3, 1),
    ]


def test_a_follower_truncates_to_where_the_logs_part() -> None:
    log = log_of(1, 1, 2, 2)
    core = follower(log)
    effects = core.step(answered(core, 2, 3, 2, diverging=OffsetAndEpoch(3, 1)), 2)
    assert effects == [m.TruncateLog(2)]
    log.entries = log.entries[:2]
    assert core.step(m.LogTruncated(), 3) == [m.SendFetch(3, 2, 3, 2, 1)]


def test_truncation_below_the_high_watermark_is_fatal() -> None:
    log = log_of(1, 1, 2, 2)
    core = follower(log)
    core.step(answered(core, 2, 3, 2, high_watermark=3), 2)
    assert core.high_watermark == 3
    with pytest.raises(InvariantViolated, match="below the high watermark 3"):
        core.step(answered(core, 2, 3, 2, diverging=OffsetAndEpoch(2, 1)), 3)


def test_a_fetch_is_checked_against_epoch_and_log() -> None:
    log = log_of(1, 1)
    core = make(1, (1, 2, 3), log=log, state=QuorumState(1))
    core.step(m.Start(), 0)
    elect(core)
    log.entries += [Entry(2, "leader change")]

    def fetch(epoch: int, offset: int, last_epoch: int) -> m.ReplyFetch:
        reply = core.step(m.FetchAsked(7, KEYS[2], epoch, offset, last_epoch), 1001)[-1]
        assert isinstance(reply, m.ReplyFetch)
        return reply

    assert fetch(1, 0, 0).error is ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(3, 0, 0).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(2, 3, 1).diverging == OffsetAndEpoch(2, 1)
    assert fetch(2, 4, 2).diverging == OffsetAndEpoch(3, 2)
    assert fetch(2, 2, 1).diverging is None
    assert core.replicas[KEYS[2]].end_offset == 2


def test_fetching_from_a_standby_is_refused() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    reply = core.step(m.FetchAsked(7, KEYS[2], 0, 0, 0), 1)[-1]
    assert isinstance(reply, m.ReplyFetch)
    assert reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_preferred_successor_of_a_leader_that_left_tries_at_once() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochAsked(5, 2, 1), 1)
    core.step(m.EndEpochAsked(6, 2, 1, (KEYS[1], KEYS[3])), 10)
    assert core.next_deadline_ms() == 10
    core.step(m.Tick(), 10)
    assert core.role is Role.PROSPECTIVE


def test_an_observer_follows_and_never_stands() -> None:
    core = make(4, (1, 2, 3))
    assert kinds(core.step(m.Start(), 0))[0] == "FindLeader"
    core.step(answered(core, NOBODY, 3, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER), 1)
    assert core.role is Role.OBSERVER
    core.step(m.Tick(), 2001)
    assert core.role is Role.UNATTACHED
    core.validate()


def test_a_node_becomes_a_voter_by_the_log() -> None:
    core = make(4, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(answered(core, NOBODY, 3, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER), 1)
    core.step(m.VotersChanged(voters(1, 2, 3, 4)), 2)
    assert core.role is Role.FOLLOWER
    core.step(m.VotersChanged(voters(1, 2, 3)), 3)
    assert core.role is Role.OBSERVER


def test_a_wiped_voter_is_an_observer() -> None:
    wiped = QuorumCore(
        node=ReplicaKey(1, b"new" + bytes(13)),
        log=ModelLog(),
        state=QuorumState(),
        voters=voters(1, 2, 3),
        voters_in_log=True,
        timing=TIMING,
        jitter=lambda bound: 0,
        addresses=Addresses(),
    )
    wiped.step(m.Start(), 0)
    assert not wiped.is_voter
    wiped.step(m.Tick(), 1e6)
    assert wiped.role is Role.UNATTACHED and wiped.epoch == 0


@pytest.mark.parametrize("epoch", [EPOCH_JUMP_MAX + 2, 2**31 - 1])
def test_an_epoch_that_no_election_leads_to_is_not_believed(epoch: int) -> None:
    """One request with the last epoch there is would leave none for an election."""
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochAsked(5, 2, 1), 1)
    for asked in (
        lambda: ask_vote(core, 2, epoch, (9, 9))[-1].error,
        lambda: ask_vote(core, 2, epoch, (9, 9), pre_vote=True)[-1].error,
        lambda: core.step(m.BeginEpochAsked(6, 3, epoch), 2)[-1].error,
        lambda: core.step(m.EndEpochAsked(7, 3, epoch, ()), 2)[-1].error,
    ):
        assert asked() is ErrorCode.INVALID_REQUEST
    core.step(m.EpochAnswered(3, epoch, 3, begin=True, ok=True), 3)
    assert (core.epoch, core.leader_id) == (1, 2)
    assert ask_vote(core, 3, EPOCH_JUMP_MAX, (0, 0))[-1].error is ErrorCode.NONE


def test_nobody_with_a_negative_id_leads_or_is_voted_for() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    assert core.step(m.BeginEpochAsked(5, -1, 3), 1)[-1].error is ErrorCode.INVALID_REQUEST
    assert core.step(m.EndEpochAsked(5, -5, 3, ()), 1)[-1].error is ErrorCode.INVALID_REQUEST
    nobody = m.VoteAsked(6, ReplicaKey(-1), 3, m.OffsetAndEpoch(9, 9), False, None)
    assert core.step(nobody, 1)[-1].error is ErrorCode.INVALID_REQUEST
    assert (core.epoch, core.leader_id) == (0, None)


def test_the_pause_grows_while_a_full_disk_takes_no_snapshot() -> None:
    """It begins again after one that was taken, and no failure of another kind waits."""
    core, now_ms = follower(ModelLog()), 0.0

    def pause_ms(*, not_stored: bool) -> float:
        """What passes between the failure of a snapshot and the next fetch."""
        nonlocal now_ms
        event = answered(core, 2, 1, 2, snapshot=OffsetAndEpoch(9, 1))
        core.step(event, now_ms)
        kind = m.RequestKind.FETCH_SNAPSHOT
        failed = m.RequestFailed(2, kind, event.fetch_id, not_stored=not_stored)
        assert core.step(failed, now_ms) == []
        failed_ms, deadline_ms = now_ms, core.next_deadline_ms()
        assert deadline_ms is not None
        now_ms = deadline_ms
        assert kinds(core.step(m.Tick(), now_ms)) == ["SendFetch"]
        return now_ms - failed_ms

    first, longest = TIMING.retry_backoff_ms, TIMING.fetch_timeout_ms / 2
    grown = [min(first * 2**n, longest) for n in range(30)]
    assert [pause_ms(not_stored=True) for _ in range(30)] == grown
    assert pause_ms(not_stored=False) == first
    event = answered(core, 2, 1, 2, snapshot=OffsetAndEpoch(9, 1))
    core.step(event, now_ms)
    core.step(m.SnapshotInstalled(event.fetch_id, OffsetAndEpoch(9, 1)), now_ms)
    assert [pause_ms(not_stored=True) for _ in range(2)] == [first, 2 * first]


def test_a_leader_says_whose_port_is_closed() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    failed = m.RequestFailed(3, m.RequestKind.BEGIN_EPOCH, refused=True)
    assert core.step(failed, 1) == [], "it leads no epoch that it could have told of"
    elect(core)
    assert core.step(failed, 1001) == [m.VoterGone(3)]
    assert core.step(failed._replace(refused=False), 1002) == []
