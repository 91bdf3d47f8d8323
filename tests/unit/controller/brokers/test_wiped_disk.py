"""F22 and P11: a broker comes back under its id with an empty, newly formatted disk.

A replica that was in sync on the old disk is not in sync on the new one. A replica is where its
directory is: without that directory the broker leaves the ISR and is not elected. If it was the
last member, the partition waits for the old disk or for an operator.
"""

from __future__ import annotations

import pytest

from controller.brokers.directories import decide_assign_directories
from controller.brokers.registration import decide_unregister_broker
from controller.elections.on_request import decide_elect_leaders
from controller.elections.upkeep import decide_rebalance, decide_unclean_elections
from controller.topics.isr import decide_alter_partition
from controller.topics.reassignments import decide_reassign
from metalog.image.features import DIRECTORY_ASSIGNMENT_LEVEL
from metalog.image.values import LeaderRecoveryState
from protocol.errors import ErrorCode
from protocol.ids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from testkit.memory.controller import Cluster, directory

PREFERRED, UNCLEAN = 0, 1
NEW, SECOND, THIRD = b"new disk........", b"second disk.....", b"third disk......"
GONE = "does not have the log directory of its replica online"


def wipe(cluster: Cluster, broker_id: int, *disks: bytes) -> None:
    """Register the next incarnation of a fenced broker with these disks, or with an empty one."""
    life = int.from_bytes(cluster.image.cluster.brokers[broker_id].incarnation_id[8:], "big") + 1
    cluster.register(broker_id, life=life, log_dirs=list(disks or (NEW,)))
    cluster.heartbeat(broker_id)
    assert not cluster.image.cluster.brokers[broker_id].fenced


def elect(cluster: Cluster, kind: int) -> tuple[ErrorCode, str | None]:
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])],
    )
    (outcome,) = cluster.run(lambda view: decide_elect_leaders(view, request))
    return outcome.error, outcome.message


def propose(cluster: Cluster, *isr: int, partition_epoch: int | None = None) -> ErrorCode:
    """Propose an ISR in the name of the leader."""
    partition, brokers = cluster.partition("t"), cluster.image.cluster.brokers
    proposal = AlterPartitionRequest.PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch if partition_epoch is None else partition_epoch,
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker_id=b, broker_epoch=brokers[b].epoch)
            for b in isr
        ],
    )
    topic_id = cluster.image.topics.by_name["t"].id
    request = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=brokers[partition.leader].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[proposal])],
    )
    (outcome,) = cluster.run(lambda view: decide_alter_partition(view, request))
    return outcome.partitions[0].error


def say(cluster: Cluster, broker_id: int, place: bytes) -> ErrorCode:
    """Report the directory of the broker's replica (AssignReplicasToDirs)."""
    Request = AssignReplicasToDirsRequest
    named = Request.TopicData(
        topic_id=cluster.image.topics.by_name["t"].id,
        partitions=[Request.PartitionData(partition_index=0)],
    )
    request = Request(
        broker_id=broker_id,
        broker_epoch=cluster.image.cluster.brokers[broker_id].epoch,
        directories=[Request.DirectoryData(id=place, topics=[named])],
    )
    (outcome,) = cluster.run(lambda view: decide_assign_directories(view, request))
    return outcome.error


