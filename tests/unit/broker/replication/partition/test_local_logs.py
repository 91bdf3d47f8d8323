"""Local logs (KIP-1303): followers' stats, the leader's table, and the time of its reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from broker.replication.partition.followers import follower_fetched
from broker.replication.partition.isr import IsrProposal, PartitionStateNow
from broker.replication.partition.isr_changes import isr_answered, proposal_of, sends
from broker.replication.partition.local_log_reports import follower_stated, local_logs_to_send
from broker.replication.partition.local_logs import LocalLogs, MemberLocalLog
from broker.replication.partition.partition import Partition
from broker.replication.reading.replica_selector import RACK_AWARE
from broker.replication.replicas.upkeep import report_steps
from broker.replication.requests.alter_partition import (
    PARTITIONS,
    AlterPartitionManager,
    version_for,
)
from broker.replication.requests.local_log_reports import PARTITIONS_MAX
from metalog.image.local_log import LocalLogStats, LocalLogTable, LocalLogThresholds, Row
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.fetch import FetchRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from storage.log.errors import LogFailed
from storage.log.log import Log
from testkit.memory.replicas import TOPIC, Broker, Cluster, expire
from testkit.planting import Bug, bug

BYTES = "leader.election.eligible.local.log.bytes"
MS = "leader.election.eligible.local.log.ms"
THRESHOLD = 1_300
INTERVAL_MS = 30_000.0
T0 = 1_700_000_000_000
VALUE = b"x" * 300
"""Three batches of one such value are below the threshold, four are above it."""


def compared(brokers: int = 2, **props: str) -> Cluster:
    """Return brokers that compare replicas by the size of their local logs."""
    threshold = {BYTES.replace(".", "_"): str(THRESHOLD)}
    return Cluster(brokers, **{**threshold, **props})


def named(request: FetchRequest) -> dict[int, tuple[int, int, int]]:
    """Return (offset, local log start, local size) of each partition that a request names."""
    return {
        wish.partition: (
            wish.fetch_offset,
            wish.local_log_start_timestamp,
            wish.local_log_size_bytes,
        )
        for topic in request.topics
        for wish in topic.partitions
    }


def request_of(c: Cluster, follower: int = 2) -> FetchRequest:
    request = c.request(follower, 1)
    assert request is not None
    return request


def sent(c: Cluster, leader: int = 1) -> AlterPartitionRequest | None:
    """Return the report that is sent now, or None."""
    return c[leader].reports.next_request(leader, 100 + leader, c.clock.monotonic_ms())


def told(request: AlterPartitionRequest | None) -> dict[int, tuple[int, int, int]]:
    """Return (broker epoch, start, size) of each member in a request about one partition."""
    assert request is not None
    (partition,) = request.topics[0].partitions
    return {
        m.broker_id: (m.broker_epoch, m.local_log_start_timestamp, m.local_log_size_bytes)
        for m in partition.new_isr_with_epochs
    }


def reply(
    c: Cluster, request: AlterPartitionRequest, error: ErrorCode = ErrorCode.NONE, **changes: Any
) -> AlterPartitionResponse:
    """Return the controller's answer to a report; the metadata stays unchanged."""
    (asked,) = request.topics[0].partitions
    fields: dict[str, Any] = {
        "leader_id": 1,
        "leader_epoch": asked.leader_epoch,
        "isr": [m.broker_id for m in asked.new_isr_with_epochs],
        "partition_epoch": asked.partition_epoch + 1,
    }
    data = AlterPartitionResponse.PartitionData(
        partition_index=asked.partition_index, error_code=error, **{**fields, **changes}
    )
    topic = AlterPartitionResponse.TopicData(topic_id=TOPIC, partitions=[data])
    return AlterPartitionResponse(topics=[topic])


def accept(c: Cluster, request: AlterPartitionRequest | None, **changes: Any) -> None:
    assert request is not None
    c[1].reports.answered(reply(c, request, **changes), c.clock.monotonic_ms())


def report_all(c: Cluster) -> None:
    """Send all reports, and let the controller accept them and write them to the metadata."""
    while (request := sent(c)) is not None:
        accept(c, request)
        (asked,) = request.topics[0].partitions
        c.change(
            isr=[m.broker_id for m in asked.new_isr_with_epochs],
            local_logs=[
                PartitionChangeRecord.ReplicaLocalLog(
                    broker_id=m.broker_id,
                    broker_epoch=m.broker_epoch,
                    start_timestamp=m.local_log_start_timestamp,
                    size_bytes=m.local_log_size_bytes,
                )
                for m in asked.new_isr_with_epochs
            ],
        )


def sweep(c: Cluster) -> None:
    assert list(report_steps(c[1].replicas))


def trim(broker: Broker, keep: int = 1) -> None:
    """Let local retention remove all segments but the newest ones."""
    log = broker.log
    log.trimming.delete_oldest(len(log.segments) - keep)


async def in_sync(values: int, followers: int = 2, **props: str) -> Cluster:
    """Return in-sync followers with `values` values each, whose stats the leader has reported."""
    c = compared(followers, **props)
    c.create(*range(1, followers + 1))
    for _ in range(values):
        c[1].append(VALUE)
    for _ in range(values + 3):
        for follower in range(2, followers + 1):
            c.fetch(follower)
    report_all(c)
    return c


