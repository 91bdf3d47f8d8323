"""A leader, one step at a time: exact effects in exact order."""

from __future__ import annotations

import pytest

from metalog.quorum.core import messages as m
from metalog.quorum.core.discovery import Addresses
from metalog.quorum.core.leading import (
    CHECK_QUORUM_FACTOR,
    OBSERVER_FORGOTTEN_MS,
    OBSERVERS_MAX,
)
from metalog.quorum.core.messages import OffsetAndEpoch, QuorumState
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.roles import Role
from metalog.quorum.core.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from testkit.memory.quorum_world import Entry, ModelLog, endpoints_of
from tests.unit.metalog.quorum.core.cores import (
    KEYS,
    TIMING,
    elect,
    kinds,
    log_of,
    make,
    voters,
)


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


def test_a_sole_voter_is_not_resigned_by_check_quorum() -> None:
    core = make(1, (1,))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1e9)
    assert core.role is Role.LEADER


def test_a_leader_commits_by_majority_and_only_from_its_own_record_on() -> None:
    log = log_of(1)
    core = make(1, (1, 2, 3), log=log, state=QuorumState(1))
    core.step(m.Start(), 0)
    elect(core)
    log.entries += [Entry(2, "leader change"), Entry(2, "a")]
    assert core.step(m.Flushed(3), 1001) == []
    fetched = core.step(m.FetchRequested(7, KEYS[2], 2, 1, 1), 1002)
    assert kinds(fetched) == ["ReplyFetch"] and core.high_watermark is None
    fetched = core.step(m.FetchRequested(8, KEYS[2], 2, 2, 2), 1003)
    assert fetched[0] == m.HighWatermarkAdvanced(2)


def test_an_observer_does_not_move_the_high_watermark() -> None:
    log = ModelLog()
    core = make(1, (1, 2, 3), log=log)
    core.step(m.Start(), 0)
    elect(core)
    log.entries.append(Entry(1, "leader change"))
    core.step(m.Flushed(1), 1001)
    assert kinds(core.step(m.FetchRequested(7, KEYS[4], 1, 1, 1), 1002)) == ["ReplyFetch"]
    stranger = ReplicaKey(2, b"?" * 16)
    assert kinds(core.step(m.FetchRequested(8, stranger, 1, 1, 1), 1003)) == ["ReplyFetch"]
    assert core.high_watermark is None


def test_a_leader_that_no_majority_fetches_from_resigns() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    elect(core)
    core.step(m.FetchRequested(7, KEYS[2], 1, 0, 0), 2000)
    assert core.step(m.Tick(), 4000)[0] == m.SendBeginEpoch(3, 1)
    assert core.role is Role.LEADER
    effects = core.step(m.Tick(), 5000)
    assert core.role is Role.RESIGNED
    assert effects[-1] == m.LeaderChanged(None, 1)
    assert core.leader_id == 1


WIPED = ReplicaKey(4, b"?" * 16)
"""Voter 4 with a new disk is not that voter any more (M15)."""


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
    """M17: the leader counts itself and each other voter once, and no other node.

    It resigns at most 1.5 fetch timeouts after the last majority.
    """
    core = make(1, (0, 1, 2, 3, 4))
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    for pre_vote in (True, False):
        for other in (2, 3):
            core.step(m.VoteAnswered(other, core.epoch, None, True, pre_vote=pre_vote), 1000)
    assert core.role is Role.LEADER
    for now_ms in range(1500, 4000, 500):
        for key in fetching:
            core.step(m.FetchRequested(7, key, 1, 0, 0), now_ms)
        core.step(m.Tick(), now_ms)
        assert core.role is Role.LEADER
    core.step(m.Tick(), 4000)
    assert core.role is (Role.LEADER if stays else Role.RESIGNED)
    if stays:
        core.step(m.Tick(), 3500 + 2999)
        assert core.role is Role.LEADER
        core.step(m.Tick(), 3500 + 3000)
        assert core.role is Role.RESIGNED


def test_a_fetch_is_checked_against_epoch_and_log() -> None:
    log = log_of(1, 1)
    core = make(1, (1, 2, 3), log=log, state=QuorumState(1))
    core.step(m.Start(), 0)
    elect(core)
    log.entries += [Entry(2, "leader change")]

    def fetch(epoch: int, offset: int, last_epoch: int) -> m.ReplyFetch:
        reply = core.step(m.FetchRequested(7, KEYS[2], epoch, offset, last_epoch), 1001)[-1]
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
    reply = core.step(m.FetchRequested(7, KEYS[2], 0, 0, 0), 1)[-1]
    assert isinstance(reply, m.ReplyFetch)
    assert reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_leader_reports_voter_with_closed_port() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    failed = m.RequestFailed(3, m.RequestKind.BEGIN_EPOCH, refused=True)
    assert core.step(failed, 1) == [], "it leads no epoch that it could have told of"
    elect(core)
    assert core.step(failed, 1001) == [m.VoterGone(3)]
    assert core.step(failed._replace(refused=False), 1002) == []


def test_non_leader_ignores_fetch_of_snapshot() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    assert core.step(m.SnapshotRequested(KEYS[3]), 1) == []


def test_leader_has_check_quorum_deadline_only_with_other_voters() -> None:
    core = make(1, (1,))
    core.step(m.Start(), 0)
    deadlines = []
    for now_ms, ids in ((10, (1, 2)), (20, (1, 2, 3)), (30, (1,))):
        core.step(m.VotersChanged(voters(*ids)), now_ms)
        deadlines.append(core.next_deadline_ms())
    first_ms = 10 + TIMING.fetch_timeout_ms * CHECK_QUORUM_FACTOR
    assert deadlines == [first_ms, first_ms, None]


