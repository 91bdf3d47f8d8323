"""The in-sync set: by time (KIP-16), by proposal and answer, and its effect on the high
watermark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.replication.fetching.fetcher import NAMED_MAX, Fetcher
from broker.replication.partition.effects import NOTHING, Effects
from broker.replication.partition.high_watermark import maybe_advance_high_watermark
from broker.replication.partition.isr import IsrMember, PartitionStateNow
from broker.replication.partition.isr_changes import expire_isr, isr_answered
from broker.replication.partition.leadership import become_deleted, become_offline
from broker.replication.partition.partition import Partition
from broker.replication.requests.alter_partition import PARTITIONS, AlterPartitionManager
from protocol.errors import ErrorCode
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.fence_broker_record import FenceBrokerRecord
from testkit.memory.broker import batch
from testkit.memory.replicas import LAG_MS, SETTINGS, Cluster, answer, expire

# --- KIP-16: the seed's three scenarios, and two more -------------------------------------------


async def test_lagging_follower_leaves_after_the_lag_time_whatever_the_burst() -> None:
    """KIP-16: time counts, so a burst of records removes no follower that reads to the end in
    time."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    for _ in range(100):
        c[1].append(b"x" * 1000)
    c.clock.advance(LAG_MS - 1)
    assert expire(c) is None
    # The follower fetches, but never reaches the log end of its previous fetch.
    remote = c[1].partition().remote[2]
    for _ in range(3):
        c.clock.advance(100)
        remote.fetched(remote.log_end + 1, 0, 102, c[1].log.log_end_offset, c.clock.monotonic_ms())
    assert expire(c) == {1}


async def test_stuck_follower_leaves_once_there_is_something_it_has_not_read() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c.clock.advance(10 * LAG_MS)
    assert expire(c) is None  # the follower has all records of an idle partition
    c[1].append(b"b")
    assert expire(c) == {1}


async def test_bootstrapping_follower_is_out_until_it_has_caught_up() -> None:
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    for value in range(5):
        c[1].append(str(value).encode())
    c.fetch(2)
    assert c[1].proposals == []
    c.fetch(2)
    assert [p.broker_ids for _, p in c[1].proposals] == [{1, 2}]
    assert c[1].proposals[0][1].members[1] == IsrMember(2, 102)


async def test_a_follower_that_rests_is_in_sync_by_its_sessions_fetches() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=3)
    for _ in range(10):
        c.clock.advance(LAG_MS / 2)
        c.fetch(2)
    c.clock.advance(LAG_MS / 2)
    c[1].append(b"b")  # 15 s after its last fetch, which read to the end
    assert expire(c) is None
    c.clock.advance(LAG_MS)
    assert expire(c) == {1}