# --- followers ------------------------------------------------------------------------------------


async def test_fetch_reports_the_local_log_of_each_named_partition() -> None:
    c = compared()
    c.create(1, 2)
    c[1].append(b"a", b"b")
    assert named(request_of(c)) == {0: (0, -1, 0)}
    c.fetch(2)
    c = compared()
    c.create(1, 2)
    c[1].append(b"a", b"b")
    c.fetch(2)
    size = c[1].log.size_bytes
    assert named(request_of(c)) == {0: (2, T0, size)}
    assert c[2].fetchers[1].states_local_logs


async def test_fetch_omits_local_log_fields_without_thresholds() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2)
    assert named(request_of(c)) == {0: (1, -1, -1)}
    assert not c[2].fetchers[1].states_local_logs
    assert len(c[1].reports) == 0 and c[1].partition().local_logs is None


async def test_local_retention_names_the_partition_again_without_a_new_offset() -> None:
    c = await in_sync(3)
    for broker in (c[1], c[2]):
        broker.log.roll()
    c[1].append(b"last", acks=1)
    c.fetch(2, times=4)
    idle = request_of(c)
    assert named(idle) == {}, "an idle partition is not named"
    c.take(2, 1, c.serve(1, idle))
    before = c[2].log.size_bytes
    trim(c[2])
    after = c[2].log.size_bytes
    assert 0 < after < before
    request = request_of(c)
    assert named(request) == {0: (4, T0, after)}
    c.take(2, 1, c.serve(1, request))
    assert c[1].partition().remote[2].local_bytes == after
    assert named(request_of(c)) == {}, "it was told once"


async def test_unchanged_local_log_is_not_reported_twice() -> None:
    c = await in_sync(3)
    c[2].replicas.local_log_trimmed(c[2].log)
    assert named(request_of(c)) == {}


async def test_an_answer_under_way_is_taken_over_though_the_partition_is_named_again() -> None:
    c = await in_sync(3)
    c[2].log.roll()
    c[1].append(b"new")
    late = c.serve(1, request_of(c))
    trim(c[2])  # during the fetch
    c.take(2, 1, late)
    assert c[2].values[-1] == b"new"
    assert named(request_of(c))[0][0] == 4


async def test_a_threshold_that_comes_names_all_partitions() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=3)
    for broker in c.brokers.values():
        broker.set_config("t", BYTES, "5")
    size = c[2].log.size_bytes
    assert named(request_of(c)) == {0: (1, T0, size)}


# --- the leader's memory --------------------------------------------------------------------------


def state(
    leader: Broker, partition: Partition, *, epoch: int, start_ms: int, size_bytes: int
) -> None:
    """Report stats of broker 2's local log to its leader."""
    effects = follower_stated(
        partition,
        2,
        broker_epoch=epoch,
        local_start_ms=start_ms,
        local_bytes=size_bytes,
        own_epoch=lambda: 101,
    )
    leader.replicas.carry_out(partition, effects)


async def test_local_log_stats_are_kept_per_broker_epoch_and_ignore_minus_one() -> None:
    c = await in_sync(3)
    partition = c[1].partition()
    remote = partition.remote[2]
    known = (remote.local_start_ms, remote.local_bytes)
    assert known[0] == T0 and known[1] > 0
    state(c[1], partition, epoch=102, start_ms=-1, size_bytes=-1)
    assert (remote.local_start_ms, remote.local_bytes) == known
    # Stats of an earlier incarnation are ignored; a later one has reported none yet.
    state(c[1], partition, epoch=101, start_ms=1, size_bytes=1)
    assert (remote.local_start_ms, remote.local_bytes) == known
    effects = follower_fetched(partition, 2, offset=3, log_start=0, broker_epoch=103, now_ms=0)
    c[1].replicas.carry_out(partition, effects)
    assert (remote.local_start_ms, remote.local_bytes) == (-1, -1)


async def test_fetch_session_stores_the_latest_local_log_stats() -> None:
    """A change of the stats alone changes the partition entry that the session remembers."""
    c = await in_sync(3)
    (session,) = c[1].context.sessions
    (kept,) = [cached.request for cached in session.partitions.values()]
    c[2].log.roll()
    c[1].append(b"y")
    c.fetch(2, times=2)
    trim(c[2])
    request = request_of(c)
    c.take(2, 1, c.serve(1, request))
    (newer,) = [cached.request for cached in session.partitions.values()]
    assert newer.local_log_size_bytes == c[2].log.size_bytes < kept.local_log_size_bytes + 200


# --- reports -------------------------------------------------------------------------------------


async def test_a_member_that_becomes_known_is_reported_at_once() -> None:
    c = compared(3)
    c.create(1, 2, 3)
    c[1].append(VALUE)
    for _ in range(2):
        c.fetch(2)
    request = sent(c)
    size = c[1].log.size_bytes
    assert told(request) == {1: (101, T0, size), 2: (102, T0, size), 3: (-1, -1, -1)}
    accept(c, request)
    for _ in range(2):
        c.fetch(3)
    assert told(sent(c))[3] == (103, T0, size)