def test_an_observer_that_fetches_no_more_is_forgotten_and_a_voter_is_not() -> None:
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    elect(core)
    for now_ms, key in ((1001, KEYS[4]), (1001, KEYS[3]), (OBSERVER_FORGOTTEN_MS + 2000, KEYS[0])):
        core.step(m.FetchRequested(7, key, core.epoch, 0, 0), now_ms)
    assert set(core.replicas) == {KEYS[3], KEYS[0]}


def test_observers_beyond_the_limit_take_the_place_of_those_that_fetched_before_them() -> None:
    """A fetch may name any id; no voter is dropped for an observer."""
    core = make(1, (1, 2, 3))
    core.step(m.Start(), 0)
    elect(core)
    core.step(m.FetchRequested(7, KEYS[3], core.epoch, 0, 0), 1001)
    for number in range(OBSERVERS_MAX + 5):
        key = ReplicaKey(100 + number, b"o" * 16)
        core.step(m.FetchRequested(7, key, core.epoch, 0, 0), 1002 + number)
    observers = {key.id for key in core.replicas} - {3}
    assert observers == set(range(105, 105 + OBSERVERS_MAX)) and KEYS[3] in core.replicas


def static_leader(log: ModelLog) -> QuorumCore:
    """Return the leader of five static voters without known directories, with the records of
    `log`."""
    ids = range(1, 6)
    core = QuorumCore(
        node=ReplicaKey(1, b"1" * 16),
        log=log,
        state=QuorumState(),
        voters=VoterSet(Voter(ReplicaKey(i), endpoints_of(i)) for i in ids),
        voters_in_log=True,
        timing=TIMING,
        jitter=lambda bound: 0,
        addresses=Addresses(),
    )
    core.step(m.Start(), 0)
    core.step(m.Tick(), 1000)
    for pre_vote in (True, False):
        for other in (2, 3):
            core.step(m.VoteAnswered(other, core.epoch, None, True, pre_vote=pre_vote), 1000)
    assert core.role is Role.LEADER
    return core


def fetch_of(core: QuorumCore, node_id: int, directory: bytes, offset: int) -> m.ReplyFetch:
    key = ReplicaKey(node_id, directory * 16)
    epoch = core.epoch if offset else 0
    reply = core.step(m.FetchRequested(7, key, core.epoch, offset, epoch), 1001)[-1]
    assert isinstance(reply, m.ReplyFetch)
    return reply


def static_leader_of_ten() -> tuple[QuorumCore, ModelLog]:
    log = ModelLog()
    core = static_leader(log)
    log.entries += [Entry(1, number) for number in range(10)]
    core.step(m.Flushed(10), 1001)
    return core, log


@pytest.mark.parametrize("offset", [0, 4], ids=["empty", "fetching again"])
def test_a_static_voter_on_another_disk_counts_with_that_disk(offset: int) -> None:
    """M8: ten entries on the leader's and one other disk are not on three of five."""
    core, _ = static_leader_of_ten()
    fetch_of(core, 2, b"a", 10)
    fetch_of(core, 3, b"c", 5)
    assert core.high_watermark == 5
    fetch_of(core, 2, b"b", 0)
    fetch_of(core, 2, b"b", offset)
    fetch_of(core, 3, b"c", 10)
    assert core.high_watermark == 5
    assert {key.directory_id[:1] for key in core.replicas if key.id == 2} == {b"b"}
    fetch_of(core, 2, b"b", 8)
    assert core.high_watermark == 8


def test_a_late_fetch_of_a_replaced_disk_does_not_count_for_the_disk_that_is_there() -> None:
    """M8: a request of the process before may arrive after the new one's."""
    core, _ = static_leader_of_ten()
    fetch_of(core, 2, b"a", 9)
    fetch_of(core, 2, b"b", 0)
    fetch_of(core, 2, b"a", 10)
    fetch_of(core, 3, b"c", 10)
    assert core.high_watermark is None
    fetch_of(core, 2, b"b", 3)
    fetch_of(core, 2, b"b", 3)
    assert core.high_watermark == 3


@pytest.mark.parametrize("directory", [b"a", b"b"], ids=["the same directory", "another one"])
@pytest.mark.parametrize("cleaned", [False, True], ids=["diverging", "snapshot"])
def test_a_voter_whose_position_is_not_in_the_log_counts_with_nothing(
    directory: bytes, cleaned: bool
) -> None:
    """M8: an answer with a snapshot or an earlier offset shows that the voter's records are
    gone."""
    core, log = static_leader_of_ten()
    fetch_of(core, 2, b"a", 10)
    fetch_of(core, 3, b"c", 5)
    if cleaned:
        log.snapshot(5)
        log.clean()
    offset = 0 if cleaned else 11
    reply = fetch_of(core, 2, directory, offset)
    assert (reply.snapshot is not None, reply.diverging is not None) == (cleaned, not cleaned)
    fetch_of(core, 3, b"c", 10)
    assert core.high_watermark == 5
    for _ in range(2):
        fetch_of(core, 2, directory, 7)
    assert core.high_watermark == 7


def test_a_node_with_a_voters_id_and_another_directory_leaves_the_voter_alone() -> None:
    """M15: where the voters' directories are known, it is another replica, wiped or forged."""
    core = make(1, (1, 2, 3), log=log_of())
    core.step(m.Start(), 0)
    elect(core)
    core.step(m.FetchRequested(7, KEYS[2], 1, 0, 0), 1001)
    for offset in (0, 9):
        core.step(m.FetchRequested(7, ReplicaKey(2, b"?" * 16), 1, offset, 0), 1001)
    assert core.replicas[KEYS[2]].end_offset == 0