@pytest.fixture
def two() -> Cluster:
    """Return a cluster with replicas on 2 and 3: 3 stopped first, then 2, whose disk is replaced.
    Both are back."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [2, 3])
    cluster.fence(3)
    cluster.fence(2)
    wipe(cluster, 3, directory(3))
    wipe(cluster, 2)
    return cluster


# --- two replicas -------------------------------------------------------------------------------


def test_f22_the_last_in_sync_replica_on_a_new_disk_is_not_elected(two: Cluster) -> None:
    assert two.state("t")[:2] == (-1, (2,))
    assert two.partition("t").directories == (directory(2), directory(3))
    for _ in range(2):
        two.heartbeat(2)
        two.heartbeat(3)
        two.run(decide_rebalance)
        two.run(decide_unclean_elections)
    assert elect(two, PREFERRED) == (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker 2 {GONE}")
    two.fence(3)
    wipe(two, 3, directory(3))
    assert two.state("t")[:2] == (-1, (2,))


def test_the_old_disk_is_elected_cleanly_when_it_is_back(two: Cluster) -> None:
    two.fence(2)
    wipe(two, 2, directory(2))
    assert two.state("t")[:2] == (2, (2,))
    assert two.partition("t").recovery_state == LeaderRecoveryState.RECOVERED


def test_an_operator_elects_the_full_copy(two: Cluster) -> None:
    assert elect(two, UNCLEAN) == (ErrorCode.NONE, None)
    assert two.state("t")[:2] == (3, (3,))
    assert two.partition("t").recovery_state == LeaderRecoveryState.RECOVERING
    assert two.partition("t").directories == (directory(2), directory(3))


def test_unclean_election_by_configuration_elects_the_full_copy() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [2, 3], unclean_leader_election_enable="true")
    topic_id = cluster.image.topics.by_name["t"].id
    cluster.apply([PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2])])
    cluster.fence(2)
    wipe(cluster, 2)
    assert cluster.state("t")[:2] == (3, (3,))


def test_replica_that_rejoins_isr_is_recorded_with_its_directory(two: Cluster) -> None:
    elect(two, UNCLEAN)
    assert propose(two, 2, 3) is ErrorCode.NONE
    assert two.state("t")[:2] == (3, (2, 3))
    assert two.partition("t").directories == (NEW, directory(3))
    two.fence(3)
    assert two.state("t")[:2] == (2, (2,))


def test_the_new_disk_is_not_taken_down_while_the_partition_waits(two: Cluster) -> None:
    """Recording the new directory would leave the empty replica alone in the ISR, and electable."""
    before = two.partition("t")
    assert say(two, 2, NEW) is ErrorCode.INELIGIBLE_REPLICA
    assert two.partition("t") is before
    elect(two, UNCLEAN)
    assert say(two, 2, NEW) is ErrorCode.NONE
    assert two.state("t")[:2] == (3, (3,))
    assert two.partition("t").directories == (NEW, directory(3))


def test_unregistering_does_not_help_the_new_disk_either(two: Cluster) -> None:
    two.fence(2)
    two.run(lambda view: decide_unregister_broker(view, 2))
    two.register(2, life=9, log_dirs=[NEW])
    two.heartbeat(2)
    assert two.state("t")[:2] == (-1, (2,))


def test_a_reassignment_away_from_the_new_disk_ends_with_an_election(two: Cluster) -> None:
    """Reassignment is the operator's way to remove the broker for good."""
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=0, replicas=[3, 1]
    )
    request = AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[wanted])]
    )
    two.run(lambda view: decide_reassign(view, request))
    assert elect(two, UNCLEAN) == (ErrorCode.NONE, None)
    assert propose(two, 3, 1) is ErrorCode.NONE
    assert two.partition("t").replicas == (3, 1)
    assert two.state("t")[:2] == (3, (3, 1))


# --- one replica --------------------------------------------------------------------------------


@pytest.fixture
def one() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_topic("t", [2], unclean_leader_election_enable="true")
    cluster.fence(2)
    wipe(cluster, 2)
    return cluster


def test_the_only_replica_on_a_new_disk_waits_for_an_operator(one: Cluster) -> None:
    """As in Kafka, an empty partition is not served as if its records were there. Here no
    configuration allows it: unclean election is about replicas that lag, not about lost ones."""
    one.heartbeat(2)
    one.run(decide_unclean_elections)
    assert one.state("t")[:2] == (-1, (2,))
    assert say(one, 2, NEW) is ErrorCode.INELIGIBLE_REPLICA
    assert elect(one, PREFERRED)[0] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_unclean_election_allows_empty_replica_to_lead(one: Cluster) -> None:
    assert elect(one, UNCLEAN) == (ErrorCode.NONE, None)
    assert one.state("t")[:2] == (2, (2,))
    partition = one.partition("t")
    assert partition.directories == (NEW,)
    assert partition.recovery_state == LeaderRecoveryState.RECOVERING


