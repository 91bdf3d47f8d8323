"""What a registration says of the process before it, and who stays eligible (KIP-966; P11)."""

from __future__ import annotations

import pytest

from testkit.memory.controller import Cluster, directory, incarnation


def below_minimum() -> tuple[Cluster, int]:
    """Broker 2 is in the ELR; the cluster, and the epoch that it ran with."""
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
    """An earlier life's, or one that was never registered (-1)."""
    cluster, epoch = below_minimum()
    assert wrong != epoch
    cluster.register(2, life=2, previous_broker_epoch=wrong)
    assert cluster.partition("t").elr == ()
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1


def test_the_same_process_that_registers_again_has_lost_nothing() -> None:
    """KAFKA-16952: its endpoints changed. It says what the file said when it started."""
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
    """The epoch is right, and the replica's directory is gone: nobody elects it (KIP-858)."""
    cluster, epoch = below_minimum()
    assert cluster.partition("t").directory_of(2) == directory(2)
    cluster.register(2, life=2, log_dirs=[b"another disk 16b"], previous_broker_epoch=epoch)
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1
