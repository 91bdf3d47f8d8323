"""A partition's own rules: roles, epochs, the minimum of in-sync replicas."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replication.partition.followers import follower_fetched
from broker.replication.partition.leadership import become_follower, enter_role
from broker.replication.partition.partition import Partition
from broker.replication.partition.role import TRANSITIONS, ReplicaRole
from protocol.errors import ErrorCode
from runtime.errors import InvariantViolated
from testkit.memory.broker import NODE, OTHER, Harness, batch, topic_id
from testkit.memory.replicas import LAG_MS, Cluster, answer, expire


def replica_state(one: Partition) -> tuple[object, ...]:
    return one.isr, one.maximal_isr, one.proposal, one.leader_epoch, one.partition_epoch


def fetched(h: Harness, partition: Partition, offset: int, broker_epoch: int) -> bool:
    """Fetch as the other broker. Returns: whether the high watermark advanced."""
    before = partition.log.high_watermark
    effects = follower_fetched(
        partition, OTHER, offset=offset, log_start=0, broker_epoch=broker_epoch, now_ms=0
    )
    h.replicas.carry_out(partition, effects)
    return partition.log.high_watermark > before


async def test_epochs_never_go_back() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    partition = h.partition()
    with pytest.raises(InvariantViolated, match="epochs went back"):
        effects = become_follower(
            partition,
            leader_id=OTHER,
            leader_epoch=-1,
            partition_epoch=5,
            replicas=(NODE,),
            isr=(NODE,),
        )
        h.replicas.carry_out(partition, effects)


async def test_every_other_role_change_is_refused() -> None:
    h = Harness()
    h.create_topic()
    for before in ReplicaRole:
        for after in ReplicaRole:
            partition = Partition("t", topic_id(1), 0, node_id=NODE, log=h.partition().log)
            partition.role = before
            if (before, after) in TRANSITIONS:
                enter_role(partition, after)
            else:
                with pytest.raises(InvariantViolated):
                    enter_role(partition, after)


async def test_new_leader_starts_without_the_follower_state_of_an_earlier_term() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    partition = h.partition()
    assert not fetched(h, partition, offset=0, broker_epoch=1)
    assert partition.remote[OTHER].log_end == 0
    h.change(leader=OTHER)
    assert partition.remote == {}
    h.change(leader=NODE)
    assert partition.remote[OTHER].log_end == -1
    partition.validate()


async def test_an_older_broker_epoch_moves_nothing() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER])
    partition = h.partition()
    assert not fetched(h, partition, offset=0, broker_epoch=7)
    h.produce(batch(b"a"), acks=1)
    assert not fetched(h, partition, offset=1, broker_epoch=6)
    assert partition.log.high_watermark == 0


async def test_min_isr_states() -> None:
    h = Harness()
    h.create_topic(replicas=[NODE, OTHER], configs={"min.insync.replicas": "2"})
    partition = h.partition()
    assert (partition.at_min_isr, partition.under_min_isr, partition.under_replicated) == (
        True,
        False,
        False,
    )
    h.change(isr=[NODE])
    assert (partition.at_min_isr, partition.under_min_isr, partition.under_replicated) == (
        False,
        True,
        True,
    )
    h.produce(batch(b"a"), acks=1)
    assert partition.log.high_watermark == 0
    h.set_config("t", "min.insync.replicas", "1")
    assert partition.log.high_watermark == 1


async def test_the_high_watermark_stands_still_under_min_isr() -> None:
    """Bug 11 (KAFKA-15583; P12, P20): below min ISR no record becomes visible or acknowledged."""
    c = Cluster(3, min_insync_replicas="2")
    c.create(1, 2, 3)
    waiting = c[1].append(b"a", acks=-1)
    for follower in (2, 3):
        c.fetch(follower)
    c.change(isr=[1])
    c.fetch(2, times=2)
    assert c[1].high_watermark == 0
    assert not waiting.done()
    refused = c[1].append(b"b", acks=-1)
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert c[1].append(b"c", acks=1).error_code == ErrorCode.NONE
    assert c[1].high_watermark == 0
    c.fetch(2, times=2)
    answer(c)
    assert c[1].partition().isr == {1, 2}
    # With a min ISR of 3, which this broker may not have read yet, 3 would be in the ELR.
    assert c[1].high_watermark == 0
    c.change(isr=[1, 2])
    assert c[1].high_watermark == 2
    assert (await waiting).responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_a_leader_that_was_replaced_and_does_not_know_acknowledges_nothing() -> None:
    """F5, F8, F35 (P3, P15): it may propose an ISR without any other member; the answer decides."""
    c = Cluster(3, min_insync_replicas="1")
    c.create(1, 2, 3)
    c.fetch(2)
    c.fetch(3)
    c.change(2, 3, leader=2, isr=[2, 3])  # 1 is stopped, or cut off
    waiting = c[1].append(b"never", acks=-1)
    c[2].append(b"instead")
    c.fetch(3, 2, times=2)
    assert c[2].high_watermark == 1
    c.clock.advance(2 * LAG_MS)
    assert expire(c) == {1}
    assert c[1].high_watermark == 0
    assert not answer(c, ErrorCode.FENCED_LEADER_EPOCH)
    assert c[1].high_watermark == 0
    assert not waiting.done()
    # The followers are in another epoch: their fetches prove nothing here.
    assert c[1].fetch(0, current_leader_epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    c.catch_up(1)
    answered = (await waiting).responses[0].partition_responses[0]
    assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    c.fetch(1, 2, times=3)
    assert c[1].values == [b"instead"]


async def test_uncleanly_elected_leader_reports_recovered_with_its_next_isr_change() -> None:
    """KIP-704: its log is the partition's log from now on.

    The leader reports that with its next ISR change, which usually follows at once.
    """
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.change(leader=2, isr=[2], leader_recovery_state=1)
    assert c[2].proposals == []
    assert expire(c, 2) == {2}
    ((_, proposal),) = c[2].proposals
    assert (proposal.broker_ids, proposal.recovery_state) == ({2}, 0)


async def test_p3_isr_is_not_shrunk_while_a_proposal_is_open() -> None:
    """P3: one proposal at a time; its answer may change the ISR."""
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    c.change(leader=2, isr=[2], leader_recovery_state=1)
    assert expire(c, 2) == {2}
    (_, first), *others = c[2].proposals
    assert expire(c, 2) is None
    assert c[2].partition().proposal is first and not others


async def test_an_answer_about_an_isr_of_an_older_epoch_changes_nothing() -> None:
    """P15: the metadata contains a newer state of the partition by then."""
    c = Cluster(2)
    c.create(1, 2)
    c.clock.advance(2 * LAG_MS)
    assert expire(c) == {1}
    before = replica_state(c[1].partition())
    answer(c, leader_epoch=-1)
    answer(c, partition_epoch=-1)
    assert replica_state(c[1].partition()) == before
    answer(c)
    assert c[1].partition().isr == {1}


async def test_fetch_of_a_broker_without_a_replica_records_no_follower_state() -> None:
    """KAFKA-9672: the broker was a replica when it sent the fetch."""
    h = Harness()
    h.create_topic(replicas=[NODE])
    partition = h.partition()
    assert not fetched(h, partition, offset=0, broker_epoch=1)
    assert OTHER not in partition.remote


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("isr", frozenset({NODE, 9}), "ISR within the maximal ISR"),
        ("node_id", 9, "a leader is a replica"),
    ],
)
async def test_a_broken_promise_of_its_own_is_named(name: str, value: Any, words: str) -> None:
    h = Harness()
    h.create_topic()
    partition = h.partition()
    partition.validate()
    setattr(partition, name, value)
    with pytest.raises(InvariantViolated, match=f"t-0: not {words}"):
        partition.validate()