async def test_a_report_is_the_isr_that_holds() -> None:
    c = await in_sync(2)
    partition = c[1].partition()
    before = partition.isr, partition.leader_epoch, partition.partition_epoch
    for _ in range(3):
        c[1].append(VALUE)
    c.fetch(2, times=5)
    request = sent(c)
    assert request is not None
    (asked,) = request.topics[0].partitions
    assert [m.broker_id for m in asked.new_isr_with_epochs] == [1, 2]
    assert (asked.leader_epoch, asked.partition_epoch) == before[1:]
    assert version_for(request) == 4
    assert (partition.isr, partition.maximal_isr, partition.proposal) == (before[0],) * 2 + (None,)
    accept(c, request)
    assert (partition.isr, partition.leader_epoch) == before[:2]
    assert partition.partition_epoch == before[2] + 1
    assert c[1].proposals == [] and partition.counters.failed_isr_updates == 0


async def test_local_log_growth_is_reported_per_interval_but_a_crossed_threshold_at_once() -> None:
    c = await in_sync(1)
    c[1].append(VALUE)
    c.fetch(2, times=2)
    assert sent(c) is None, "each append would be a report"
    for _ in range(2):  # across the threshold, leader and follower
        c[1].append(VALUE)
        c.fetch(2, times=2)
    request = sent(c)
    assert min(size for _, _, size in told(request).values()) >= THRESHOLD
    accept(c, request)
    c[1].append(VALUE)
    c.fetch(2, times=2)
    sweep(c)
    assert sent(c) is None, "the interval has not passed"
    c.clock.advance(INTERVAL_MS)
    sweep(c)
    accept(c, sent(c))
    sweep(c)
    assert sent(c) is None


async def rolled(broker: int) -> Cluster:
    """Return two reported replicas above the threshold, with most of `broker`'s log in a closed
    segment."""
    c = await in_sync(5)
    c[broker].log.roll()
    c[1].append(b"y")
    c.fetch(2, times=3)
    assert sent(c) is None
    return c


async def test_local_log_that_falls_below_a_threshold_is_reported_at_once() -> None:
    c = await rolled(2)
    trim(c[2])
    c.fetch(2)
    assert told(sent(c))[2][2] < THRESHOLD


async def test_a_leader_reports_what_its_own_retention_took() -> None:
    c = await rolled(1)
    trim(c[1])
    assert told(sent(c))[1][2] < THRESHOLD


async def test_stats_already_in_the_metadata_are_not_reported_again() -> None:
    """After a change of leader, every follower becomes known to the new one."""
    c = compared(3)
    c.create(1, 2, 3)
    c[1].append(VALUE)
    for _ in range(3):
        c.fetch(2)
        c.fetch(3)
    size = c[1].log.size_bytes
    entries = [
        PartitionChangeRecord.ReplicaLocalLog(
            broker_id=b, broker_epoch=100 + b, start_timestamp=T0, size_bytes=size
        )
        for b in (1, 2, 3)
    ]
    c.change(leader=2, local_logs=entries)
    for follower in (1, 3):
        c.fetch(follower, 2, times=3)
    assert c[2].partition().remote[3].local_bytes == size
    c.clock.advance(INTERVAL_MS)
    list(report_steps(c[2].replicas))
    assert sent(c, 2) is None
    # The stats are reported if the metadata have those of another broker incarnation.
    c.change(local_logs=[one.replace(broker_epoch=7) for one in entries])
    c.change(leader=2)
    assert told(sent(c, 2))[2] == (102, T0, size)


async def test_one_replica_is_not_reported() -> None:
    c = compared(1)
    c.create(1)
    for _ in range(4):
        c[1].append(VALUE)
    sweep(c)
    assert sent(c) is None


# --- reports next to changes of the ISR -----------------------------------------------------------


async def crossing() -> tuple[Cluster, AlterPartitionRequest]:
    """Return a cluster with a report under way: the follower has crossed the threshold."""
    c = await in_sync(3)
    c[1].append(VALUE)
    c.fetch(2, times=3)
    request = sent(c)
    assert request is not None
    return c, request


async def test_isr_change_includes_local_logs_and_suppresses_the_report() -> None:
    c = await in_sync(3)
    c[1].append(VALUE)
    c.clock.advance(40_000)
    assert expire(c) == {1}
    partition, proposal = c[1].proposals[-1]
    c.fetch(2, times=3)
    assert sent(c) is None
    manager = AlterPartitionManager(c[1].replicas.carry_out, PARTITIONS)
    manager.propose(partition, proposal)
    request = manager.next_request(1, 101, c.clock.monotonic_ms())
    assert told(request) == {1: (101, T0, c[1].log.size_bytes)}
    assert request is not None and version_for(request) == 4


async def test_without_thresholds_a_change_of_the_isr_is_as_it_was() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(VALUE)
    c.clock.advance(40_000)
    assert expire(c) == {1}
    manager = AlterPartitionManager(c[1].replicas.carry_out, PARTITIONS)
    manager.propose(*c[1].proposals[-1])
    request = manager.next_request(1, 101, c.clock.monotonic_ms())
    assert told(request) == {1: (101, -1, -1)}
    assert request is not None and version_for(request) is None


