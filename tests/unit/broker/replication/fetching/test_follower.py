"""Followers: replication, truncation, and the proof that a fetch gives.

Tests name each known bug of Apache Kafka that these rules guard against (reliability: bug list).
"""

from __future__ import annotations

import pytest

from broker.replication.fetching.follower import reset_to, truncate_to_common
from protocol.errors import ErrorCode
from runtime.marks import counted
from testkit.memory.replicas import Cluster


async def test_records_reach_followers_and_the_high_watermark_follows() -> None:
    c = Cluster()
    c.create(1, 2, 3)
    waiting = c[1].append(b"a", b"b", acks=-1)
    c.fetch(2)
    assert c[2].values == [b"a", b"b"]
    assert (c[1].high_watermark, c[2].high_watermark) == (0, 0)
    c.fetch(3)
    c.fetch(2)
    assert not waiting.done()
    c.fetch(3)
    assert c[1].high_watermark == 2
    answered = (await waiting).responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NONE
    c.fetch(2)
    c.fetch(3)
    assert (c[2].high_watermark, c[3].high_watermark) == (2, 2)


async def test_logs_that_parted_in_a_fast_fail_over_are_cut_at_the_shared_epoch() -> None:
    """Bug 1: KAFKA-6361, KIP-279. Diverged logs are truncated at the end of the last shared
    epoch."""
    c = Cluster()
    c.create(1, 2, 3, isr=[1, 2])
    c[1].append(b"shared")
    c.fetch(2, times=2)
    # 1 appends and ends; 2 leads, appends and ends before 1 fetched; 1 leads again in epoch 2.
    c[1].append(b"only on 1", b"and this")
    c.change(leader=2)
    c[2].append(b"only on 2")
    c.change(leader=1)
    c[1].append(b"of epoch 2")
    c.fetch(2, times=5)
    assert c[2].values == c[1].values == [b"shared", b"only on 1", b"and this", b"of epoch 2"]
    assert c[2].log.epochs.entries == [(0, 0), (2, 3)]


async def test_a_replica_behind_the_leader_epochs_start_does_not_join() -> None:
    """Bug 2: KAFKA-7128. A follower below the start of the leader's epoch does not join the ISR."""
    c = Cluster()
    c.create(1, 2, 3, isr=[1, 2])
    c[1].append(b"a")
    c.fetch(2)  # 2 has it, and no broker knows that yet: the high watermark is 0 everywhere
    c.change(leader=2)
    assert c[2].high_watermark == 0
    assert c[2].partition().leader_epoch_start == 1
    c.fetch(3, 2)
    # Offset 0 is the high watermark that 2 knows, and below records that may be acknowledged.
    assert c[2].proposals == []
    c.fetch(3, 2)
    assert [proposal.broker_ids for _, proposal in c[2].proposals] == [{1, 2, 3}]


async def test_diverging_fetch_does_not_advance_the_high_watermark() -> None:
    """Bug 6: KAFKA-13141. A diverging fetch advances no high watermark."""
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c[1].append(b"x", b"y")
    c.change(leader=2)
    c[2].append(b"b")
    # 1 fetches at offset 3, beyond 2's end: the high watermark must not advance.
    response = c.send(1, 2)
    assert response is not None
    assert response.responses[0].partitions[0].diverging_epoch.end_offset == 1
    assert c[2].partition().remote[1].log_end == -1
    assert c[2].high_watermark == 1
    c.take(1, 2, response)
    c.fetch(1, 2, times=2)
    assert c[1].values == [b"a", b"b"]
    assert c[2].high_watermark == 2


async def test_a_follower_cuts_before_it_raises_its_high_watermark() -> None:
    """Bug 7: KAFKA-14704. A follower truncates before it raises its high watermark."""
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c.fetch(2)
    assert c[2].high_watermark == 1
    c.change(leader=2)
    c[2].append(b"wrong", b"wrong")
    c[2].append(b"wrong")
    c.change(leader=1, isr=[1])
    c[1].append(b"b", b"c")
    assert c[1].high_watermark == 3
    response = c.send(2, 1)
    assert response is not None
    data = response.responses[0].partitions[0]
    assert data.diverging_epoch.end_offset == 1
    assert data.high_watermark == 3
    c.take(2, 1, response)
    assert c[2].high_watermark == 1  # not 3, over records that are not the leader's
    assert c[2].values == [b"a"]
    c.fetch(2, times=2)
    assert c[2].values == [b"a", b"b", b"c"]


