from __future__ import annotations

from functools import partial

import pytest

from controller.brokers.registration import (
    BrokerState,
    Silent,
    decide_fence_silent,
    decide_register_broker,
    decide_register_controller,
    decide_unregister_broker,
    silent_brokers,
)
from metalog.image.features import CORDONED_DIRECTORIES_LEVEL
from metalog.image.replay import replay_all
from protocol.errors import ApiError, ErrorCode
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.metadata.partition_change_record import PartitionChangeRecord
from testkit.memory.controller import (
    OWN_INCARNATION,
    SESSION_TIMEOUT_MS,
    Cluster,
    directory,
    registration,
)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def refused(cluster: Cluster, broker_id: int, **fields: object) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        cluster.register(broker_id, **fields)
    return refusal.value.code


class TestRegistration:
    def test_the_epoch_is_the_offset_of_the_registration(self, cluster: Cluster) -> None:
        expected = cluster.next_offset
        assert cluster.register(1) == expected
        broker = cluster.image.cluster.brokers[1]
        assert broker.epoch == expected
        assert broker.fenced
        assert broker.endpoints[0].port == 9001

    def test_epochs_of_an_id_only_grow(self, cluster: Cluster) -> None:
        epochs = [cluster.register(1, life=life) for life in range(1, 5)]
        assert epochs == sorted(set(epochs))

    def test_another_process_is_refused_while_the_first_is_alive(self, cluster: Cluster) -> None:
        cluster.start(1)
        assert refused(cluster, 1, life=2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        cluster.advance(SESSION_TIMEOUT_MS)
        assert cluster.register(1, life=2)

    def test_the_broker_of_the_controllers_own_process_does_not_wait_its_predecessor_out(
        self, cluster: Cluster
    ) -> None:
        cluster.start(100)
        assert refused(cluster, 100, life=2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert cluster.register(100, incarnation_id=OWN_INCARNATION)
        cluster.start(1)
        assert (
            refused(cluster, 1, incarnation_id=OWN_INCARNATION)
            is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        )

    def test_another_process_may_replace_a_fenced_one_at_once(self, cluster: Cluster) -> None:
        first = cluster.register(1)
        assert cluster.register(1, life=2) > first

    def test_the_same_process_keeps_epoch_and_state(self, cluster: Cluster) -> None:
        """KAFKA-16952: a repeated registration keeps the broker epoch and the fencing state."""
        cluster.start(1)
        epoch = cluster.image.cluster.brokers[1].epoch
        assert cluster.register(1, rack="r2") == epoch
        broker = cluster.image.cluster.brokers[1]
        assert (broker.epoch, broker.fenced, broker.rack) == (epoch, False, "r2")

    def test_a_new_process_leaves_the_isrs_and_its_leaderships(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        cluster.advance(SESSION_TIMEOUT_MS)
        cluster.touch(2)
        cluster.register(1, life=2)
        assert cluster.state("t") == (2, (2,), 1, 1)

    def test_a_new_process_that_is_the_last_isr_member_stays_it(self, cluster: Cluster) -> None:
        cluster.start(1)
        cluster.create_topic("t", [1])
        cluster.fence(1)
        cluster.register(1, life=2)
        assert cluster.state("t")[:2] == (-1, (1,))
        cluster.heartbeat(1)
        assert cluster.state("t")[:2] == (1, (1,))

    def test_registration_follows_records_about_earlier_incarnation(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        cluster.advance(SESSION_TIMEOUT_MS)
        cluster.touch(2)
        epoch = cluster.register(1, life=2)
        assert epoch == cluster.next_offset - 1
        assert cluster.image.cluster.brokers[1].epoch == epoch
        assert cluster.state("t")[1] == (2,)

    def test_registration_interrupted_between_batches_registers_no_broker(
        self, cluster: Cluster
    ) -> None:
        """P11: changes that exceed a batch are written in several, and the log may end after any of
        them."""
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        cluster.create_topic("u", [1, 2])
        cluster.advance(SESSION_TIMEOUT_MS)
        cluster.touch(2)
        request = registration(1, life=2)
        records = decide_register_broker(cluster.view(), request).records
        before = cluster.image.cluster.brokers[1]
        assert len(records) == 3
        for written in range(len(records)):
            left = replay_all(cluster.image, records[:written])
            assert left.cluster.brokers[1] == before, f"after {written} records"
        cluster.apply(records[:1])
        epoch = cluster.register(1, life=2)
        assert epoch == cluster.next_offset - 1
        assert cluster.state("t")[1] == cluster.state("u")[1] == (2,)

    def test_b48_another_cluster(self, cluster: Cluster) -> None:
        assert refused(cluster, 1, cluster_id="other") is ErrorCode.INCONSISTENT_CLUSTER_ID

    @pytest.mark.parametrize(
        ("low", "high", "code"),
        [(7, 30, None), (30, 31, None), (7, 29, ErrorCode.UNSUPPORTED_VERSION)],
    )
    def test_b48_finalised_levels_must_be_supported(
        self, cluster: Cluster, low: int, high: int, code: ErrorCode | None
    ) -> None:
        feature = registration(1).features[0]
        feature.min_supported_version, feature.max_supported_version = low, high
        if code is None:
            cluster.register(1, features=[feature])
        else:
            assert refused(cluster, 1, features=[feature]) is code

    def test_b48_a_finalised_feature_that_is_not_named(self, cluster: Cluster) -> None:
        assert refused(cluster, 1, features=[]) is ErrorCode.UNSUPPORTED_VERSION

    @pytest.mark.parametrize(
        "directories",
        [
            [],
            [directory(1), directory(1)],
            [bytes(16)],
            [bytes(15) + b"\x02"],
            [directory(2)],
        ],
    )
    def test_directories_are_checked(self, cluster: Cluster, directories: list[bytes]) -> None:
        cluster.register(2)
        assert refused(cluster, 1, log_dirs=directories) is ErrorCode.INVALID_REGISTRATION

    def test_old_metadata_versions_have_no_directories(self) -> None:
        cluster = Cluster(metadata_version=15)
        cluster.register(1, log_dirs=[directory(1)])
        assert cluster.image.cluster.brokers[1].directories == ()

    def test_brokers_that_come_from_zookeeper(self, cluster: Cluster) -> None:
        assert refused(cluster, 1, is_migrating_zk_broker=True) is ErrorCode.INVALID_REGISTRATION
        assert refused(cluster, -1) is ErrorCode.INVALID_REGISTRATION


class TestHeartbeat:
    def test_unfenced_once_its_own_registration_is_replayed(self, cluster: Cluster) -> None:
        epoch = cluster.register(1)
        reply = cluster.heartbeat(1, current_metadata_offset=epoch - 1)
        assert (reply.is_fenced, reply.is_caught_up) == (True, False)
        reply = cluster.heartbeat(1, current_metadata_offset=epoch)
        assert (reply.is_fenced, reply.is_caught_up) == (False, True)
        assert not cluster.image.cluster.brokers[1].fenced

    def test_heartbeat_may_request_to_stay_fenced(self, cluster: Cluster) -> None:
        cluster.register(1)
        assert cluster.heartbeat(1, want_fence=True).state is BrokerState.FENCED

    def test_heartbeat_may_request_fencing(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        assert cluster.heartbeat(1, want_fence=True).is_fenced
        assert cluster.state("t") == (2, (2,), 1, 1)

    @pytest.mark.parametrize("fields", [{"broker_epoch": 999}, {"broker_epoch": -1}])
    def test_p16_a_stale_epoch(self, cluster: Cluster, fields: dict[str, int]) -> None:
        cluster.register(1)
        with pytest.raises(ApiError) as refusal:
            cluster.heartbeat(1, **fields)
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH

    def test_a_steady_heartbeat_writes_nothing(self, cluster: Cluster) -> None:
        cluster.start(1)
        offset = cluster.next_offset
        assert cluster.heartbeat(1).state is BrokerState.UNFENCED
        assert cluster.next_offset == offset

    def test_cordoned_directories_are_written_down_when_they_change(self, cluster: Cluster) -> None:
        """KIP-1066: Kafka's brokers list cordoned directories, mostly none, in every heartbeat."""
        cluster.start(1)
        before = cluster.next_offset
        cluster.heartbeat(1, cordoned_log_dirs=[])
        cluster.heartbeat(1, cordoned_log_dirs=None)
        assert cluster.next_offset == before
        cluster.heartbeat(1, cordoned_log_dirs=[directory(1)])
        assert cluster.image.cluster.brokers[1].cordoned_directories == (directory(1),)
        changed = cluster.next_offset
        assert changed == before + 1
        cluster.heartbeat(1, cordoned_log_dirs=[directory(1)])
        cluster.heartbeat(1, cordoned_log_dirs=None)
        assert cluster.next_offset == changed
        cluster.heartbeat(1, cordoned_log_dirs=[])
        assert cluster.image.cluster.brokers[1].cordoned_directories == ()

    def test_cordoned_directories_of_a_broker_that_is_unfenced(self, cluster: Cluster) -> None:
        cluster.register(1)
        cluster.heartbeat(1, cordoned_log_dirs=[directory(1)])
        broker = cluster.image.cluster.brokers[1]
        assert (broker.fenced, broker.cordoned_directories) == (False, (directory(1),))

    def test_a_cordoned_directory_that_is_not_the_brokers(self, cluster: Cluster) -> None:
        """The heartbeat is accepted without the directory: it still proves that the broker is
        alive."""
        cluster.start(1)
        cluster.heartbeat(1, cordoned_log_dirs=[directory(2)])
        assert cluster.image.cluster.brokers[1].cordoned_directories == ()

    def test_old_metadata_versions_cordon_nothing(self) -> None:
        cluster = Cluster(metadata_version=CORDONED_DIRECTORIES_LEVEL - 1)
        cluster.start(1)
        before = cluster.next_offset
        cluster.heartbeat(1, cordoned_log_dirs=[directory(1)])
        assert cluster.next_offset == before

    def test_unfencing_gives_a_leader_to_what_it_alone_holds(self, cluster: Cluster) -> None:
        cluster.start(1)
        cluster.create_topic("t", [1])
        cluster.fence(1)
        assert cluster.state("t") == (-1, (1,), 1, 1)
        cluster.heartbeat(1)
        assert cluster.state("t") == (1, (1,), 2, 2)


class TestControlledShutdown:
    def test_a_broker_that_leads_nothing_goes_at_once(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        reply = cluster.heartbeat(1, want_shut_down=True)
        assert reply.should_shut_down
        assert cluster.image.cluster.brokers[1].fenced

    def test_shutdown_waits_until_other_brokers_know_new_leaders(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        reply = cluster.heartbeat(1, want_shut_down=True)
        assert reply.state is BrokerState.CONTROLLED_SHUTDOWN
        assert cluster.state("t") == (2, (2,), 1, 1)
        assert cluster.image.cluster.brokers[1].in_controlled_shutdown
        assert not cluster.image.cluster.brokers[1].fenced
        begun = cluster.next_offset - 1
        cluster.heartbeats.begin_shutdown(1, begun)

        cluster.heartbeat(2, current_metadata_offset=begun - 1)
        reply = cluster.heartbeat(1, want_shut_down=True)
        assert reply.state is BrokerState.CONTROLLED_SHUTDOWN

        cluster.heartbeat(2, current_metadata_offset=begun)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
        assert cluster.image.cluster.brokers[1].fenced

    def test_the_only_broker_may_go(self, cluster: Cluster) -> None:
        cluster.start(1)
        cluster.create_topic("t", [1])
        assert cluster.heartbeat(1, want_shut_down=True).state is BrokerState.CONTROLLED_SHUTDOWN
        assert cluster.state("t")[:2] == (-1, (1,))
        cluster.heartbeats.begin_shutdown(1, cluster.next_offset - 1)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down

    def test_shutdown_cannot_be_undone_in_same_incarnation(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        cluster.heartbeat(1, want_shut_down=True)
        cluster.fence(1)
        assert cluster.heartbeat(1).should_shut_down
        assert cluster.image.cluster.brokers[1].fenced
        cluster.register(1, life=2)
        assert not cluster.heartbeat(1).is_fenced

    def test_a_fenced_broker_may_go(self, cluster: Cluster) -> None:
        cluster.register(1)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


class TestExpiry:
    def test_silence_fences(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        cluster.advance(SESSION_TIMEOUT_MS - 1)
        assert cluster.fence_expired() == []
        cluster.heartbeat(2)
        cluster.advance(1)
        assert cluster.fence_expired() == [1]
        assert cluster.state("t") == (2, (2,), 1, 1)

    @pytest.mark.parametrize(
        ("waited_ms", "cause"), [(500, "connection-lost"), (SESSION_TIMEOUT_MS, "broker-fenced")]
    )
    def test_fencing_record_has_cause_connection_or_session(
        self, cluster: Cluster, waited_ms: int, cause: str
    ) -> None:
        cluster.set(connection_loss_fence_ms=500)
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        connection = object()
        cluster.heartbeats.touch(
            1,
            epoch=cluster.image.cluster.brokers[1].epoch,
            metadata_offset=cluster.next_offset - 1,
            monotonic_ms=cluster.monotonic_ms,
            connection=connection,
        )
        cluster.heartbeats.connection_lost(1, connection, cluster.monotonic_ms)
        cluster.advance(waited_ms)
        cluster.heartbeat(2)
        view = cluster.view()
        change = decide_fence_silent(view, silent_brokers(view), 10).records[0]
        assert isinstance(change, PartitionChangeRecord)
        assert (change.leader, change.election_cause) == (2, cause)

    def test_an_overdue_broker_gets_no_leadership_of_another(self, cluster: Cluster) -> None:
        cluster.start(1, 2, 3)
        cluster.create_topic("t", [1, 2, 3])
        cluster.advance(SESSION_TIMEOUT_MS)
        cluster.heartbeat(3)
        silent = silent_brokers(cluster.view())
        left = cluster.run(lambda view: decide_fence_silent(view, silent, 10))
        assert left is not None
        assert [broker.fenced for broker in cluster.image.cluster.brokers.values()] == [1, 0, 0]
        assert cluster.state("t") == (3, (2, 3), 1, 1)

    def test_all_at_once_leaves_one_isr_member(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        cluster.advance(SESSION_TIMEOUT_MS)
        assert cluster.fence_expired() == [1, 2]
        assert cluster.state("t")[:2] == (-1, (2,))

    def test_a_broker_of_many_partitions_is_fenced_in_steps(self, cluster: Cluster) -> None:
        """P2: each step leaves a valid state; partitions that the broker gains in between are
        fenced too."""
        cluster.start(1, 2, 3)
        for topic in ("a", "b"):
            cluster.create_topic(topic, *([1, 2, 3] for _ in range(3)))
        cluster.advance(SESSION_TIMEOUT_MS)
        cluster.touch(2)
        cluster.touch(3)
        silent: Silent | None = silent_brokers(cluster.view())
        left = []
        while silent is not None:
            decide = partial(decide_fence_silent, silent=silent, partitions_max=2)
            silent = cluster.run(decide)
            partitions = [cluster.partition(t, n) for t in ("a", "b") for n in range(3)]
            left.append(sum(1 in partition.isr for partition in partitions))
            assert all(p.leader in p.isr for p in partitions)
            fenced = cluster.image.cluster.brokers[1].fenced
            assert not fenced or not left[-1], "fenced last of all"
            if len(left) == 2:
                cluster.heartbeat(1)
                isr = PartitionChangeRecord(
                    topic_id=cluster.image.topics.by_name["a"].id, partition_id=0, isr=[1, 2, 3]
                )
                cluster.apply([isr])
                left[-1] += 1
        assert fenced
        assert left == [4, 3, 1, 0, 0]

    def test_new_incarnation_is_not_fenced_for_earlier_silence(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", *([1, 2] for _ in range(3)))
        cluster.advance(SESSION_TIMEOUT_MS)
        cluster.touch(2)
        silent = silent_brokers(cluster.view())
        cluster.run(lambda view: decide_fence_silent(view, silent, 1))
        cluster.register(1, life=2)
        cluster.heartbeat(1)
        assert cluster.run(lambda view: decide_fence_silent(view, silent, 1)) is None
        assert not cluster.image.cluster.brokers[1].fenced

    def test_a_fenced_broker_does_not_expire_again(self, cluster: Cluster) -> None:
        cluster.register(1)
        cluster.advance(10 * SESSION_TIMEOUT_MS)
        assert cluster.fence_expired() == []


class TestUnregister:
    def test_leaves_isrs_and_is_forgotten(self, cluster: Cluster) -> None:
        cluster.start(1, 2)
        cluster.create_topic("t", [1, 2])
        cluster.run(lambda view: decide_unregister_broker(view, 1))
        assert cluster.state("t") == (2, (2,), 1, 1)
        assert 1 not in cluster.image.cluster.brokers

    def test_unknown(self, cluster: Cluster) -> None:
        with pytest.raises(ApiError) as refusal:
            cluster.run(lambda view: decide_unregister_broker(view, 1))
        assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_controller_registers(cluster: Cluster) -> None:
    request = ControllerRegistrationRequest(
        controller_id=100,
        incarnation_id=bytes(16),
        listeners=[ControllerRegistrationRequest.Listener(name="CONTROLLER", host="h", port=1)],
        features=[ControllerRegistrationRequest.Feature(name="metadata.version")],
    )
    cluster.run(lambda view: decide_register_controller(view, request))
    assert cluster.image.cluster.controllers[100].endpoints[0].host == "h"
    request.zk_migration_ready = True
    with pytest.raises(ApiError):
        cluster.run(lambda view: decide_register_controller(view, request))


def test_no_controller_registers_before_the_metadata_version_has_such_records() -> None:
    request = ControllerRegistrationRequest(controller_id=100, incarnation_id=b"c" * 16)
    with pytest.raises(ApiError) as refusal:
        decide_register_controller(Cluster(metadata_version=14).view(), request)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert decide_register_controller(Cluster(metadata_version=15).view(), request).records