def stale(
    c: Cluster, asked: IsrProposal, error: ErrorCode = ErrorCode.INVALID_UPDATE_VERSION
) -> None:
    """Refuse the change: for the controller the partition has changed since."""
    partition = c[1].partition()
    state = PartitionStateNow(-1, -1, -1, ())
    c[1].replicas.carry_out(partition, isr_answered(partition, asked, error, state))


def taken(c: Cluster, asked: IsrProposal, *, epochs: int) -> None:
    """Accept the proposal at `epochs` epochs after its own."""
    partition = c[1].partition()
    state = PartitionStateNow(
        1, asked.leader_epoch, asked.partition_epoch + epochs, tuple(sorted(asked.broker_ids))
    )
    c[1].replicas.carry_out(partition, isr_answered(partition, asked, ErrorCode.NONE, state))


def send_change(c: Cluster) -> IsrProposal:
    """Send the newest proposal in a request."""
    partition, proposal = c[1].proposals[-1]
    assert sends(partition, proposal)
    assert local_logs_to_send(partition, proposal, c.clock.monotonic_ms(), 101)
    return proposal


def leave_out(c: Cluster) -> IsrProposal:
    """Let follower 2 fall behind, so that an ISR without it is proposed."""
    c[1].append(b"z")
    c.clock.advance(40_000)
    assert expire(c) == {1}
    return c[1].proposals[-1][1]


def wanted(c: Cluster) -> list[tuple[frozenset[int], int]]:
    """Return each proposal that was handed on, with its partition epoch."""
    return [(proposal.broker_ids, proposal.partition_epoch) for _, proposal in c[1].proposals]


OUT = frozenset({1})


async def test_l1_proposal_omits_stats_of_a_newer_broker_epoch() -> None:
    """L1: the follower came back during the wait, perhaps with another disk (tiered seed 497)."""
    c, _ = await crossing()
    partition = c[1].partition()
    report = proposal_of(partition, partition.isr)
    assert [one.broker_id for one in local_logs_to_send(partition, report, 0.0, 101)] == [1, 2]
    partition.remote[2].broker_epoch += 1
    assert [one.broker_id for one in local_logs_to_send(partition, report, 0.0, 101)] == [1]


async def test_a_change_goes_while_a_report_is_under_way_and_keeps_its_epoch() -> None:
    """The controller gets and answers the report first, and accepts the change behind it."""
    c, report = await crossing()
    partition = c[1].partition()
    epoch = partition.partition_epoch
    leave_out(c)
    change = send_change(c)
    assert wanted(c) == [(OUT, epoch)], "it does not wait"
    accept(c, report)
    assert partition.partition_epoch == epoch + 1
    assert partition.proposal is change and len(wanted(c)) == 1, "nothing is asked twice"
    assert partition.maximal_isr == {1, 2}
    taken(c, change, epochs=2)
    assert partition.isr == OUT and partition.partition_epoch == epoch + 2


async def test_the_change_is_answered_before_the_report() -> None:
    """The change is accepted behind the report, whose answer is late; or ahead, and the report is
    refused."""
    for epochs, error in ((2, ErrorCode.NONE), (1, ErrorCode.INVALID_UPDATE_VERSION)):
        c, report = await crossing()
        partition = c[1].partition()
        epoch = partition.partition_epoch
        leave_out(c)
        taken(c, send_change(c), epochs=epochs)
        after = partition.isr, partition.partition_epoch
        assert after == (OUT, epoch + epochs)
        accept(c, report, error=error)
        assert (partition.isr, partition.partition_epoch) == after
        assert partition.maximal_isr == OUT and partition.proposal is None


@pytest.mark.parametrize("lost", [False, True])
async def test_isr_change_continues_after_its_report_fails(lost: bool) -> None:
    c, report = await crossing()
    partition = c[1].partition()
    epoch = partition.partition_epoch
    leave_out(c)
    change = send_change(c)
    if lost:
        c[1].reports.failed(c.clock.monotonic_ms())
    else:
        accept(c, report, error=ErrorCode.INELIGIBLE_REPLICA)
    assert partition.proposal is change and wanted(c) == [(OUT, epoch)]
    assert partition.counters.failed_isr_updates == 0
    taken(c, change, epochs=1)
    assert partition.isr == OUT


async def test_a_change_that_is_not_sent_yet_goes_with_the_reports_epoch() -> None:
    for by_metadata in (False, True):
        c, report = await crossing()
        epoch = c[1].partition().partition_epoch
        queue: list[tuple[Partition, IsrProposal]] = c[1].proposals
        c[1].connect(propose=lambda *one, into=queue: into.append(one))
        waits = leave_out(c)
        if by_metadata:
            c.change(isr=[1, 2])
        else:
            accept(c, report)
        partition, newest = c[1].proposals[-1]
        assert wanted(c) == [(OUT, epoch), (OUT, epoch + 1)]
        assert not sends(partition, waits) and sends(partition, newest)
        assert partition.maximal_isr == {1, 2}


