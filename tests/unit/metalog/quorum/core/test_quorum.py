"""The core as a whole, one step at a time: exact effects in exact order."""

from __future__ import annotations

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.messages import QuorumState
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.replica import EPOCH_JUMP_MAX
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import ReplicaKey
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from testkit.memory.quorum_world import ModelLog
from tests.unit.metalog.quorum.core.cores import (
    KEYS,
    TIMING,
    ask_vote,
    elect,
    kinds,
    log_of,
    make,
    voters,
)


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


def test_an_epoch_in_the_log_that_the_state_file_never_saw_counts() -> None:
    core = make(1, (1,), log=log_of(3, 7), state=QuorumState(3))
    core.step(m.Start(), 0)
    assert core.epoch == 8


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
    """A single request with the last possible epoch would leave no epoch for an election."""
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    for asked in (
        lambda: ask_vote(core, 2, epoch, (9, 9))[-1].error,
        lambda: ask_vote(core, 2, epoch, (9, 9), pre_vote=True)[-1].error,
        lambda: core.step(m.BeginEpochRequested(6, 3, epoch), 2)[-1].error,
        lambda: core.step(m.EndEpochRequested(7, 3, epoch, ()), 2)[-1].error,
    ):
        assert asked() is ErrorCode.INVALID_REQUEST
    core.step(m.EpochAnswered(3, epoch, 3, begin=True, ok=True), 3)
    assert (core.epoch, core.leader_id) == (1, 2)
    assert ask_vote(core, 3, EPOCH_JUMP_MAX, (0, 0))[-1].error is ErrorCode.NONE


def test_negative_node_id_is_refused_as_leader_and_candidate() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    assert core.step(m.BeginEpochRequested(5, -1, 3), 1)[-1].error is ErrorCode.INVALID_REQUEST
    assert core.step(m.EndEpochRequested(5, -5, 3, ()), 1)[-1].error is ErrorCode.INVALID_REQUEST
    nobody = m.VoteRequested(6, ReplicaKey(-1), 3, m.OffsetAndEpoch(9, 9), False, None)
    assert core.step(nobody, 1)[-1].error is ErrorCode.INVALID_REQUEST
    assert (core.epoch, core.leader_id) == (0, None)


def test_unpersisted_state_is_an_invariant_violation() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    core.validate()
    for event, role in (
        (m.Tick(), Role.PROSPECTIVE),
        (m.VoteAnswered(3, 1, None, True, pre_vote=True), Role.CANDIDATE),
    ):
        core.step(event, 5000)
        assert core.role is role
        core.validate()
    core._replica.epoch += 1
    with pytest.raises(InvariantViolated, match="differs from memory"):
        core.validate()


def test_a_leader_that_has_resigned_waits_before_it_stands_again() -> None:
    core = make(1, (1, 2, 3), state=QuorumState(3, leader_id=1))
    core.step(m.Start(), 0)
    assert core.step(m.Tick(), 1) == [] and core.role is Role.RESIGNED
    core.step(m.Tick(), 1000)
    assert core.role is Role.PROSPECTIVE


def test_a_leader_that_has_left_the_voters_looks_for_another_one() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    elect(core)
    core.step(m.VotersChanged(voters(2, 3)), 1001)
    core.step(m.Resign(), 1002)
    effects = core.step(m.Tick(), 1002 + 2 * TIMING.election_timeout_ms)
    assert core.role is Role.UNATTACHED and "FindLeader" in kinds(effects)


def test_leader_follows_newer_leader_named_in_answer() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    elect(core)
    core.step(m.EpochAnswered(2, 9, 3, begin=True, ok=False), 1001)
    assert (core.role, core.epoch, core.leader_id) == (Role.FOLLOWER, 9, 3)


def test_failed_end_epoch_request_is_not_retried() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    assert core.step(m.RequestFailed(2, m.RequestKind.END_EPOCH), 1) == []