async def test_a_fetch_without_records_does_not_begin_an_endless_truncation() -> None:
    """Bug 8: KAFKA-15510. The last fetched epoch is that of the last record."""
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    c.change(leader=2)  # an epoch in which 2 writes nothing
    c.change(leader=1)  # and one in which 1 writes nothing
    for _ in range(4):
        request = c.request(2, 1)
        assert request is not None
        for topic in request.topics:
            assert topic.partitions[0].last_fetched_epoch == 0
        response = c.serve(1, request)
        for answered in response.responses:
            assert answered.partitions[0].diverging_epoch.epoch == -1
        c.take(2, 1, response)
    assert c[2].values == [b"a"]


async def test_the_log_start_follows_the_leader() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a", b"b", b"c")
    c.fetch(2, times=3)
    c[1].log.advance_log_start(2)
    c.fetch(2)
    assert c[2].log.log_start_offset == 2
    c.fetch(2)
    assert c[1].partition().low_watermark == 2


async def test_a_reset_cuts_what_the_leader_never_had() -> None:
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c[1].append(b"b")
    c.fetch(2, times=3)
    partition = c[2].partition()
    assert partition.log.high_watermark == 2
    reset_to(partition, 0, 1)
    assert c[2].values == [b"a"]
    assert partition.counters.truncations_below_high_watermark == 1


async def test_a_log_begins_with_the_whole_batch_that_the_leaders_start_is_inside_of() -> None:
    """P13: DeleteRecords stops at any offset, and batches are sent whole."""
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a")
    c[1].append(b"b", b"c", b"d")
    c[1].append(b"e")
    leader = c[1].log
    leader.update_high_watermark(5)
    leader.advance_log_start(3)
    partition = c[2].partition()
    reset_to(partition, 3, 5)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (3, 3)
    c.fetch(2, times=3)
    log = partition.log
    assert (log.local_log_start_offset, log.log_start_offset, log.log_end_offset) == (3, 3, 5)
    assert log.high_watermark == 5
    assert log.segments.first_base_offset == 1, "the batch is whole"


async def test_truncation_to_the_log_end_changes_and_counts_nothing() -> None:
    """The leader has all that the follower has: no counter increases, and no line is logged."""
    c = Cluster()
    c.create(1, 2, 3)
    c[1].append(b"a")
    c.fetch(2, times=2)
    with counted() as hit:
        assert not truncate_to_common(c[2].partition(), 0, 5, 0)
    assert (hit["replication.truncation"], c[2].values) == (0, [b"a"])


@pytest.mark.parametrize("told", [True, False])
async def test_p26_log_that_diverges_below_its_start_restarts_at_the_leaders_start(
    told: bool,
) -> None:
    """P26: the follower would request the same offset forever (seed 1399).

    After a crash, a log that has lost its end may be empty at its log start, behind its last known
    epoch.
    """
    c = Cluster(2)
    c.create(1, 2)
    c[1].append(b"a", b"b")
    c.change(leader=1)
    c[1].append(b"c", b"d", b"e", b"f")
    log = c[2].log
    log.truncate_fully_and_start_at(5)
    log.epochs.assign(0, 4)
    response = c.send(2, 1)
    assert response is not None
    data = response.responses[0].partitions[0]
    assert data.diverging_epoch.end_offset == 2
    if not told:
        data.log_start_offset = -1
    c.take(2, 1, response)
    assert (log.log_start_offset, log.log_end_offset) == ((0, 0) if told else (2, 2))
    c.fetch(2, times=2)
    assert c[2].values == [b"a", b"b", b"c", b"d", b"e", b"f"][log.log_start_offset :]