async def test_isr_change_refused_as_stale_is_resent_with_the_reports_epoch() -> None:
    """The controller is new or has dropped the report.

    The change is sent with the current epoch once the leader has both that epoch and the refusal.
    """
    for refused_first in (False, True):
        c, report = await crossing()
        partition = c[1].partition()
        epoch = partition.partition_epoch
        leave_out(c)
        change = send_change(c)
        if refused_first:
            stale(c, change)
            assert partition.proposal is change and len(wanted(c)) == 1
            accept(c, report)
        else:
            accept(c, report)
            stale(c, change)
        assert wanted(c) == [(OUT, epoch), (OUT, epoch + 1)]
        assert partition.maximal_isr == {1, 2}
        # Refused again: another change came in between, which the metadata will contain.
        again = send_change(c)
        stale(c, again)
        assert partition.proposal is again and len(wanted(c)) == 2
        c.change(isr=[1, 2])
        assert partition.proposal is again, "that was the report"
        c.change(isr=[1, 2])
        assert wanted(c)[2:] == [(OUT, epoch + 2)]


async def test_a_change_that_a_lost_report_has_overtaken_is_proposed_again() -> None:
    """The report was accepted and its answer lost, and the controller has changed since."""
    c, _ = await crossing()
    partition = c[1].partition()
    epoch = partition.partition_epoch
    leave_out(c)
    c[1].reports.failed(c.clock.monotonic_ms())
    stale(c, send_change(c))
    assert wanted(c) == [(OUT, epoch)]
    c.change(isr=[1, 2])
    assert wanted(c) == [(OUT, epoch), (OUT, epoch + 1)]
    assert partition.proposal is c[1].proposals[-1][1]
    assert sent(c) is None


async def test_metadata_that_are_faster_than_the_answer_lose_no_change() -> None:
    """P13: the change may still be accepted, so its members count for the high watermark."""
    c, report = await crossing()
    partition = c[1].partition()
    epoch = partition.partition_epoch
    leave_out(c)
    change = send_change(c)
    c.change(isr=[1, 2])
    assert partition.proposal is change and wanted(c) == [(OUT, epoch)]
    assert partition.partition_epoch == epoch + 1
    accept(c, report)  # late
    assert partition.proposal is change
    taken(c, change, epochs=2)
    assert partition.isr == OUT and partition.partition_epoch == epoch + 2


async def test_a_new_member_counts_until_its_change_is_over() -> None:
    """P13: behind a report's metadata the controller may have the member in the ISR already."""
    c = await in_sync(3, 3)
    c.change(isr=[1, 2])
    partition = c[1].partition()
    for follower in (2, 3):
        c.fetch(follower, times=3)
    joins = send_change(c)
    assert joins.broker_ids == {1, 2, 3}
    c.change(isr=[1, 2])
    assert partition.maximal_isr == {1, 2, 3} and partition.isr == {1, 2}
    before = partition.log.high_watermark
    c[1].append(VALUE)
    c.fetch(2, times=3)
    assert partition.log.high_watermark == before, "3 may be elected, and has not got it"
    # Two epochs behind its own it cannot be accepted any more.
    c.change(isr=[1, 2])
    assert partition.maximal_isr == {1, 2} and partition.proposal is None
    assert partition.log.high_watermark == before + 1


async def test_switched_off_in_the_middle_a_change_that_was_sent_still_counts() -> None:
    """P13: the controller may accept the change behind the report."""
    c, report = await crossing()
    partition = c[1].partition()
    epoch = partition.partition_epoch
    leave_out(c)
    change = send_change(c)
    c[1].set_config("t", BYTES, "-1")
    c.change(isr=[1, 2])
    assert partition.proposal is change and partition.maximal_isr == {1, 2}
    accept(c, report)
    assert partition.proposal is change and wanted(c) == [(OUT, epoch)]
    taken(c, change, epochs=2)
    assert partition.isr == OUT
    c.fetch(2, times=2)
    sweep(c)
    assert sent(c) is None


async def test_without_thresholds_any_metadata_end_a_proposal() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(VALUE)
    leave_out(c)
    partition, proposal = c[1].proposals[-1]
    assert sends(partition, proposal) and not local_logs_to_send(partition, proposal, 0.0, 101)
    c.change(isr=[1, 2])
    assert partition.proposal is None and partition.maximal_isr == {1, 2}


@pytest.mark.parametrize(
    "news", [{"isr": [1]}, {"isr": [1, 2, 3]}, {"leader": 1}, {"isr": [1, 2], "replicas": [1]}]
)
async def test_isr_change_is_dropped_when_the_metadata_change_more_than_stats(
    news: dict[str, Any],
) -> None:
    """The ISR or the leader epoch changes, or a member is no longer a replica."""
    c = await in_sync(3, 4)
    c.change(isr=[1, 2])
    c.fetch(2, times=3)
    c.fetch(3, times=3)
    partition = c[1].partition()
    assert send_change(c).broker_ids == {1, 2, 3}
    c.change(**news)
    assert partition.proposal is None and partition.maximal_isr == partition.isr
    assert len(wanted(c)) == 1


