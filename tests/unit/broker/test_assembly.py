"""A whole broker over real sockets: joining, serving, forwarding, leaving."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast
from unittest import mock

import pytest

from broker import assembly
from broker.assembly import BrokerServer
from broker.controller_link import lifecycle_sender
from broker.controller_link.lifecycle import BrokerState
from metalog.loader import MetadataLoader
from protocol.batch.records import read_records
from protocol.errors import ErrorCode
from protocol.ids import DirectoryId, uuid_to_text
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.metadata.unfence_broker_record import UnfenceBrokerRecord
from protocol.metadata.unregister_broker_record import UnregisterBrokerRecord
from protocol.transport.client import Connection
from runtime.clock import SystemClock
from runtime.config import NodeConfig
from runtime.errors import StartupRefused
from runtime.metrics import Metrics
from runtime.tasks import Supervisor
from storage.files import MemoryFiles
from storage.log.config import LogConfig
from storage.log.directory import MetaProperties, write_meta
from storage.objects import MemoryObjects
from testkit.memory.broker import batch
from testkit.memory.fake_controller import FakeController
from testkit.memory.turns import until

DIRECTORY_ID = DirectoryId(b"directory id 16b")


class World:
    """A controller and the disk, with one broker at a time."""

    def __init__(self) -> None:
        self.controller = FakeController()
        self.files = MemoryFiles()
        self.objects = MemoryObjects()
        self.metrics = Metrics()
        self.failures: list[str] = []
        self.supervisor = Supervisor(lambda name, error: self.failures.append(f"{name}: {error}"))
        meta = MetaProperties(cluster_id="cluster", node_id=1, directory_id=DIRECTORY_ID)
        write_meta(self.files, "/data", meta)

    def broker(self, **props: str) -> BrokerServer:
        config = NodeConfig.parse(
            {
                "process.roles": "broker",
                "node.id": "1",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": "localhost:9093",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": "/data",
                "broker.rack": "r1",
                "offsets.topic.num.partitions": "2",
                "offsets.topic.replication.factor": "1",
                **{key.replace("_", "."): value for key, value in props.items()},
            }
        )
        return BrokerServer(
            config,
            clock=SystemClock(),
            rng=random.Random(3),
            files=self.files,
            open_objects=lambda _: self.objects,
            cluster_id="cluster",
            loader=cast(MetadataLoader, self.controller),
            controller_endpoint=self.controller.endpoint,
            supervisor=self.supervisor,
            metrics=self.metrics,
            incarnation_id=bytes(15) + b"i",
        )

    async def connect(self, broker: BrokerServer) -> Connection:
        host, port = broker.bound_listeners["PLAINTEXT"]
        return await Connection.connect(host, port, "test")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    each = World()
    await each.controller.start()
    yield each
    await each.supervisor.close()
    await each.controller.stop()
    assert each.failures == []


TIERING = {
    "remote_log_storage_system_enable": "true",
    "rsm_config_url": "file:///tier",
}


def topic_value(topic: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name=topic, name=key, value=value)


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1
            )
            for name in names
        ]
    )


def produce(topic_id: bytes, records: bytes) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])],
    )


def fetch(topic_id: bytes, offset: int, max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        min_bytes=1,
        max_wait_ms=max_wait_ms,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )


async def topic_id_of(connection: Connection, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
    (topic,) = (await connection.request(request)).topics
    assert topic.error_code == 0
    return cast(bytes, topic.topic_id)


async def test_a_started_broker_is_in_its_own_metadata(world: World) -> None:
    world.controller.tells_late = True
    broker = world.broker(broker_heartbeat_interval_ms="50")
    await broker.start()
    connection = await world.connect(broker)
    answer = await connection.request(MetadataRequest(topics=[]))
    assert [one.node_id for one in answer.brokers] == [1]
    await connection.close()
    await broker.stop()


def clean_shutdown(world: World) -> bytes:
    """Return the clean-shutdown file of the last broker."""
    return bytes(world.files.read("/data/.kafka_cleanshutdown"))


async def test_a_broker_registers_becomes_ready_serves_and_leaves(world: World) -> None:
    broker = world.broker()
    assert not broker.ready
    await broker.start()
    assert broker.ready
    (registration,) = world.controller.registrations
    assert (registration.broker_id, registration.cluster_id, registration.rack) == (
        1,
        "cluster",
        "r1",
    )
    assert registration.log_dirs == [DIRECTORY_ID]
    assert registration.previous_broker_epoch == -1
    assert {f.name: f.max_supported_version for f in registration.features}["metadata.version"] > 0
    (listener,) = registration.listeners
    assert (listener.host, listener.port) == broker.bound_listeners["PLAINTEXT"]

    connection = await world.connect(broker)
    created = await connection.request(create("t"))
    assert [(t.name, t.error_code) for t in created.topics] == [("t", 0)]
    tid = await topic_id_of(connection, "t")
    waiting = connection.send(fetch(tid, 0, max_wait_ms=10_000))
    other = await world.connect(broker)
    result = (await other.request(produce(tid, batch(b"a", b"b")))).responses[0]
    assert result.partition_responses[0].error_code == 0
    data = (await waiting).responses[0].partitions[0]
    assert [r.value for r in read_records(bytes(data.records))] == [b"a", b"b"]
    await connection.close()
    await other.close()

    await broker.stop()
    assert world.controller.heartbeats[-1].want_shut_down
    assert not broker.ready
    await broker.stop()  # a second stop is harmless

    # The next start is a clean one and names the epoch that it continues.
    again = world.broker()
    await again.start()
    assert again.logs.report.clean
    assert world.controller.registrations[-1].previous_broker_epoch == 0
    connection = await world.connect(again)
    data = (await connection.request(fetch(tid, 0))).responses[0].partitions[0]
    assert (data.high_watermark, data.error_code) == (2, 0)
    await connection.close()
    await again.stop()


async def test_an_unclean_end_has_no_previous_epoch(world: World) -> None:
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    await connection.request(create("t"))
    tid = await topic_id_of(connection, "t")
    await connection.request(produce(tid, batch(b"a")))
    await connection.close()
    # No stop: the process is gone, and the disk keeps its content.
    again = world.broker()
    await again.start()
    assert world.controller.registrations[-1].previous_broker_epoch == -1
    assert not again.logs.report.clean
    connection = await world.connect(again)
    data = (await connection.request(fetch(tid, 0))).responses[0].partitions[0]
    assert data.high_watermark == 1
    await connection.close()
    await again.stop()
    await broker.stop(0)


async def test_starting_broker_refuses_connections_until_a_controller_is_there(
    world: World,
) -> None:
    """Kafka 4.3.1 opens client listeners once the broker is unfenced; scripts wait for the port."""
    address, world.controller.address = world.controller.address, None
    broker = world.broker()
    starting = asyncio.create_task(broker.start())
    await until(lambda: broker.lifecycle.state is BrokerState.STARTING)
    with pytest.raises(ConnectionRefusedError):
        await world.connect(broker)
    assert not broker.ready
    world.controller.address = address
    await starting
    assert broker.ready
    await (await world.connect(broker)).close()
    await broker.stop()


async def test_first_request_to_a_starting_broker_waits_until_the_broker_is_listed(
    world: World,
) -> None:
    """As in Kafka 4.3.1, the first Metadata lists this broker, and the first CreateTopics works."""
    world.controller.heartbeat_errors = [ErrorCode.NOT_CONTROLLER] * 1000
    broker = world.broker()
    starting = asyncio.create_task(broker.start())
    await until(lambda: len(world.controller.heartbeats) > 0)
    host, port = broker.bound_listeners["PLAINTEXT"]
    connection = await Connection.connect(host, port, "test", negotiate=False)
    listing = asyncio.create_task(connection.request(MetadataRequest(topics=[]), version=12))
    await until(lambda: len(world.controller.heartbeats) > 1)
    assert not listing.done()
    world.controller.heartbeat_errors.clear()
    listed = await listing
    assert [one.node_id for one in listed.brokers] == [1]
    made = await connection.request(create("t"), version=5)
    assert made.topics[0].error_code == ErrorCode.NONE
    await starting
    await connection.close()
    await broker.stop()


async def test_broker_fenced_by_its_own_shutdown_logs_no_warning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker()
    await broker.start()
    log = mock.Mock()
    monkeypatch.setattr(lifecycle_sender, "_log", log)
    await broker.stop()
    log.info.assert_any_call("broker is fenced")
    log.warning.assert_not_called()


async def test_a_refused_registration_refuses_the_start(world: World) -> None:
    world.controller.registration_errors = [ErrorCode.INCONSISTENT_CLUSTER_ID]
    broker = world.broker()
    with pytest.raises(StartupRefused, match="INCONSISTENT_CLUSTER_ID"):
        await broker.start()
    await broker.stop()
    # Nothing was lost, but a broker that never had an epoch has none to send.
    assert clean_shutdown(world) == b'{"version":0,"brokerEpoch":-1}'


async def test_without_tiered_storage_a_cluster_with_tiered_topics_is_refused(world: World) -> None:
    """The error names the topics; the logs keep their remote part for the next attempt."""
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    await connection.request(create("plain", "tiered"))
    await connection.close()
    await broker.stop()
    key = "remote.storage.enable"
    world.controller.replay(topic_value("tiered", key, "true"))
    broker = world.broker()
    with pytest.raises(StartupRefused, match="tiered topics: tiered") as refused:
        await broker.start()
    assert "remote.log.storage.system.enable" in str(refused.value)
    assert not list(broker.replicas)
    await broker.stop()
    world.controller.replay(topic_value("tiered", key, None))
    broker = world.broker()
    await broker.start()
    await broker.stop()


@pytest.mark.parametrize("tiered", [True, False])
async def test_after_a_restart_only_a_tiered_log_starts_before_its_first_segment(
    world: World, tiered: bool
) -> None:
    """S4: the metadata, which contains whether the log is tiered, is read after the log."""
    broker = world.broker(**TIERING)
    await broker.start()
    connection = await world.connect(broker)
    await connection.request(create("t"))
    if tiered:
        world.controller.replay(topic_value("t", "remote.storage.enable", "true"))
    tid = await topic_id_of(connection, "t")
    for _ in range(3):
        assert await _produced(connection, tid) == ErrorCode.NONE
    log = broker.logs.logs["t", 0]
    log.roll()
    assert await _produced(connection, tid) == ErrorCode.NONE
    log.configure(replace(log.config, retention_bytes=1))
    log.bounds.copied_to = 3
    assert log.retention(0) == 1
    await connection.close()
    await broker.stop()
    again = world.broker(**TIERING)
    await again.start()
    log = again.logs.logs["t", 0]
    starts = log.log_start_offset, log.local_log_start_offset
    assert starts == ((0, 3) if tiered else (3, 3))
    assert log.log_end_offset == 4
    await again.stop()


async def test_a_duplicate_registration_is_tried_again(world: World) -> None:
    world.controller.registration_errors = [ErrorCode.DUPLICATE_BROKER_REGISTRATION]
    broker = world.broker()
    await broker.start()
    assert len(world.controller.registrations) == 2
    await broker.stop()


async def test_a_shutdown_that_is_not_granted_ends_in_time(world: World) -> None:
    broker = world.broker()
    await broker.start()
    world.controller.grant_shutdown = False
    await broker.stop(timeout_ms=50)
    assert broker.lifecycle.state is BrokerState.SHUTTING_DOWN
    # It was not granted, but all is flushed, which makes the shutdown clean.
    epoch = broker.lifecycle.broker_epoch
    assert epoch >= 0
    assert clean_shutdown(world) == b'{"version":0,"brokerEpoch":%d}' % epoch


@pytest.mark.parametrize("before", ["clean", "unclean"])
async def test_a_start_on_a_taken_port_leaves_the_last_shutdown_as_it_was(
    world: World, before: str
) -> None:
    """P11, KIP-966: the next start registers with the epoch of the last shutdown."""
    first = world.broker()
    await first.start()
    connection = await world.connect(first)
    await connection.request(create("t"))
    await connection.close()
    if before == "clean":
        await first.stop()
    epoch = first.lifecycle.broker_epoch if before == "clean" else -1
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    for _ in range(2):
        second = world.broker(listeners=f"PLAINTEXT://127.0.0.1:{port}")
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await second.stop()
        assert clean_shutdown(world) == b'{"version":0,"brokerEpoch":%d}' % epoch
    taken.close()
    await taken.wait_closed()
    third = world.broker()
    await third.start()
    assert world.controller.registrations[-1].previous_broker_epoch == epoch
    await third.stop()
    await first.stop()


async def test_a_start_that_is_cancelled_while_it_loads_leaves_the_last_shutdown_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P11: a signal may end the start in the same way."""
    first = world.broker()
    await first.start()
    connection = await world.connect(first)
    await connection.request(create("t", "u"))
    await connection.close()
    await first.stop()
    loaded = asyncio.Event()

    async def half(steps: Any, _clock: Any) -> None:
        next(steps)
        loaded.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(assembly, "in_slices", half)
        second = world.broker()
        starting = asyncio.create_task(second.start())
        await loaded.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await second.stop()
    third = world.broker()
    await third.start()
    assert third.logs.report.clean
    assert world.controller.registrations[-1].previous_broker_epoch == 0
    await third.stop()


