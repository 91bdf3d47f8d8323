"""Brokers of many partitions, which leave ISRs and take over leadership in several steps.

After each step the log may end, a heartbeat may arrive, or a leader may change its ISR.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from controller.brokers.registration import (
    BrokerState,
    HeartbeatReply,
    decide_heartbeat,
    decide_register_broker,
    decide_unregister_broker,
)
from controller.decision import Decide, Decision, R
from controller.elections.triggers import CHANGES_PER_STEP
from controller.writer.activities import Vacancies
from metalog.image.values import NO_LEADER, PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.metadata import PartitionChangeRecord, UnregisterBrokerRecord
from testkit.memory.controller import SESSION_TIMEOUT_MS, Cluster, directory, registration

TOPICS = ("a", "b")
PER_TOPIC = CHANGES_PER_STEP
"""Partitions that take two full steps, and a third one that finds nothing left."""


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(elr=True)
    cluster.start(1, 2, 3)
    for name in TOPICS:
        cluster.create_topic(name, *([1, 2, 3] for _ in range(PER_TOPIC)), min_insync_replicas="2")
    return cluster


def partitions(cluster: Cluster) -> Iterator[PartitionImage]:
    for name in TOPICS:
        yield from cluster.image.topics.by_name[name].partitions.values()


def holding(cluster: Cluster, broker: int) -> int:
    """Return the number of ISRs and ELRs that contain the broker."""
    return sum(broker in (*p.isr, *p.elr) for p in partitions(cluster))


def led(cluster: Cluster) -> int:
    return sum(p.leader != NO_LEADER for p in partitions(cluster))


def into_isr(cluster: Cluster, *isr: int) -> None:
    """Let the leader of the first partition propose an ISR with the broker between two steps."""
    topic = cluster.image.topics.by_name[TOPICS[0]]
    cluster.apply([PartitionChangeRecord(topic_id=topic.id, partition_id=0, isr=list(isr))])


def into_elrs(cluster: Cluster, broker: int) -> None:
    """Let every partition fall below its min ISR, with this broker in its ELR."""
    for name in TOPICS:
        topic = cluster.image.topics.by_name[name]
        for index, one in topic.partitions.items():
            change = PartitionChangeRecord(
                topic_id=topic.id,
                partition_id=index,
                isr=[one.leader],
                eligible_leader_replicas=[broker],
            )
            cluster.apply([change])


def stepped(cluster: Cluster, decide: Decide[R]) -> Iterator[R | None]:
    """Yield the reply of each step after its records are applied; only the last step has one."""
    while True:
        decision = cluster.step(decide)
        assert len(decision.records) <= CHANGES_PER_STEP + 1
        if isinstance(decision, Decision):
            yield decision.reply
            return
        yield None
        decide = decision.then


def heartbeat(cluster: Cluster, broker: int, **fields: Any) -> Decide[HeartbeatReply]:
    request = BrokerHeartbeatRequest(
        broker_id=broker,
        broker_epoch=cluster.image.cluster.brokers[broker].epoch,
        current_metadata_offset=cluster.next_offset - 1,
    ).replace(**fields)
    return partial(decide_heartbeat, request=request)


def expire(cluster: Cluster, broker: int) -> None:
    cluster.advance(SESSION_TIMEOUT_MS)
    for other in {1, 2, 3} - {broker}:
        cluster.touch(other)


class TestRegistration:
    def test_registration_counts_after_last_step(self, cluster: Cluster) -> None:
        """P11: an incarnation that lost data is registered only once no ISR or ELR has the one
        before."""
        expire(cluster, 1)
        before = cluster.image.cluster.brokers[1]
        held = []
        for epoch in stepped(
            cluster, partial(decide_register_broker, request=registration(1, life=2))
        ):
            held.append(holding(cluster, 1))
            assert all(
                p.leader in p.isr and p.leader != 1 for p in partitions(cluster) if 1 not in p.isr
            )
            if epoch is None:
                assert cluster.image.cluster.brokers[1] == before
        assert held == [250, 0, 0]
        assert epoch == cluster.next_offset - 1 == cluster.image.cluster.brokers[1].epoch

    def test_registration_removes_isr_entries_gained_between_steps(self, cluster: Cluster) -> None:
        expire(cluster, 1)
        steps = stepped(cluster, partial(decide_register_broker, request=registration(1, life=2)))
        assert [next(steps), next(steps)] == [None, None]
        into_isr(cluster, 1, 2, 3)
        assert next(steps) == cluster.next_offset - 1
        assert holding(cluster, 1) == 0

    def test_the_next_controller_goes_on(self, cluster: Cluster) -> None:
        expire(cluster, 1)
        next(stepped(cluster, partial(decide_register_broker, request=registration(1, life=2))))
        assert (holding(cluster, 1), cluster.image.cluster.brokers[1].fenced) == (250, False)
        assert cluster.register(1, life=3) == cluster.next_offset - 1
        assert holding(cluster, 1) == 0

    def test_broker_without_a_known_registration_leaves_in_steps(self, cluster: Cluster) -> None:
        """P11: another controller removed the registration and left the ELRs unchanged."""
        expire(cluster, 1)
        cluster.fence_expired()
        into_elrs(cluster, 1)
        epoch = cluster.image.cluster.brokers[1].epoch
        cluster.apply([UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)])
        assert holding(cluster, 1) == 500
        request = registration(1, life=2, previous_broker_epoch=epoch)
        held, known = [], []
        for _ in stepped(cluster, partial(decide_register_broker, request=request)):
            held.append(holding(cluster, 1))
            known.append(1 in cluster.image.cluster.brokers)
        assert (held, known) == ([250, 0, 0], [False, False, True])


class TestShutdown:
    def test_shutdown_waits_for_last_step(self, cluster: Cluster) -> None:
        """KIP-841: the last step changes nothing, and still reports that leaders have moved."""
        held, replies = [], []
        for reply in stepped(cluster, heartbeat(cluster, 1, want_shut_down=True)):
            replies.append(reply)
            held.append(holding(cluster, 1))
            broker = cluster.image.cluster.brokers[1]
            assert (broker.fenced, broker.in_controlled_shutdown) == (False, True)
        assert held == [250, 0, 0]
        last = replies[-1]
        assert last is not None
        assert (last.state, last.moved_leaders) == (BrokerState.CONTROLLED_SHUTDOWN, True)
        cluster.heartbeats.begin_shutdown(1, cluster.next_offset - 1)
        for other in (2, 3):
            cluster.heartbeat(other)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
        assert cluster.image.cluster.brokers[1].fenced

    def test_requested_fencing_is_last_step(self, cluster: Cluster) -> None:
        found = []
        for reply in stepped(cluster, heartbeat(cluster, 1, want_fence=True)):
            fenced = cluster.image.cluster.brokers[1].fenced
            assert fenced is (reply is not None and reply.is_fenced)
            found.append((holding(cluster, 1), fenced))
        assert found == [(250, False), (0, False), (0, True)]

    def test_unregistration_is_last_step(self, cluster: Cluster) -> None:
        found = []
        for _ in stepped(cluster, partial(decide_unregister_broker, broker_id=1)):
            found.append((holding(cluster, 1), 1 in cluster.image.cluster.brokers))
        assert found == [(250, True), (0, True), (0, False)]


class TestDirectories:
    """KIP-858: the directory that fails has every replica of a broker with two directories."""

    ONE, TWO = b"first directory.", b"second directory"

    @pytest.fixture
    def cluster(self) -> Cluster:
        cluster = Cluster(elr=True)
        cluster.register(1, log_dirs=[self.ONE, self.TWO])
        cluster.heartbeat(1)
        cluster.start(2, 3)
        for name in TOPICS:
            cluster.create_topic(name, *([1, 2, 3] for _ in range(PER_TOPIC)))
            topic = cluster.image.topics.by_name[name]
            where = [self.ONE, directory(2), directory(3)]
            for index in topic.partitions:
                change = PartitionChangeRecord(topic_id=topic.id, partition_id=index)
                cluster.apply([change.replace(directories=where)])
        return cluster

    def decisions(self, cluster: Cluster) -> list[Decide[Any]]:
        """Return each decision that leaves a broker without one of its directories."""
        again = registration(1, log_dirs=[self.TWO])
        return [
            heartbeat(cluster, 1, offline_log_dirs=[self.ONE]),
            partial(decide_register_broker, request=again),
        ]

    @pytest.mark.parametrize("which", [0, 1], ids=["heartbeat", "registration"])
    def test_broker_leaves_a_failed_directory_in_steps(self, cluster: Cluster, which: int) -> None:
        epochs, found = [p.partition_epoch for p in partitions(cluster)], []
        for _ in stepped(cluster, self.decisions(cluster)[which]):
            known = cluster.image.cluster.brokers[1].directories
            found.append((holding(cluster, 1), self.ONE in known))
        assert found == [(250, True), (0, True), (0, False)]
        assert [p.partition_epoch for p in partitions(cluster)] == [each + 1 for each in epochs]

    @pytest.mark.parametrize("which", [0, 1], ids=["heartbeat", "registration"])
    def test_replicas_out_of_sync_get_a_new_epoch_once(self, cluster: Cluster, which: int) -> None:
        """A proposal sent before the directory failed has an old partition epoch, for each
        replica."""
        for name in TOPICS:
            topic = cluster.image.topics.by_name[name]
            for index in topic.partitions:
                change = PartitionChangeRecord(topic_id=topic.id, partition_id=index)
                cluster.apply([change.replace(isr=[2, 3], leader=2)])
        epochs = [p.partition_epoch for p in partitions(cluster)]
        for _ in stepped(cluster, self.decisions(cluster)[which]):
            pass
        assert [p.partition_epoch for p in partitions(cluster)] == [each + 1 for each in epochs]

    def test_replica_that_is_elected_in_between_leaves_with_the_directory(
        self, cluster: Cluster
    ) -> None:
        """An election may choose the replica until the last step, which removes the directory."""
        steps = stepped(cluster, self.decisions(cluster)[0])
        assert [next(steps), next(steps)] == [None, None]
        topic = cluster.image.topics.by_name[TOPICS[0]]
        cluster.apply(
            [PartitionChangeRecord(topic_id=topic.id, partition_id=0, isr=[1, 2, 3], leader=1)]
        )
        assert next(steps) is not None
        assert holding(cluster, 1) == 0

    def test_the_next_controller_begins_again(self, cluster: Cluster) -> None:
        next(stepped(cluster, self.decisions(cluster)[0]))
        assert holding(cluster, 1) == 250
        cluster.heartbeat(1, offline_log_dirs=[self.ONE])
        assert holding(cluster, 1) == 0
        assert cluster.image.cluster.brokers[1].directories == (self.TWO,)

    def test_broker_that_registers_in_between_is_left_alone(self, cluster: Cluster) -> None:
        """P16: the heartbeat reports the directories of the incarnation before."""
        steps = stepped(cluster, self.decisions(cluster)[0])
        next(steps)
        cluster.fence(1)
        cluster.register(1, life=2, log_dirs=[self.ONE, self.TWO])
        with pytest.raises(ApiError) as refused:
            list(steps)
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
        assert cluster.image.cluster.brokers[1].directories == (self.ONE, self.TWO)


class TestUnfencing:
    @pytest.fixture
    def cut(self, cluster: Cluster) -> Cluster:
        """Return a cluster whose brokers have all shut down cleanly: no leaders, the last ones in
        the ELR."""
        for broker in (1, 2, 3):
            for _ in stepped(cluster, heartbeat(cluster, broker, want_fence=True)):
                pass
        assert led(cluster) == 0
        return cluster

    def test_unfenced_broker_gets_leadership_in_steps(self, cut: Cluster) -> None:
        found = []
        for reply in stepped(cut, heartbeat(cut, 3)):
            found.append((led(cut), reply and reply.state))
            assert not cut.image.cluster.brokers[3].fenced
        assert found == [(250, None), (500, None), (500, BrokerState.UNFENCED)]

    def test_broker_fenced_between_steps_continues_only_after_unfencing(self, cut: Cluster) -> None:
        """P2: a fenced broker leads nothing."""
        steps = stepped(cut, heartbeat(cut, 3))
        next(steps)
        for _ in stepped(cut, heartbeat(cut, 3, want_fence=True)):
            pass
        assert (led(cut), cut.image.cluster.brokers[3].fenced) == (0, True)
        assert [reply and reply.state for reply in steps][-1] is BrokerState.UNFENCED
        assert (led(cut), cut.image.cluster.brokers[3].fenced) == (500, False)

    def test_the_next_controller_goes_on(self, cut: Cluster) -> None:
        """The heartbeat of an unfenced broker elects no leader: the new controller searches for
        vacancies."""
        next(stepped(cut, heartbeat(cut, 3)))
        assert cut.heartbeat(3).state is BrokerState.UNFENCED
        assert led(cut) == 250
        vacancies = Vacancies(lambda: cut.image)
        vacancies.begin(7.0)
        turns = []
        while vacancies.due_ms is not None:
            turns.append(vacancies.due_ms)
            cut.apply(vacancies.act(8.0, cut.view))
        assert (led(cut), turns) == (500, [7.0, 8.0])
        vacancies.begin(9.0)
        assert vacancies.due_ms is None, "nobody is missing"


def test_a_step_goes_on_where_the_one_before_ended() -> None:
    """Steps go through topics and partitions in order, and visit each partition once."""
    cluster = Cluster(elr=True)
    cluster.start(1, 2, 3)
    ids = {}
    for name in ("a", "b", "c"):
        ids[cluster.create_topic(name, *([1, 2, 3] for _ in range(200))).topic_id] = name
    decide: Decide[HeartbeatReply] = heartbeat(cluster, 1, want_fence=True)
    changed, steps = [], 0
    while True:
        decision = cluster.step(decide)
        steps += 1
        changed += [
            (ids[record.topic_id], record.partition_id)
            for record in decision.records
            if isinstance(record, PartitionChangeRecord)
        ]
        if isinstance(decision, Decision):
            break
        decide = decision.then
    assert changed == [(name, index) for name in ("a", "b", "c") for index in range(200)]
    assert steps == 3