async def test_a_change_is_taken_though_its_first_answer_was_lost() -> None:
    """The change is repeated unchanged and refused: the metadata shows that it was accepted."""
    c, report = await crossing()
    partition = c[1].partition()
    epoch = partition.partition_epoch
    leave_out(c)
    change = send_change(c)
    accept(c, report)
    stale(c, change)
    again = send_change(c)
    assert again.partition_epoch == epoch + 1
    stale(c, again)
    c.change(isr=[1, 2])
    c.change(isr=[1])
    assert partition.isr == partition.maximal_isr == OUT and partition.proposal is None
    assert len(wanted(c)) == 2


async def test_an_isr_that_became_another_one_is_not_proposed_again() -> None:
    c, _ = await crossing()
    leave_out(c)
    send_change(c)
    c.change(isr=[1])
    assert len(wanted(c)) == 1 and c[1].partition().proposal is None


async def test_an_answer_with_another_isr_changes_nothing() -> None:
    """The controller removed a member in between: its metadata contains that, with the ELR."""
    c, report = await crossing()
    partition = c[1].partition()
    epoch = partition.partition_epoch
    accept(c, report, isr=[1])
    assert (partition.isr, partition.partition_epoch) == ({1, 2}, epoch)


async def test_below_the_minimum_the_high_watermark_waits_for_the_metadata() -> None:
    """P22: a replica that may be elected by then has all visible records."""
    c = await in_sync(3, 3, min_insync_replicas="3")
    c.change(isr=[1, 2])
    partition = c[1].partition()
    c[1].append(VALUE)
    c.fetch(2, times=3)
    accept(c, sent(c))
    assert partition.unread_isr and partition.log.high_watermark == 3
    c.change(isr=[1, 2])
    assert not partition.unread_isr


@pytest.mark.parametrize("error", [None, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER])
async def test_failed_report_is_repeated_after_an_interval(
    error: ErrorCode | None,
) -> None:
    c, report = await crossing()
    partition = c[1].partition()
    if error is None:
        c[1].reports.failed(c.clock.monotonic_ms())
    else:
        accept(c, report, error=error)
    assert partition.isr == partition.maximal_isr == {1, 2}
    assert partition.counters.failed_isr_updates == 0
    for _ in range(5):
        c[1].append(VALUE)
        c.fetch(2, times=2)
        sweep(c)
    assert sent(c) is None, "a controller that refuses would be asked at each fetch"
    c.clock.advance(INTERVAL_MS)
    sweep(c)
    assert told(sent(c))[2][2] > THRESHOLD


async def test_deposed_leader_sends_no_report() -> None:
    c, report = await crossing()
    c.change(leader=2)
    epoch = c[1].partition().partition_epoch
    accept(c, report)
    assert c[1].partition().partition_epoch == epoch
    sweep(c)
    assert sent(c) is None


# --- the queue ------------------------------------------------------------------------------------


async def test_reports_go_in_short_requests_one_after_the_other() -> None:
    c = Cluster(2, **{BYTES.replace(".", "_"): "1"})
    for broker in c.brokers.values():
        broker.create_topic(partitions=PARTITIONS_MAX + 5, replicas=[1, 2], leader=1)
    for broker in c.brokers.values():
        broker.append(VALUE)
    for partition in c[1].replicas:
        effects = follower_fetched(partition, 2, offset=0, log_start=0, broker_epoch=102, now_ms=0)
        c[1].replicas.carry_out(partition, effects)
        state(c[1], partition, epoch=102, start_ms=1, size_bytes=0)
    reports = c[1].reports
    assert reports.due_ms() == 0.0
    first = sent(c)
    assert first is not None and len(first.topics[0].partitions) == PARTITIONS_MAX
    assert sent(c) is None and reports.due_ms() is None
    reports.answered(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), 0.0)
    second = sent(c)
    assert second is not None and len(second.topics[0].partitions) == 5
    assert reports.sent == PARTITIONS_MAX + 5
    reports.answered(AlterPartitionResponse(), 0.0)
    assert len(reports) == 0 and reports.due_ms() is None
    assert all(p.local_logs is not None and p.local_logs.in_flight is None for p in c[1].replicas)


# --- the rules alone ------------------------------------------------------------------------------

MEMBER = MemberLocalLog(2, 102, LocalLogStats(T0, 500))


def rules(*known: Row, span_ms: int = -1, size: int = THRESHOLD) -> LocalLogs:
    return LocalLogs(LocalLogThresholds(span_ms, size), INTERVAL_MS, LocalLogTable.of(known))


def test_crossing_is_another_verdict_of_the_controllers() -> None:
    logs = rules()
    assert logs.crosses(MEMBER, T0), "it becomes known"
    assert not logs.crosses(MEMBER._replace(stats=LocalLogStats()), T0)
    logs.told([MEMBER], 0.0)
    assert not logs.crosses(MEMBER._replace(stats=LocalLogStats(T0, THRESHOLD - 1)), T0)
    assert logs.crosses(MEMBER._replace(stats=LocalLogStats(T0, THRESHOLD)), T0)
    assert logs.crosses(MEMBER._replace(broker_epoch=103), T0), "another life"