def test_unclean_election_without_live_replica_is_refused(one: Cluster) -> None:
    one.fence(2)
    assert elect(one, UNCLEAN) == (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "broker 2 is fenced",
    )


def test_broker_with_several_disks_assigns_directory_after_election() -> None:
    cluster = Cluster()
    cluster.register(1, log_dirs=[SECOND, THIRD])
    cluster.heartbeat(1)
    cluster.start(2)
    cluster.create_topic("t", [1])
    assert say(cluster, 1, THIRD) is ErrorCode.NONE
    cluster.fence(1)
    wipe(cluster, 1, SECOND, NEW)
    assert cluster.state("t")[:2] == (-1, (1,))
    assert elect(cluster, UNCLEAN)[0] is ErrorCode.NONE
    assert cluster.partition("t").directories == (DIRECTORY_UNASSIGNED,)
    assert say(cluster, 1, NEW) is ErrorCode.NONE
    assert cluster.state("t")[:2] == (1, (1,))


# --- three replicas, and brokers with several disks -----------------------------------------------


@pytest.fixture
def three() -> Cluster:
    """Return a cluster of three, with broker 1's replica on the second of its two disks."""
    cluster = Cluster()
    cluster.register(1, log_dirs=[SECOND, THIRD])
    cluster.heartbeat(1)
    cluster.start(2, 3)
    cluster.create_topic("t", [1, 2, 3])
    assert say(cluster, 1, THIRD) is ErrorCode.NONE
    return cluster


def test_a_new_disk_leaves_the_isr_where_others_are(three: Cluster) -> None:
    three.fence(2)
    wipe(three, 2)
    assert three.state("t")[:2] == (1, (1, 3))
    assert propose(three, 1, 2, 3) is ErrorCode.NONE
    assert three.partition("t").directories == (THIRD, NEW, directory(3))


def test_broker_with_several_disks_joins_isr_only_after_assignment(three: Cluster) -> None:
    three.fence(1)
    wipe(three, 1, SECOND, NEW)
    assert three.state("t")[:2] == (2, (2, 3))
    assert propose(three, 1, 2, 3) is ErrorCode.INELIGIBLE_REPLICA
    assert say(three, 1, NEW) is ErrorCode.NONE
    assert three.state("t")[:2] == (2, (2, 3)), "said, and not in sync for it"
    assert propose(three, 1, 2, 3) is ErrorCode.NONE
    assert three.partition("t").directories[0] == NEW