async def test_a_process_that_ends_while_it_loads_was_not_shut_down_cleanly(world: World) -> None:
    first = world.broker()
    await first.start()
    await first.stop()
    assert world.files.exists("/data/.kafka_cleanshutdown")
    # The second one takes the marker before it opens a log, and gets no further.
    for _ in world.broker().logs.load_steps():
        break
    third = world.broker()
    await third.start()
    assert world.controller.registrations[-1].previous_broker_epoch == -1
    await third.stop()


async def test_a_shutdown_without_a_controller_ends_in_time_and_is_clean(world: World) -> None:
    broker = world.broker()
    await broker.start()
    world.controller.address = None
    await broker.stop(timeout_ms=50)
    assert world.files.exists("/data/.kafka_cleanshutdown")


async def test_a_broker_that_never_started_can_be_stopped(world: World) -> None:
    await world.broker().stop()


async def test_forwarded_request_is_retried_until_controller_answers(
    world: World,
) -> None:
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    world.controller.envelope_errors = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER]
    created = await connection.request(create("t"))
    assert [(t.name, t.error_code) for t in created.topics] == [("t", 0)]
    assert world.controller.envelopes == 3
    await connection.close()
    await broker.stop()


async def test_a_forwarded_request_without_a_controller_times_out_per_item(world: World) -> None:
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    world.controller.address = None
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1)
    answer = await connection.request(request, version=5)
    assert [(r.name, r.error_code) for r in answer.responses] == [
        ("a", ErrorCode.REQUEST_TIMED_OUT),
        ("b", ErrorCode.REQUEST_TIMED_OUT),
    ]
    await connection.close()
    await broker.stop(timeout_ms=10)