@pytest.mark.parametrize("span_ms", [-1, 60_000])
@pytest.mark.parametrize("size", [-1, THRESHOLD])
def test_settled_stats_never_cross_a_threshold(span_ms: int, size: int) -> None:
    """Only growth is settled, so a fetch needs no more than that."""
    starts, sizes = (-1, T0, T0 + 1), (-1, 0, 1, THRESHOLD - 1, THRESHOLD, THRESHOLD + 1)
    every = [
        MemberLocalLog(2, epoch, LocalLogStats(start_ms, held))
        for epoch in (102, 103)
        for start_ms in starts
        for held in sizes
    ]
    settled = 0
    for told_before in every:
        logs = rules(span_ms=span_ms, size=size)
        logs.told([told_before], 0.0)
        for now in every:
            if logs.is_settled(2, now.broker_epoch, *now.stats):
                settled += 1
                assert all(not logs.crosses(now, T0 + at) for at in (-5, 0, 60_000, 60_001))
    assert settled >= 40
    logs.told([MEMBER], 0.0)
    assert logs.is_settled(2, 102, T0, 501) and not logs.is_settled(3, 102, T0, 501)


class Told:
    """A log with the given stats."""

    def __init__(self, start_ms: int | None, size_bytes: int) -> None:
        self.start_ms, self.size_bytes = start_ms, size_bytes
        self.reader = self

    def local_start_ms(self) -> int:
        """Return the start; None stands for a disk that cannot read it."""
        if self.start_ms is None:
            raise LogFailed("t-0", OSError())
        return self.start_ms


@pytest.mark.parametrize(
    ("now", "news"),
    [
        ((T0, 500), False),
        ((T0, 501), True),
        ((T0, 499), True),
        ((T0 + 1, 500), True),
        ((T0 - 1, 500), True),
        ((None, 500), True),
    ],
)
def test_follower_stats_are_stated_only_if_start_and_size_are_unchanged(
    now: tuple[int | None, int], news: bool
) -> None:
    """A changed start is news, too.

    Retention may remove as much as was appended, and a disk that could not read the time may do so
    now.
    """
    logs = rules()
    logs.state(cast(Log, Told(T0, 500)))
    assert logs.is_stated(cast(Log, Told(*now))) is not news
    logs.state(cast(Log, Told(*now)))
    assert logs.is_stated(cast(Log, Told(*now)))


async def test_local_log_start_that_becomes_readable_is_reported() -> None:
    """The disk failed to read the start's timestamp before."""
    c = await in_sync(3)
    size, logs = c[2].log.size_bytes, c[2].partition().local_logs
    assert logs is not None and logs.stated_bytes == size
    logs.stated_start_ms = -1
    c[2].replicas.local_log_trimmed(c[2].log)
    assert named(request_of(c)) == {0: (3, T0, size)}


def test_local_log_crosses_a_time_threshold_only_with_a_new_start() -> None:
    """The controller has a clock of its own, so only another start is news."""
    logs = rules(span_ms=60_000, size=-1)
    logs.told([MEMBER], 0.0)
    grown = MEMBER._replace(stats=LocalLogStats(T0, 10**9))
    for wall_ms in (T0, T0 + 60_000, T0 + 10**6):
        assert not logs.crosses(grown, wall_ms)
    trimmed = MEMBER._replace(stats=LocalLogStats(T0 + 50_000, 10))
    assert not logs.crosses(trimmed, T0 + 55_000)
    assert logs.crosses(trimmed, T0 + 60_000)


def test_reported_stats_are_kept_when_a_member_reports_none() -> None:
    logs = rules()
    logs.told([MEMBER], 0.0)
    logs.told([MEMBER._replace(stats=LocalLogStats())], 1.0)
    assert not logs.crosses(MEMBER, T0)


def test_report_is_due_only_for_stats_missing_from_the_metadata() -> None:
    logs = rules(((2, 102), *MEMBER.stats, 0))
    assert not logs.is_due([MEMBER], 0.0)
    grown = MEMBER._replace(stats=LocalLogStats(T0, 501))
    assert logs.is_due([grown], 0.0)
    logs.told([grown], 0.0)
    assert not logs.is_due([grown], INTERVAL_MS - 1)
    assert logs.is_due([grown], INTERVAL_MS), "a controller that stores nothing"
    assert not logs.is_due([MEMBER._replace(stats=LocalLogStats())], INTERVAL_MS)


# --- KIP-392 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("aware", ["true", "false"])
async def test_consumers_are_kept_away_from_followers_with_too_little(aware: str) -> None:
    c = await in_sync(
        3,
        replica_selector_class=RACK_AWARE,
        kraftbox_replica_selector_local_log_enable=aware,
    )

    def preferred() -> int:
        return int(c[1].fetch(0, rack_id="rack2").preferred_read_replica)

    assert preferred() == (-1 if aware == "true" else 2)
    c[1].append(VALUE)
    c.fetch(2, times=3)
    assert preferred() == 2
    # A replica without reported stats counts as one with the whole log.
    partition: Partition = c[1].partition()
    partition.remote[2].local_bytes = -1
    assert preferred() == 2
    partition.remote[2].local_bytes = 0
    assert preferred() == (-1 if aware == "true" else 2)
    for broker in c.brokers.values():
        broker.set_config("t", BYTES, "-1")
    assert preferred() == 2


