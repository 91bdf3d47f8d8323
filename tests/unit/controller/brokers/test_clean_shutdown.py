"""Clean and unclean shutdowns: the previous broker epoch in a registration, and the ELR (KIP-966;
P11)."""

from __future__ import annotations

from typing import Any

import pytest

from controller.brokers.registration import decide_unregister_broker
from protocol.metadata import UnregisterBrokerRecord
from testkit.memory.controller import Cluster, directory, incarnation


def below_minimum() -> tuple[Cluster, int]:
    """Return a cluster with broker 2 in the ELR, and the broker epoch that broker 2 had."""
    cluster = Cluster(elr=True, min_insync_replicas="2")
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    epoch = cluster.image.cluster.brokers[2].epoch
    cluster.fence(2)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1,), (2,))
    return cluster, epoch


def test_the_epoch_that_it_ran_with_proves_a_clean_shutdown() -> None:
    cluster, epoch = below_minimum()
    cluster.register(2, life=2, previous_broker_epoch=epoch)
    assert cluster.partition("t").elr == (2,)
    cluster.fence(1)
    cluster.heartbeat(2)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


@pytest.mark.parametrize("wrong", [-1, 0, 1, 2**63 - 1])
def test_any_other_epoch_does_not(wrong: int) -> None:
    """P11: the epoch of an earlier incarnation, or -1 for none, proves no clean shutdown."""
    cluster, epoch = below_minimum()
    assert wrong != epoch
    cluster.register(2, life=2, previous_broker_epoch=wrong)
    assert cluster.partition("t").elr == ()
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1


def test_the_same_process_that_registers_again_has_lost_nothing() -> None:
    """KAFKA-16952: a process whose endpoints changed sends the previous epoch that it read at its
    start."""
    cluster, epoch = below_minimum()
    cluster.register(2, previous_broker_epoch=-1)
    assert cluster.image.cluster.brokers[2].incarnation_id == incarnation(2)
    assert cluster.image.cluster.brokers[2].epoch == epoch
    assert cluster.partition("t").elr == (2,)


def test_a_wiped_disk_under_an_old_id_is_not_eligible() -> None:
    cluster, _ = below_minimum()
    cluster.register(2, life=2, log_dirs=[b"another disk 16b"], previous_broker_epoch=-1)
    assert cluster.partition("t").elr == ()


def test_nor_is_one_with_a_copied_marker() -> None:
    """KIP-858: the epoch is right, but the replica's directory is gone: the replica is not
    elected."""
    cluster, epoch = below_minimum()
    assert cluster.partition("t").directory_of(2) == directory(2)
    cluster.register(2, life=2, log_dirs=[b"another disk 16b"], previous_broker_epoch=epoch)
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1


# --- no registration is known --------------------------------------------------------------------


def unregister(cluster: Cluster, broker_id: int) -> None:
    cluster.run(lambda view: decide_unregister_broker(view, broker_id))


def forget(cluster: Cluster, broker_id: int) -> None:
    """Remove the registration without changing the ELR, as Apache Kafka's controller or an older
    version of ours does."""
    epoch = cluster.image.cluster.brokers[broker_id].epoch
    cluster.apply([UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)])


def test_unregistered_broker_leaves_the_elr() -> None:
    """P11: removing the registration removes the epoch that could prove a clean shutdown."""
    cluster, _ = below_minimum()
    unregister(cluster, 2)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1,), ())


def test_unregistered_running_broker_leaves_isr_and_elr() -> None:
    """P11: the broker's process still runs, and may lose records that it has not flushed."""
    cluster = Cluster(elr=True, min_insync_replicas="2")
    cluster.start(1, 2)
    cluster.create_topic("t", [2, 1])
    unregister(cluster, 2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())


def test_unregistered_last_member_is_the_last_known_leader() -> None:
    """KIP-966: ISR and ELR are empty, and the last leader stays visible to the operator."""
    cluster = Cluster(elr=True, min_insync_replicas="1")
    cluster.start(1, 2)
    cluster.create_topic("t", [2])
    unregister(cluster, 2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), ())
    assert partition.last_known_elr == (2,)


@pytest.mark.parametrize("previous", ["none", "its own", "zero"])
@pytest.mark.parametrize("removal", [unregister, forget])
def test_registration_without_a_known_one_is_unclean(removal: Any, previous: str) -> None:
    """P11: whatever previous epoch it names, the broker does not count as a holder of all
    records."""
    cluster, epoch = below_minimum()
    removal(cluster, 2)
    named = {"none": -1, "its own": epoch, "zero": 0}[previous]
    cluster.register(2, life=2, previous_broker_epoch=named)
    assert cluster.partition("t").elr == ()
    cluster.fence(1)
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.elr) == (-1, (1,))
    cluster.register(1, life=2, previous_broker_epoch=cluster.image.cluster.brokers[1].epoch)
    cluster.heartbeat(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))


def test_registration_of_the_same_process_after_its_removal_is_unclean() -> None:
    """P11: nothing proves that it is the same process, and another broker may lead its
    partitions."""
    cluster, _ = below_minimum()
    forget(cluster, 2)
    cluster.register(2)
    assert cluster.partition("t").elr == ()


def test_registration_without_a_known_one_keeps_the_last_member_without_elr() -> None:
    """P10: without ELR the last member stays in the ISR, however its broker ended."""
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    cluster.fence(1)
    unregister(cluster, 2)
    assert cluster.state("t")[:2] == (-1, (2,))
    cluster.register(2, life=2)
    cluster.heartbeat(2)
    assert cluster.state("t")[:2] == (2, (2,))


def test_first_registration_of_a_new_broker_writes_nothing_else() -> None:
    """A broker in no ISR and no ELR changes no partition when it registers."""
    cluster = Cluster(elr=True)
    cluster.start(1, 2)
    cluster.create_topic("t", *[[1, 2]] * 300)
    before = cluster.next_offset
    assert cluster.register(3) == before
    assert cluster.next_offset == before + 1