def test_a_disk_that_failed_is_looked_at_in_later_elections(three: Cluster) -> None:
    """The last member of the ISR is on the failed disk: no later election chooses it."""
    assert propose(three, 1) is ErrorCode.NONE
    three.heartbeat(1, offline_log_dirs=[THIRD])
    assert three.state("t")[:2] == (-1, (1,))
    for broker_id in (2, 3):
        three.fence(broker_id)
        wipe(three, broker_id, directory(broker_id))
    assert three.state("t")[:2] == (-1, (1,))
    assert elect(three, PREFERRED) == (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker 1 {GONE}")
    # the disk is repaired
    three.fence(1)
    wipe(three, 1, SECOND, THIRD)
    assert three.state("t")[:2] == (1, (1,))


def test_a_proposal_from_before_the_disk_failed_comes_too_late(three: Cluster) -> None:
    """The replica was catching up; its broker has one disk left, without the replica."""
    three.fence(1)
    wipe(three, 1, SECOND, THIRD)
    seen = three.partition("t").partition_epoch
    three.heartbeat(1, offline_log_dirs=[THIRD])
    assert propose(three, 1, 2, 3, partition_epoch=seen) is ErrorCode.INVALID_UPDATE_VERSION
    assert three.partition("t").directories[0] == THIRD


def test_the_same_process_without_one_of_its_disks(three: Cluster) -> None:
    """The process registers again, as with changed endpoints, and keeps the replicas on its other
    disk."""
    three.create_topic("u", [1, 2])
    three.register(1, log_dirs=[SECOND])
    assert three.state("t")[:2] == (2, (2, 3))
    assert three.state("u")[:2] == (1, (1, 2))
    assert not three.image.cluster.brokers[1].fenced


def test_a_disk_lost_twice_stays_on_record(three: Cluster) -> None:
    assert propose(three, 1) is ErrorCode.NONE
    three.heartbeat(1, offline_log_dirs=[THIRD])
    before = three.partition("t")
    assert say(three, 1, b"not there either") is ErrorCode.NONE
    assert three.partition("t") is before


# --- a move that is taken back --------------------------------------------------------------------


@pytest.fixture
def moved() -> Cluster:
    """Return a cluster whose only replica is on the second disk, with a failed move.

    The broker reported a move to the third disk, which failed before the copy there took over.
    """
    cluster = Cluster()
    cluster.register(1, log_dirs=[SECOND, THIRD, NEW])
    cluster.heartbeat(1)
    cluster.create_topic("t", [1])
    assert (say(cluster, 1, SECOND), say(cluster, 1, THIRD)) == (ErrorCode.NONE, ErrorCode.NONE)
    cluster.heartbeat(1, offline_log_dirs=[THIRD])
    assert cluster.state("t")[:2] == (-1, (1,))
    return cluster


def test_replica_whose_move_is_taken_back_leads_again(moved: Cluster) -> None:
    """Within one broker epoch it is the same replica, with all of its records."""
    assert say(moved, 1, SECOND) is ErrorCode.NONE
    assert moved.state("t")[:2] == (1, (1,))
    assert moved.partition("t").recovery_state == LeaderRecoveryState.RECOVERED


def test_replica_that_turns_up_where_it_never_was_is_a_new_one(moved: Cluster) -> None:
    assert say(moved, 1, NEW) is ErrorCode.INELIGIBLE_REPLICA
    assert moved.state("t")[:2] == (-1, (1,))


def test_move_is_not_taken_back_by_another_process(moved: Cluster) -> None:
    """P11: nothing proves that the second disk is the same one, with the same records."""
    moved.fence(1)
    wipe(moved, 1, SECOND, NEW)
    assert say(moved, 1, SECOND) is ErrorCode.INELIGIBLE_REPLICA
    assert moved.state("t")[:2] == (-1, (1,))


def test_move_that_the_controller_does_not_know_is_not_taken_back(moved: Cluster) -> None:
    """A controller that has taken over refuses the report, as for a replica on an empty disk."""
    moved.directory_moves.clear()
    assert say(moved, 1, SECOND) is ErrorCode.INELIGIBLE_REPLICA


# --- old logs -----------------------------------------------------------------------------------


def test_leader_elected_by_older_controller_keeps_leading(two: Cluster) -> None:
    """A controller that ignored directories wrote the log: its elected leader keeps leading.

    Another member leaves the ISR with the next change, and comes back with its directory.
    """
    topic_id = two.image.topics.by_name["t"].id
    two.apply([PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2, isr=[2])])
    assert say(two, 2, NEW) is ErrorCode.NONE
    assert two.state("t")[:2] == (2, (2,))
    assert two.partition("t").directories == (NEW, directory(3))
    wrong = [NEW, b"gone for ever..."]
    two.apply(
        [PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2, 3], directories=wrong)]
    )
    assert say(two, 3, directory(3)) is ErrorCode.NONE
    assert two.state("t")[:2] == (2, (2,))
    assert propose(two, 2, 3) is ErrorCode.NONE


def test_records_from_before_directories_count_as_online() -> None:
    cluster = Cluster(metadata_version=DIRECTORY_ASSIGNMENT_LEVEL - 1)
    cluster.start(2, 3)
    cluster.create_topic("t", [2, 3])
    assert cluster.partition("t").directories == (DIRECTORY_MIGRATING,) * 2
    cluster.fence(2)
    assert cluster.state("t")[:2] == (3, (3,))
    wipe(cluster, 2)
    cluster.fence(3)
    wipe(cluster, 3)
    assert cluster.state("t")[:2] == (3, (3,)), "nobody can know"