# --- planted bugs ---------------------------------------------------------------------------------

PARTITION = "broker.replication.partition"
PLANTED = (
    (
        bug(
            "a report's answer overwrites a change of the ISR",
            "local logs",
            "P13",
            "what was proposed while the report was under way is forgotten",
            (
                f"{PARTITION}.local_log_reports:report_answered",
                "return keep_proposal(partition, partition.proposal)",
                "partition.proposal = None; partition.maximal_isr = partition.isr",
            ),
        ),
        test_a_change_goes_while_a_report_is_under_way_and_keeps_its_epoch,
    ),
    (
        bug(
            "a change that was sent is sent again behind a report",
            "local logs",
            "",
            "under the report's epoch it is refused: it was taken under its own",
            (
                f"{PARTITION}.isr_changes:keep_proposal",
                "if proposal is partition.sent_proposal and",
                "if False and",
            ),
        ),
        test_a_change_goes_while_a_report_is_under_way_and_keeps_its_epoch,
    ),
    (
        bug(
            "a change that was refused behind a report is not asked anew",
            "local logs",
            "",
            "it stands for ever: the metadata have nothing more to say",
            (
                f"{PARTITION}.isr_changes:keep_proposal",
                "and proposal is not partition.refused_proposal",
                "",
            ),
        ),
        test_isr_change_refused_as_stale_is_resent_with_the_reports_epoch,
    ),
    (
        bug(
            "the metadata of a report take a change back",
            "local logs",
            "P13",
            "a change that may be taken yet is dropped when the report's record comes",
            (f"{PARTITION}.leadership:become_leader", "if goes_past and", "if False and"),
        ),
        test_a_new_member_counts_until_its_change_is_over,
    ),
    (
        bug(
            "a change outlasts two epochs",
            "local logs",
            "",
            "one that cannot be taken any more holds the high watermark up",
            (
                "broker.replication.partition.isr:outlasting",
                "and partition_epoch == proposal.partition_epoch + 1",
                "and True",
            ),
        ),
        test_a_new_member_counts_until_its_change_is_over,
    ),
    (
        bug(
            "without a threshold a change that went past reports is forgotten",
            "local logs",
            "P13",
            "the controller takes it yet",
            (
                f"{PARTITION}.leadership:become_leader",
                "or partition.proposal is partition.reporting_proposal",
                "or False",
            ),
        ),
        test_switched_off_in_the_middle_a_change_that_was_sent_still_counts,
    ),
    (
        bug(
            "stats of an older broker epoch kept",
            "local logs",
            "F22",
            "a broker that comes back with an empty disk counts as the full one that it was",
            (
                "broker.replication.partition.remote_replica:RemoteReplica.fetched",
                "self.local_start_ms = self.local_bytes = UNKNOWN",
                "pass",
            ),
        ),
        test_local_log_stats_are_kept_per_broker_epoch_and_ignore_minus_one,
    ),
    (
        bug(
            "a fetch of an older life is heard",
            "local logs",
            "F22",
            "what a delayed fetch says counts for the broker's present life",
            (
                "broker.replication.partition.remote_replica:RemoteReplica.stated",
                "if broker_epoch != self.broker_epoch:",
                "if False:",
            ),
        ),
        test_local_log_stats_are_kept_per_broker_epoch_and_ignore_minus_one,
    ),
    (
        bug(
            "sessions do not compare local logs",
            "local logs",
            "",
            "a partition is not named again when nothing but its local log has changed",
            (
                "broker.replication.partition.local_logs:LocalLogs.is_stated",
                "return self.stated_bytes == log.size_bytes and self.stated_start_ms == "
                "start_ms_of(log)",
                "return True",
            ),
        ),
        test_local_retention_names_the_partition_again_without_a_new_offset,
    ),
    (
        bug(
            "a start that moved is no news",
            "local logs",
            "",
            "a follower that has other records of the same size does not say so",
            (
                "broker.replication.partition.local_logs:LocalLogs.is_stated",
                " and self.stated_start_ms == start_ms_of(log)",
                "",
            ),
        ),
        test_local_log_start_that_becomes_readable_is_reported,
    ),
    (
        bug(
            "each append is a report",
            "local logs",
            "",
            "whatever has changed is told at once",
            (
                "broker.replication.partition.local_logs:LocalLogs.crosses",
                "return before.enough is not judge(stats, self.thresholds, wall_ms).enough",
                "return True",
            ),
        ),
        test_local_log_growth_is_reported_per_interval_but_a_crossed_threshold_at_once,
    ),
)


@pytest.mark.parametrize(("planted", "sees"), PLANTED, ids=[one.name for one, _ in PLANTED])
async def test_a_planted_bug_is_seen(planted: Bug, sees: Callable[[], Awaitable[None]]) -> None:
    await sees()
    with planted.planted(), pytest.raises(AssertionError):
        await sees()