async def test_an_error_of_the_envelope_itself(world: World) -> None:
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    world.controller.envelope_errors = [ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE]
    answer = await connection.request(create("t"))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await connection.close()
    await broker.stop()


async def test_producer_ids_and_the_coordinator_come_through_the_controller(world: World) -> None:
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    given = await connection.request(InitProducerIdRequest(transactional_id=None))
    assert (given.error_code, given.producer_id) == (0, 1000)

    async def coordinator() -> Any:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        return (await connection.request(request)).coordinators[0]

    found = await coordinator()
    while found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        await asyncio.sleep(0.001)
        found = await coordinator()
    assert (found.error_code, found.node_id) == (0, 1)
    assert len(broker.metadata.image.topics.by_name["__consumer_offsets"].partitions) == 2
    await connection.close()
    await broker.stop()


async def test_apis_are_offered_exactly_as_registered(world: World) -> None:
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    answer = await connection.request(
        ApiVersionsRequest(client_software_name="x", client_software_version="1")
    )
    offered = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert offered[0] == (0, 13)
    assert offered[1] == (4, 18)
    assert offered[22][1] == 5
    # The APIs of controllers and transactions are not for clients of a broker (B47).
    assert not {24, 25, 26, 27, 28, 52, 53, 54, 56, 58, 59, 62, 63, 67} & offered.keys()
    supported = {f.name for f in answer.supported_features}
    assert "metadata.version" in supported
    assert answer.finalized_features_epoch == broker.metadata.image.provenance.offset
    await connection.close()
    await broker.stop()