async def _rested(partitions: int = 1) -> Cluster:
    """Return a cluster whose broker 2 has read to all ends, and rested for twice the lag time."""
    c = Cluster(2)
    c[2].fetchers[1] = Fetcher(1, 2, SETTINGS)
    for broker in c.brokers.values():
        broker.create_topic(partitions=partitions, replicas=[1, 2], leader=1)
    c.fetch(2, times=2 + partitions // NAMED_MAX)
    for _ in range(8):
        c.clock.advance(LAG_MS / 4)
        c.fetch(2)
    return c


async def test_isr_keeps_a_follower_whose_new_session_names_partitions_in_parts() -> None:
    """A batch arrives before the requests of the new session have named all partitions."""
    c = await _rested(NAMED_MAX + 20)
    c[2].fetchers[1].lost(c.clock.monotonic_ms())
    c.clock.advance(1_000.0)
    c.fetch(2)
    named = {key[1] for session in c[1].context.sessions for key in session.partitions}
    late = next(p for p in c[1].replicas if p.index not in named)
    waiting = c[1].produce(batch(b"a"), index=late.index)
    assert late.remote[2].caught_up_ms == c.clock.monotonic_ms() - 1_000.0
    assert all(not expire_isr(p, c.clock.monotonic_ms(), LAG_MS) for p in c[1].replicas)
    c.fetch(2, times=3)
    assert waiting.done()


async def test_isr_keeps_a_follower_with_an_evicted_session_until_the_lag_time() -> None:
    c = await _rested()
    (session,) = c[1].context.sessions
    c[1].context.sessions.forget(session.session_id)
    c.clock.advance(1_000.0)
    c[1].append(b"a")
    assert expire(c) is None
    c.clock.advance(LAG_MS)
    assert expire(c) == {1}, "its last fetch is older than the lag time"


async def test_a_partition_that_leaves_its_session_is_judged_by_its_last_fetch_there() -> None:
    """The partition pauses (an error, a flush): from then on the session's fetches prove nothing
    about it."""
    c = await _rested(2)
    c.clock.advance(1_000.0)
    c[2].fetchers[1].retry_later(c[2].partition(), c.clock.monotonic_ms())
    request = c.request(2, 1)
    assert request is not None and request.forgotten_topics_data
    c.take(2, 1, c.serve(1, request))
    c.clock.advance(1_000.0)
    ages_ms = []
    for index in (0, 1):
        c[1].produce(batch(b"a"), index=index)
        caught_up_ms = c[1].partition(index=index).remote[2].caught_up_ms
        ages_ms.append(c.clock.monotonic_ms() - caught_up_ms)
    assert ages_ms == [2_000.0, 1_000.0], "the request that left it out is not one of its fetches"
    assert expire(c) is None


async def test_a_follower_that_moves_to_another_session_has_the_times_of_both() -> None:
    """The process lost the id of its first session, which ends later by eviction."""
    c = await _rested()
    (first,) = c[1].context.sessions
    fetcher = c[2].fetchers[1] = Fetcher(1, 2, SETTINGS)
    fetcher.follow(c[2].partition())
    c.clock.advance(1_000.0)
    c.fetch(2)
    for _ in range(8):
        c.clock.advance(LAG_MS / 4)
        c.fetch(2)
    assert len(c[1].context.sessions) == 2
    c[1].context.sessions.forget(first.session_id)
    c.clock.advance(LAG_MS / 4)
    c.fetch(2)
    c.clock.advance(1_000.0)
    c[1].append(b"a")
    remote = c[1].partition().remote[2]
    assert remote.caught_up_ms == c.clock.monotonic_ms() - 1_000.0
    assert expire(c) is None


async def test_isr_member_that_is_no_longer_a_replica_is_removed() -> None:
    """Bug 3 (KAFKA-9672): an ISR member that is no longer a replica is removed."""
    c = Cluster()
    c.create(1, 2, isr=[1, 2, 3])
    c.fetch(2)
    assert expire(c) == {1, 2}


# --- proposals and answers ----------------------------------------------------------------------


async def test_those_who_go_hold_the_high_watermark_until_the_answer_is_in_the_metadata() -> None:
    """P3, bug 5 (KAFKA-13091): the metadata advances the high watermark without another fetch.

    The answer alone may not: the controller's min ISR may be higher than this leader's, and 3 be in
    the ELR (P2).
    """
    c = Cluster()
    c.create(1, 2, 3)
    c.fetch(2)
    c.fetch(3)
    waiting = c[1].append(b"a", acks=-1)
    c.fetch(2, times=2)
    assert c[1].high_watermark == 0
    c.clock.advance(LAG_MS + 1)
    c.fetch(2)
    assert expire(c) == {1, 2}
    assert c[1].high_watermark == 0  # 3 counts until the controller has answered
    assert not answer(c)
    partition = c[1].partition()
    c[1].replicas.carry_out(partition, maybe_advance_high_watermark(partition))
    assert c[1].high_watermark == 0
    c.change(isr=[1, 2])
    assert c[1].high_watermark == 1
    assert waiting.done()
    partition = c[1].partition()
    assert (partition.isr, partition.partition_epoch) == ({1, 2}, 1)
    assert partition.counters.isr_shrinks == 1
    partition.validate()


async def test_an_answer_that_the_metadata_has_already_holds_nothing() -> None:
    """The controller writes no record for an unchanged ISR, so no metadata would end the hold."""
    c = Cluster()
    c.create(1, 2, 3)
    c.fetch(2)
    c.fetch(3)
    waiting = c[1].append(b"a", acks=-1)
    c.fetch(2, times=2)
    c.clock.advance(LAG_MS + 1)
    c.fetch(2)
    assert expire(c) == {1, 2}
    assert not answer(c, partition_epoch=0)
    assert c[1].high_watermark == 1
    assert waiting.done()


async def test_members_that_join_an_isr_at_its_minimum_hold_nothing() -> None:
    """An ISR at min ISR has no ELR, so the controller's min ISR does not matter."""
    c = Cluster(3)
    c.create(1, 2, 3, isr=[1, 2])
    c.fetch(2)
    c.fetch(3)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c.fetch(3, times=2)
    assert not answer(c)
    assert c[1].partition().isr == {1, 2, 3}
    assert c[1].high_watermark == 1


async def test_a_joining_member_holds_the_high_watermark_at_once() -> None:
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.fetch(2)
    assert c[1].partition().maximal_isr == {1, 2}
    assert c[1].partition().isr == {1}
    c[1].append(b"a")
    assert c[1].high_watermark == 0
    c.fetch(2, times=2)
    assert c[1].high_watermark == 1


async def test_a_refused_member_goes_and_the_committed_set_counts_alone() -> None:
    """P15: a refused proposal rolls back to the committed ISR."""
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.fetch(2)
    c[1].append(b"a")
    assert not answer(c, ErrorCode.INELIGIBLE_REPLICA)
    partition = c[1].partition()
    assert (partition.maximal_isr, partition.proposal) == ({1}, None)
    assert c[1].high_watermark == 1
    assert partition.counters.failed_isr_updates == 1
    c.fetch(2, times=2)
    assert len(c[1].proposals) == 2  # no proposal stays open forever (KAFKA-12751)


async def test_a_refused_follower_of_an_idle_partition_is_proposed_again() -> None:
    """The follower rests while it is proposed, and below min ISR nothing is appended.

    Without another check the leader would never propose it again.
    """
    c = Cluster(2, min_insync_replicas="2")
    c.create(1, 2, isr=[1])
    c.fetch(2, times=3)
    assert len(c[1].proposals) == 1
    assert not answer(c, ErrorCode.INELIGIBLE_REPLICA)  # fenced a moment ago, and back by now
    c.fetch(2)
    assert [p.broker_ids for _, p in c[1].proposals] == [{1, 2}, {1, 2}]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
async def test_a_leader_that_is_behind_stands_by_its_proposal_until_the_metadata_comes(
    error: ErrorCode,
) -> None:
    """An earlier attempt may have been accepted: 2 may be in the ISR, so the leader waits for
    it."""
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.fetch(2)
    c[1].append(b"a")
    assert not answer(c, error)
    assert c[1].partition().maximal_isr == {1, 2}
    assert c[1].high_watermark == 0
    c.change(isr=[1, 2])
    partition = c[1].partition()
    assert (partition.isr, partition.maximal_isr, partition.proposal) == ({1, 2}, {1, 2}, None)
    c.fetch(2, times=2)
    assert c[1].high_watermark == 1


async def test_isr_proposal_is_repeated_after_a_retriable_error() -> None:
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.fetch(2)
    assert answer(c, ErrorCode.NOT_CONTROLLER)
    assert answer(c, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert not answer(c)


async def test_an_answer_after_a_change_of_leader_changes_nothing() -> None:
    """Bug 5: KAFKA-12686. The answer belongs to an earlier leader epoch."""
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.fetch(2)
    c.change(leader=2, isr=[1, 2])
    assert not answer(c)
    partition = c[1].partition()
    assert (partition.leader_id, partition.partition_epoch, partition.proposal) == (2, 1, None)
    # And back: the answer is of an epoch that is over.
    c.change(leader=1)
    assert not answer(c)
    assert c[1].partition().partition_epoch == 2


@pytest.mark.parametrize("ended", [become_offline, become_deleted])
async def test_answer_after_replica_ended_changes_nothing(
    ended: Callable[[Partition], Effects],
) -> None:
    """P1: an answer belongs to the leader that proposed. A replica whose log has failed, or that
    was removed, moves no high watermark and is not proposed for again."""
    c = Cluster(2)
    c.create(1, 2)
    c.fetch(2)
    c[1].append(b"a")
    c.clock.advance(LAG_MS + 1)
    assert expire(c) == {1}
    partition, proposal = c[1].proposals[-1]
    queue = AlterPartitionManager(c[1].replicas.carry_out, PARTITIONS)
    queue.propose(partition, proposal)
    ended(partition)
    assert queue.next_request(1, 101, c.clock.monotonic_ms()) is None
    before = partition.log.high_watermark
    state = PartitionStateNow(1, partition.leader_epoch, proposal.partition_epoch + 1, (1,))
    assert isr_answered(partition, proposal, ErrorCode.NONE, state) == NOTHING
    assert (partition.isr, partition.log.high_watermark) == ({1, 2}, before)


async def test_metadata_older_than_the_answer_changes_nothing() -> None:
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.fetch(2)
    answer(c, partition_epoch=5)
    c.change(isr=[1])  # partition epoch 1, written before that answer
    partition = c[1].partition()
    assert (partition.isr, partition.partition_epoch) == ({1, 2}, 5)


async def test_one_proposal_at_a_time() -> None:
    c = Cluster()
    c.create(1, 2, 3, isr=[1])
    c.fetch(2)
    c.fetch(3)
    assert len(c[1].proposals) == 1
    answer(c)
    c.fetch(3)  # an idle partition that is still checked: 2 waits to join
    assert [p.broker_ids for _, p in c[1].proposals] == [{1, 2}, {1, 2, 3}]


async def test_queued_isr_proposal_includes_a_follower_that_catches_up_before_it_is_sent() -> None:
    """An AlterPartition is under way for other partitions: one proposal covers all of this one's
    members."""
    c = Cluster()
    queue = AlterPartitionManager(c[1].replicas.carry_out, PARTITIONS)
    c[1].connect(propose=queue.propose)
    c.create(1, 2, 3, isr=[1])
    c[1].append(b"a")
    c.fetch(2, times=2)
    c.fetch(3)
    partition = c[1].partition()
    assert (partition.isr, partition.maximal_isr) == ({1}, {1, 2})
    c.fetch(3)
    assert (len(queue), partition.maximal_isr) == (1, {1, 2, 3})
    request = queue.next_request(1, 101, 0.0)
    assert request is not None
    ((sent,),) = (topic.partitions for topic in request.topics)
    assert [member.broker_id for member in sent.new_isr_with_epochs] == [1, 2, 3]


@pytest.mark.parametrize("lost", [False, True])
async def test_sent_isr_proposal_is_unchanged_until_its_response(lost: bool) -> None:
    """The controller may have applied it already, and would then refuse a different proposal."""
    c = Cluster()
    queue = AlterPartitionManager(c[1].replicas.carry_out, PARTITIONS)
    c[1].connect(propose=queue.propose)
    c.create(1, 2, 3, isr=[1])
    c.fetch(2)
    assert queue.next_request(1, 101, 0.0) is not None
    if lost:
        queue.failed(0.0)
    c.fetch(3)
    partition = c[1].partition()
    assert (len(queue), partition.maximal_isr) == (1, {1, 2})


async def test_a_shrink_that_waits_keeps_those_out_whom_it_leaves_out() -> None:
    c = Cluster()
    queue = AlterPartitionManager(c[1].replicas.carry_out, PARTITIONS)
    c[1].connect(propose=queue.propose)
    c.create(1, 2, 3, isr=[1, 2])
    c[1].append(b"a")
    c.clock.advance(LAG_MS + 1)
    assert expire(c) == {1}
    c.fetch(2, times=2)
    c.fetch(3, times=2)
    partition = c[1].partition()
    assert partition.proposal is not None
    # Broker 2 may be in the ISR until the answer, so it counts, and joins again after it.
    assert (partition.proposal.broker_ids, partition.maximal_isr) == ({1, 3}, {1, 2, 3})


async def test_fenced_leaving_and_reborn_brokers_do_not_join() -> None:
    """Bug 10: KAFKA-13916 (KIP-841), KAFKA-14617 (KIP-903): not even by a fetch of an old
    incarnation."""
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.records.append(FenceBrokerRecord(id=2, epoch=102))
    c.catch_up()
    c.fetch(2)
    assert c[1].proposals == []
    c.records.append(
        BrokerRegistrationChangeRecord(
            broker_id=2, broker_epoch=102, fenced=-1, in_controlled_shutdown=1
        )
    )
    c.catch_up()
    c.fetch(2)
    assert c[1].proposals == []
    c.records.append(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, fenced=-1))
    c.epochs[2] = 101  # a fetch of an earlier incarnation
    c.fetch(2)
    assert c[1].proposals == []
    assert c[1].partition().remote[2].broker_epoch == 102
