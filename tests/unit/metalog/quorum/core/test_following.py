"""A follower, one step at a time: exact effects in exact order."""

from __future__ import annotations

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.messages import OffsetAndEpoch
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import NOBODY, ReplicaKey, VoterEndpoint
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from testkit.memory.quorum_world import Entry, ModelLog
from tests.unit.metalog.quorum.core.cores import (
    KEYS,
    TIMING,
    answered,
    follower,
    kinds,
    log_of,
    make,
    voters,
)


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


def test_the_preferred_successor_of_a_leader_that_left_tries_at_once() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    core.step(m.EndEpochRequested(6, 2, 1, (KEYS[1], KEYS[3])), 10)
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


def test_the_pause_grows_while_a_full_disk_takes_no_snapshot() -> None:
    """The backoff starts again after a stored snapshot, and other failures do not use it."""
    core, now_ms = follower(ModelLog()), 0.0

    def pause_ms(*, not_stored: bool) -> float:
        """Return the time in ms between a failed snapshot and the next fetch."""
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


def test_a_voter_gives_a_leader_that_was_lost_the_whole_fetch_timeout() -> None:
    """An observer that other nodes direct to its lost leader waits less."""
    core = make(1, (2, 3))
    core.step(m.Start(), 0)

    def found(now_ms: float) -> float | None:
        core.step(answered(core, NOBODY, 3, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
        return core.next_deadline_ms()

    assert found(1) == 2001
    core.step(m.Tick(), 2001)
    assert found(2002) == 2252
    core.step(m.Tick(), 2252)
    core.step(m.VotersChanged(voters(1, 2, 3)), 2253)
    assert found(2254) == 4254 and core.role is Role.FOLLOWER


def test_begin_epoch_updates_endpoint_and_refuses_wrong_directory() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    wrong = m.BeginEpochRequested(5, 2, 1, (), ReplicaKey(1, b"?" * 16))
    assert core.step(wrong, 1)[-1] == m.ReplyEpoch(5, ErrorCode.INVALID_VOTER_KEY, 0, None)
    core.step(m.BeginEpochRequested(6, 2, 1), 2)
    moved = VoterEndpoint("elsewhere", 9)
    core.step(m.BeginEpochRequested(7, 2, 1, (("CONTROLLER", moved),)), 3)
    assert core.endpoint_of(2) == moved


@pytest.mark.parametrize(("preferred", "rank"), [((), 0), ((KEYS[3], KEYS[1]), 1), ((KEYS[3],), 1)])
def test_the_others_try_in_turn_when_a_leader_has_left(
    preferred: tuple[ReplicaKey, ...], rank: int
) -> None:
    """This also holds in an epoch that the voter did not know."""
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.EndEpochRequested(6, 2, 4, preferred), 10)
    assert (core.epoch, core.leader_id) == (4, 2)
    assert core.next_deadline_ms() == 10 + TIMING.retry_backoff_ms * 2**rank


def test_an_observer_does_not_stand_when_a_leader_has_left() -> None:
    core = make(4, (1, 2, 3))
    core.step(m.Start(), 0)
    core.step(m.BeginEpochRequested(5, 2, 1), 1)
    deadline_ms = core.next_deadline_ms()
    core.step(m.EndEpochRequested(6, 2, 1, (KEYS[4],)), 2)
    assert core.role is Role.OBSERVER and core.next_deadline_ms() == deadline_ms


def test_a_follower_without_the_epoch_of_the_leader_truncates_to_its_own_earlier_one() -> None:
    core = follower(log_of(1, 1, 3))
    effects = core.step(answered(core, 2, 4, 2, diverging=OffsetAndEpoch(5, 2)), 2)
    assert effects == [m.TruncateLog(2)]


def test_a_snapshot_that_is_there_when_the_leader_has_gone_is_no_reason_to_fetch() -> None:
    log = log_of(1, 1)
    core = follower(log)
    event = answered(core, 2, 2, 2, snapshot=OffsetAndEpoch(2, 1))
    core.step(event, 2)
    core.step(m.VoteRequested(9, KEYS[3], 7, OffsetAndEpoch(9, 1)), 3)
    assert core.role is Role.UNATTACHED
    installed = core.step(m.SnapshotInstalled(event.fetch_id, OffsetAndEpoch(2, 1)), 4)
    assert installed == [m.HighWatermarkAdvanced(2)]


def test_one_fetch_is_under_way_at_a_time() -> None:
    core = follower(log_of(1))
    assert core.step(m.LogTruncated(), 2) == []