async def test_metrics_carry_the_names_of_the_dashboards(world: World) -> None:
    broker = world.broker()
    await broker.start()
    connection = await world.connect(broker)
    await connection.request(create("t", partitions=2))
    tid = await topic_id_of(connection, "t")
    await connection.request(produce(tid, batch(b"abc", b"d")))
    await connection.request(fetch(tid, 0))
    text = b"".join(world.metrics.exposition(process=False)).decode()
    size = len(batch(b"abc", b"d"))
    for line in (
        "kafka_server_kafkaserver_brokerstate 3",
        'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 2',
        f'kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {size}',
        f"kafka_server_brokertopicmetrics_bytesin_total {size}",
        f'kafka_server_brokertopicmetrics_bytesout_total{{topic="t"}} {size}',
        'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="t"} 1',
        "kafka_server_replicamanager_partitioncount 2",
        "kafka_server_replicamanager_leadercount 2",
        "kafka_server_replicamanager_underreplicatedpartitions 0",
        "kafka_log_logmanager_offlinelogdirectorycount 0",
        f'kafka_log_log_size{{topic="t",partition="0"}} {size}',
        'kafka_log_log_logendoffset{topic="t",partition="0"} 2',
        'kafka_cluster_partition_underminisr{topic="t",partition="1"} 0',
        'kafka_cluster_partition_atminisr{topic="t",partition="1"} 1',
    ):
        assert f"{line}\n" in text.replace(".0\n", "\n"), line
    await connection.close()
    await broker.stop()


