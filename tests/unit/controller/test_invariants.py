"""Random histories of a cluster, with all invariants checked after every operation.

Numbers are those of the project's list of invariants: P9 ISR and ELR, P10 no fenced broker in an
ISR, P11 unclean shutdown, P15 epochs, P16 broker epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.brokers.directories import decide_assign_directories
from controller.brokers.registration import decide_unregister_broker
from controller.configs.topic_settings import min_isr_of
from controller.elections.eligibility import is_online
from controller.elections.elr import effective_min_isr
from controller.elections.on_request import decide_elect_leaders
from controller.elections.upkeep import decide_rebalance, decide_unclean_elections
from controller.topics.assignment import is_active
from controller.topics.change import TopicKey, decide_delete_topics
from controller.topics.isr import decide_alter_partition
from controller.topics.reassignments import decide_reassign, original_replicas
from metalog.image.features import ELR_VERSION
from metalog.image.values import NO_LEADER, ElectedAs, PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from testkit.memory.controller import SESSION_TIMEOUT_MS, Cluster, registration

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")
brokers = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)
replica_lists = st.lists(brokers, min_size=1, max_size=4, unique=True)

PartitionKey = tuple[bytes, int]
UNCLEAN = (ElectedAs.UNCLEAN, ElectedAs.LAST_KNOWN_LEADER)


class WatchedCluster(Cluster):
    """A cluster that tracks replicas with all committed records: `whole` has (broker, its disk) of
    each."""

    def __init__(self, disks: dict[int, int], **properties: str) -> None:
        self.disks = disks
        self.whole: dict[PartitionKey, set[tuple[int, int]]] = {}
        self.unclean_elections = 0
        super().__init__(**properties)

    def apply(self, records: Sequence[Any]) -> None:
        for record in records:
            super().apply([record])
            topics = self.image.topics.by_id
            if isinstance(record, PartitionRecord):
                key = (record.topic_id, record.partition_id)
                self.whole[key] = {(broker, self.disks[broker]) for broker in record.isr}
            elif isinstance(record, PartitionChangeRecord):
                key = (record.topic_id, record.partition_id)
                self._changed(key, topics[record.topic_id].partitions[record.partition_id], record)

    def caught_up(self, key: PartitionKey, members: set[int]) -> None:
        """Record that a leader has observed these replicas with all records."""
        others = {one for one in self.whole[key] if one[0] not in members}
        self.whole[key] = others | {(broker, self.disks[broker]) for broker in members}

    def _changed(
        self, key: PartitionKey, after: PartitionImage, record: PartitionChangeRecord
    ) -> None:
        # Replicas outside ISR and ELR may lack records that are committed from now on.
        counted = {*after.isr, *after.elr}
        self.whole[key] = {one for one in self.whole[key] if one[0] in counted}
        if record.leader < 0:
            return
        leader = (after.leader, self.disks[after.leader])
        if record.election_kind in UNCLEAN:
            self.unclean_elections += 1
            self.whole[key] = {leader}
        # F22: no clean election of a disk that does not hold what was committed.
        assert leader in self.whole[key], f"{after} is led by a new disk"


class ControllerMachine(RuleBasedStateMachine):
    """Valid and invalid operations of brokers and operators."""

    elr = False

    def __init__(self) -> None:
        super().__init__()
        self.disks = dict.fromkeys(BROKERS, 1)
        self.cluster = WatchedCluster(self.disks, kraftbox_broker_connection_loss_fence_ms="100")
        self.lives = dict.fromkeys(BROKERS, 0)
        self.epochs: dict[int, int] = {}
        self.seen: dict[PartitionKey, PartitionImage] = {}

    @initialize(min_isr=st.sampled_from([1, 2, 3]), unclean=st.booleans())
    def begin(self, min_isr: int, unclean: bool) -> None:
        if self.elr:
            self.cluster.apply([FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
        self.cluster.set(min_insync_replicas=min_isr, unclean_election=unclean)
        for broker in BROKERS[:3]:
            self.register(broker, new_life=True, clean=True, disk=1)
            self.come_up(broker)
        self.cluster.create_topic("a", [1, 2, 3], [2, 1, 3])
        self.cluster.create_topic("b", [3, 2], [2, 3])

    def features(self) -> list[BrokerRegistrationRequest.Feature]:
        elr = BrokerRegistrationRequest.Feature(name=ELR_VERSION, max_supported_version=1)
        return [*registration(1).features, *([elr] if self.elr else [])]

    # --- brokers ---

    @rule(broker=brokers, new_life=st.booleans(), clean=st.booleans(), disk=st.sampled_from([1, 2]))
    def register(self, broker: int, new_life: bool, clean: bool, disk: int) -> None:
        """Register a broker; a new process may have another disk than the one before, or an earlier
        one."""
        existing = self.cluster.image.cluster.brokers.get(broker)
        if new_life or self.lives[broker] == 0:
            self.lives[broker] += 1
        else:
            disk = self.disks[broker]
        # The proof of a clean shutdown is a file on the disk.
        clean = clean and disk == self.disks[broker]
        before, self.disks[broker] = self.disks[broker], disk
        previous = existing.epoch if clean and existing is not None else -1
        try:
            epoch = self.cluster.register(
                broker,
                life=self.lives[broker],
                previous_broker_epoch=previous,
                features=self.features(),
                log_dirs=[bytes([broker, disk]) * 8],
            )
        except ApiError:
            self.disks[broker] = before
            if new_life:
                self.lives[broker] -= 1
            return
        if existing is not None and epoch == existing.epoch:
            return
        # P16
        assert epoch > self.epochs.get(broker, -1)
        self.epochs[broker] = epoch
        if self.elr and existing is not None and not clean:
            # P11
            for partition in self.partitions().values():
                assert broker not in partition.isr
                assert broker not in partition.elr
                assert partition.leader != broker

    @rule(
        broker=brokers,
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        behind=st.sampled_from([0, 0, 0, 5]),
    )
    def heartbeat(self, broker: int, want_fence: bool, want_shut_down: bool, behind: int) -> None:
        if broker in self.cluster.image.cluster.brokers:
            reply = self.cluster.heartbeat(
                broker,
                want_fence=want_fence and behind == 0,
                want_shut_down=want_shut_down,
                current_metadata_offset=self.cluster.next_offset - 1 - behind,
            )
            if not reply.is_fenced and want_shut_down:
                self.cluster.heartbeats.begin_shutdown(broker, self.cluster.next_offset - 1)

    @rule(broker=brokers)
    def come_up(self, broker: int) -> None:
        if broker in self.cluster.image.cluster.brokers:
            self.cluster.heartbeat(broker)

    @rule(broker=brokers)
    def say_directories(self, broker: int) -> None:
        """Report the directories of a broker's replicas: its only directory, whatever is on
        record."""
        registered = self.cluster.image.cluster.brokers.get(broker)
        if registered is None or not registered.directories:
            return
        topics = [
            AssignReplicasToDirsRequest.TopicData(
                topic_id=topic.id,
                partitions=[
                    AssignReplicasToDirsRequest.PartitionData(partition_index=index)
                    for index in sorted(topic.partitions)
                ],
            )
            for _, topic in sorted(self.cluster.image.topics.by_id.items())
        ]
        request = AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=registered.epoch,
            directories=[
                AssignReplicasToDirsRequest.DirectoryData(
                    id=registered.directories[0], topics=topics
                )
            ],
        )
        for outcome in self.cluster.run(lambda view: decide_assign_directories(view, request)):
            partition = self.partitions()[outcome.topic_id, outcome.partition_id]
            said = partition.directory_of(broker) == registered.directories[0]
            assert said == (outcome.error is ErrorCode.NONE)

    @rule(silent=st.sets(brokers))
    def pass_time(self, silent: set[int]) -> None:
        for part in (1, 2):
            self.cluster.advance(SESSION_TIMEOUT_MS / 2)
            for broker in self.cluster.image.cluster.brokers:
                if broker not in silent:
                    self.cluster.touch(broker)
            if part == 2:
                self.cluster.fence_expired()

    @rule()
    def pass_time_unnoticed(self) -> None:
        """Let sessions expire while the timer that fences their brokers has not fired yet."""
        self.cluster.advance(SESSION_TIMEOUT_MS)

    @rule(broker=brokers)
    def unregister(self, broker: int) -> None:
        try:
            self.cluster.run(lambda view: decide_unregister_broker(view, broker))
        except ApiError:
            return

    # --- topics ---

    @rule(name=topics, first=replica_lists, second=replica_lists)
    def create(self, name: str, first: list[int], second: list[int]) -> None:
        try:
            self.cluster.create_topic(name, first, (second * 4)[: len(first)])
        except ApiError:
            return

    @rule(name=topics)
    def delete(self, name: str) -> None:
        self.cluster.run(lambda view: decide_delete_topics(view, [TopicKey(name)]))

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), behind=st.sampled_from([0, 0, 0, 0, 1]))
    def alter_isr(self, data: st.DataObject, behind: int) -> None:
        partitions = self.partitions()
        topic_id, index = data.draw(st.sampled_from(sorted(partitions)))
        partition = partitions[topic_id, index]
        leader = self.cluster.image.cluster.brokers.get(partition.leader)
        if leader is None:
            return
        members = data.draw(st.sets(st.sampled_from(partition.replicas)))
        whole = self.cluster.whole[topic_id, index]
        self.cluster.caught_up((topic_id, index), members)
        registered = self.cluster.image.cluster.brokers
        request = AlterPartitionRequest(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=topic_id,
                    partitions=[
                        AlterPartitionRequest.PartitionData(
                            partition_index=index,
                            leader_epoch=partition.leader_epoch,
                            partition_epoch=partition.partition_epoch - behind,
                            new_isr_with_epochs=[
                                AlterPartitionRequest.BrokerState(
                                    broker_id=member,
                                    broker_epoch=registered[member].epoch
                                    if member in registered
                                    else -1,
                                )
                                for member in sorted(members | {leader.id})
                            ],
                        )
                    ],
                )
            ],
        )
        (told,) = self.cluster.run(lambda view: decide_alter_partition(view, request))
        if told.partitions[0].state is None and self.partitions()[topic_id, index] is partition:
            self.cluster.whole[topic_id, index] = whole

    @rule(kind=st.sampled_from([0, 1]))
    def elect(self, kind: int) -> None:
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        self.cluster.run(lambda view: decide_elect_leaders(view, request))

    @rule(
        name=topics,
        goal=st.none() | replica_lists,
        index=st.integers(0, 1),
        may_change=st.booleans(),
    )
    def reassign(self, name: str, goal: list[int] | None, index: int, may_change: bool) -> None:
        topic = self.cluster.image.topics.by_name.get(name)
        before = None if topic is None else topic.partitions.get(index)
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_change,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=name,
                    partitions=[
                        AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=index, replicas=goal
                        )
                    ],
                )
            ],
        )
        unclean_elections = self.cluster.unclean_elections
        (outcome,) = self.cluster.run(lambda view: decide_reassign(view, request))
        if outcome.error is not None or before is None:
            return
        after = self.cluster.partition(name, index)
        unclean = self.cluster.unclean_elections > unclean_elections
        assert goal is None or not unclean, "only a cancellation may elect uncleanly"
        # P23: a reassignment adds no replica to the ISR
        assert unclean or set(after.isr) <= set(before.isr)
        if goal is None:
            assert not after.adding and not after.removing
            assert set(after.replicas) == set(original_replicas(before))
        else:
            assert [r for r in after.replicas if r not in after.removing] == goal
            if not after.adding and not after.removing:
                # it ended: all targets are in sync, or the replicas were the same in another order
                assert set(after.replicas) <= set(after.isr) or (
                    set(after.replicas) == set(before.replicas)
                )

    @rule()
    def keep_up(self) -> None:
        self.cluster.run(decide_rebalance)
        self.cluster.run(decide_unclean_elections)

    @rule(broker=brokers)
    def lose_connection(self, broker: int) -> None:
        """Close a broker's heartbeat connection, and let its fencing time pass without a
        heartbeat."""
        if broker not in self.cluster.image.cluster.brokers:
            return
        connection = object()
        self.cluster.heartbeats.touch(
            broker,
            epoch=self.cluster.image.cluster.brokers[broker].epoch,
            metadata_offset=self.cluster.next_offset - 1,
            monotonic_ms=self.cluster.monotonic_ms,
            connection=connection,
        )
        self.cluster.heartbeats.connection_lost(broker, connection, self.cluster.monotonic_ms)
        self.cluster.advance(self.cluster.settings.connection_loss_fence_ms)
        self.cluster.fence_expired()

    # --- what must hold ---

    @invariant()
    def reassignments_are_consistent(self) -> None:
        """Assert that adding and removing replicas are disjoint subsets of the replicas, and some
        remain."""
        for partition in self.partitions().values():
            assert set(partition.adding) | set(partition.removing) <= set(partition.replicas)
            assert not set(partition.adding) & set(partition.removing)
            assert set(partition.replicas) - set(partition.removing)
            assert original_replicas(partition)
            assert len(set(partition.replicas)) == len(partition.replicas)

    def partitions(self) -> dict[PartitionKey, PartitionImage]:
        return {
            (topic.id, index): partition
            for topic in self.cluster.image.topics.by_id.values()
            for index, partition in topic.partitions.items()
        }

    @invariant()
    def epochs_only_grow(self) -> None:
        """P15: epochs never decrease. Several records may change a partition between two checks."""
        now = self.partitions()
        for key, partition in now.items():
            before = self.seen.get(key)
            if before is None:
                continue
            assert partition.leader_epoch >= before.leader_epoch
            assert partition.partition_epoch >= before.partition_epoch
            if partition != before:
                assert partition.partition_epoch > before.partition_epoch
            if partition.leader != before.leader:
                assert partition.leader_epoch > before.leader_epoch
        self.seen = now

    @invariant()
    def isr_and_elr_are_valid(self) -> None:
        """P9: ISR and ELR are disjoint subsets of the replicas, and an ISR at min ISR has no
        ELR."""
        view = self.cluster.view()
        for topic in self.cluster.image.topics.by_id.values():
            for partition in topic.partitions.values():
                replicas = set(partition.replicas)
                assert len(set(partition.isr)) == len(partition.isr)
                assert set(partition.isr) | set(partition.elr) <= replicas
                assert not set(partition.isr) & set(partition.elr)
                assert len(partition.directories) == len(partition.replicas)
                needed = effective_min_isr(min_isr_of(view, topic.name), len(replicas))
                if len(partition.isr) >= needed or not self.elr:
                    assert partition.elr == partition.last_known_elr == ()
                if not self.elr:
                    assert partition.isr

    def may_lead(self, partition: PartitionImage, broker: int) -> bool:
        """Return whether a broker is registered, unfenced, not shutting down, and has the replica's
        directory."""
        registered = self.cluster.image.cluster.brokers.get(broker)
        directory = partition.directory_of(broker)
        assert directory is not None
        return registered is not None and is_active(registered) and is_online(registered, directory)

    @invariant()
    def nobody_fenced_is_in_an_isr(self) -> None:
        """P10, F22: without ELR the last member stays in the ISR, and then there is no leader."""
        for partition in self.partitions().values():
            gone = [member for member in partition.isr if not self.may_lead(partition, member)]
            if gone:
                assert not self.elr
                assert partition.isr == tuple(gone)
                assert len(gone) == 1
                assert partition.leader == NO_LEADER

    @invariant()
    def leaders_are_in_the_isr_and_missing_only_without_candidates(self) -> None:
        for partition in self.partitions().values():
            if partition.leader != NO_LEADER:
                assert partition.leader in partition.isr
                assert self.may_lead(partition, partition.leader)
                continue
            candidates = partition.isr or partition.elr
            assert not any(self.may_lead(partition, member) for member in candidates)


class ElrMachine(ControllerMachine):
    elr = True


FEW = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

TestWithoutElr = ControllerMachine.TestCase
TestWithoutElr.settings = FEW
TestWithElr = ElrMachine.TestCase
TestWithElr.settings = FEW