async def test_a_broker_speaks_to_a_new_controller_at_once(world: World) -> None:
    broker = world.broker(broker_heartbeat_interval_ms="1000000")
    await broker.start()
    before = len(world.controller.heartbeats)
    broker.controller_moved()
    await until(lambda: len(world.controller.heartbeats) > before)
    address, world.controller.address = world.controller.address, None
    broker.controller_moved()
    world.controller.address = address
    await broker.stop()
    assert len(world.controller.heartbeats) == before + 2, "nobody is asked while none is known"


# --- the registration is lost ---------------------------------------------------------------------


async def _leading(world: World, **props: str) -> tuple[BrokerServer, Connection, bytes]:
    broker = world.broker(**props)
    await broker.start()
    connection = await world.connect(broker)
    await connection.request(create("t"))
    tid = await topic_id_of(connection, "t")
    assert await _produced(connection, tid) == ErrorCode.NONE
    return broker, connection, tid


async def test_configurations_of_an_image_count_before_its_roles(world: World) -> None:
    """P7: a shrunken ISR is judged by the min ISR that the controller used, though one image has
    both."""
    broker, connection, tid = await _leading(world)
    (partition,) = (one for one in broker.replicas if one.topic_id == tid)
    assert (partition.log.high_watermark, partition.log.log_end_offset) == (1, 1)
    world.controller.replay(
        PartitionChangeRecord(
            topic_id=tid, partition_id=0, replicas=[1, 2], adding_replicas=[], isr=[1, 2]
        )
    )
    waiting = asyncio.ensure_future(_produced(connection, tid))
    await until(lambda: partition.log.log_end_offset == 2)
    assert partition.log.high_watermark == 1
    key = "min.insync.replicas"
    world.controller.replay(
        PartitionChangeRecord(topic_id=tid, partition_id=0, isr=[1]),
        topic_value("t", key, "2"),
    )
    assert partition.log.high_watermark == 1
    world.controller.replay(topic_value("t", key, "1"))
    assert partition.log.high_watermark == 2
    assert await waiting == ErrorCode.NONE
    await connection.close()
    await broker.stop()


async def _produced(connection: Connection, tid: bytes) -> int:
    topic = (await connection.request(produce(tid, batch(b"a")))).responses[0]
    return cast(int, topic.partition_responses[0].error_code)


async def _assert_lost(world: World, broker: BrokerServer, *said: str) -> None:
    await until(lambda: bool(world.failures))
    (failure,) = world.failures
    for words in said:
        assert words in failure
    world.failures.clear()
    heartbeats = len(world.controller.heartbeats)
    await broker.stop()
    assert len(world.controller.heartbeats) == heartbeats, "nobody to take leave of"


async def test_a_broker_whose_id_another_process_has_registered_leads_nothing_and_stops(
    world: World,
) -> None:
    """P16: the broker was paused or cut off for a session; the other process leads its partitions
    now."""
    broker, connection, tid = await _leading(world)
    epoch = world.controller.broker_epoch
    twin = RegisterBrokerRecord(broker_id=1, incarnation_id=b"the other proces", broker_epoch=90)
    world.controller.replay(twin)
    # Later records are about the other process, though it has the same id.
    world.controller.replay(UnfenceBrokerRecord(id=1, epoch=90))
    assert not any(partition.is_leader for partition in broker.replicas), "with the image itself"
    assert await _produced(connection, tid) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = (await connection.request(fetch(tid, 0))).responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await connection.close()
    twins = uuid_to_text(twin.incarnation_id)
    ours = uuid_to_text(bytes(15) + b"i")
    await _assert_lost(world, broker, f"{twins}, broker epoch 90", f"{ours}, broker epoch {epoch}")


async def test_a_raised_level_makes_a_running_broker_register_its_directory(world: World) -> None:
    """KIP-858: until then no record names the directory of the broker's replicas."""
    broker, connection, tid = await _leading(world, broker_heartbeat_interval_ms="50")
    assert world.controller.image.cluster.brokers[1].directories == ()
    world.controller.replay(FeatureLevelRecord(name="metadata.version", feature_level=17))
    await until(lambda: world.controller.image.cluster.brokers[1].directories == (DIRECTORY_ID,))
    assert await _produced(connection, tid) == ErrorCode.NONE, "under the epoch that it had"
    beats = len(world.controller.heartbeats)
    await until(lambda: len(world.controller.heartbeats) > beats)
    assert len(world.controller.registrations) == 2
    await until(lambda: bool(world.controller.assignments))
    (named,) = world.controller.assignments[0].directories
    assert (named.id, [one.topic_id for one in named.topics]) == (DIRECTORY_ID, [tid])
    await connection.close()
    await broker.stop()


async def test_a_broker_that_was_unregistered_leads_nothing_and_stops(world: World) -> None:
    """Kafka's broker goes on running in this case, unknown to its clients."""
    broker, connection, tid = await _leading(world)
    epoch = world.controller.broker_epoch
    world.controller.replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch))
    assert await _produced(connection, tid) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await connection.close()
    await _assert_lost(world, broker, "the registration of broker 1 was removed")


async def test_a_controller_that_knows_another_epoch_ends_a_broker_without_an_image(
    world: World,
) -> None:
    """The metadata log may reach the broker late or not at all."""
    broker, connection, tid = await _leading(world, broker_heartbeat_interval_ms="50")
    world.controller.heartbeat_errors.append(ErrorCode.STALE_BROKER_EPOCH)
    await until(lambda: not world.controller.heartbeat_errors)
    await until(lambda: not any(partition.is_leader for partition in broker.replicas))
    assert await _produced(connection, tid) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await connection.close()
    await _assert_lost(world, broker, "has another registration of broker 1 or none")


class HeldRemovals(MemoryFiles):
    """Workers that never return from a removal."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0

    async def run(self, function: Any, *args: object) -> Any:
        if function.__name__ == "_remove":
            self.held += 1
            await asyncio.Event().wait()
        return function(*args)


async def test_logs_are_flushed_while_deleted_ones_go(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.maintenance.MAINTENANCE_MS", 5.0)
    world.files = files = HeldRemovals()
    meta = MetaProperties(cluster_id="cluster", node_id=1, directory_id=DIRECTORY_ID)
    write_meta(files, "/data", meta)
    broker = world.broker(log_flush_interval_ms="10")
    broker.logs.reconfigure(replace(broker.logs.settings, flush_scheduler_interval_ms=10))
    await broker.start()
    connection = await world.connect(broker)
    await connection.request(create("live"))
    topic_id = await topic_id_of(connection, "live")
    config = LogConfig(file_delete_delay_ms=0)
    for number in range(3):
        broker.logs.get_or_create(f"gone-{number}", 0, bytes(15) + bytes([number + 1]), config)
        broker.logs.delete(f"gone-{number}", 0)
    await until(lambda: files.held > 0)
    log = broker.logs.get("live", 0)
    assert log is not None
    await until(lambda: broker.replicas.find("live", 0).is_leader)
    answer = await connection.request(produce(topic_id, batch(b"a")))
    assert answer.responses[0].partition_responses[0].error_code == 0
    await until(lambda: log.recovery_point > 0)
    await connection.close()
    await broker.stop()
