"""The whole role over a simulated network: quorum, APIs, registration."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from immutables import Map

from controller.assembly import ControllerServer
from metalog.image.features import METADATA_VERSION
from metalog.loader import MetadataLoader
from metalog.quorum.config import QuorumConfig
from metalog.quorum.node import QuorumNode
from metalog.supported import SUPPORTED_FEATURES
from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from protocol.internal.default_principal_data import DefaultPrincipalData
from protocol.messages import request_class
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.envelope import EnvelopeRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from protocol.schema import Request
from protocol.transport.client import Connection
from runtime.clock import LoopClock
from runtime.config import NodeConfig
from runtime.metrics import Metrics
from runtime.tasks import Supervisor
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from storage.files import MemoryFiles
from testkit.memory.controller import CLUSTER_ID, NODE_PROPERTIES, registration


class Role:
    """One started controller and a client of it."""

    def __init__(self, server: ControllerServer, quorum: QuorumNode, client: Connection) -> None:
        self.server = server
        self.quorum = quorum
        self.client = client

    async def ask(self, request: Request[Any], version: int | None = None) -> Any:
        return await self.client.request(request, 5_000, version)

    async def start_broker(self, broker_id: int) -> int:
        response = await self.ask(registration(broker_id))
        assert response.error_code == 0
        epoch: int = response.broker_epoch
        heartbeat = await self.heartbeat(broker_id, epoch)
        assert not heartbeat.is_fenced
        return epoch

    async def heartbeat(self, broker_id: int, epoch: int, **fields: Any) -> Any:
        values = {"current_metadata_offset": self.quorum.log_end_offset - 1, **fields}
        return await self.ask(
            BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, **values)
        )


@asynccontextmanager
async def running(**properties: str) -> AsyncIterator[Role]:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop, 1_700_000_000_000)
    files = MemoryFiles()
    files.mkdirs("/logs")
    config = NodeConfig.parse({**NODE_PROPERTIES, "log.dirs": "/logs", **properties})
    supervisor = Supervisor()
    rng = random.Random(1)
    quorum = QuorumNode(
        QuorumConfig.from_node_config(config, cluster_id=CLUSTER_ID, directory_id=b"d" * 16),
        files=files,
        clock=clock,
        rng=rng,
        supervisor=supervisor,
    )
    loader = MetadataLoader(quorum, supervisor)
    server = ControllerServer(
        config,
        clock=clock,
        rng=rng,
        files=files,
        quorum=quorum,
        loader=loader,
        supervisor=supervisor,
        metrics=Metrics(),
        incarnation_id=bytes(15) + b"i",
    )
    registered = asyncio.Event()
    loader.add_publisher(lambda _, image: registered.set() if image.cluster.controllers else None)
    await server.start()
    await quorum.start()
    host, port = server.bound_listeners["CONTROLLER"]
    client = await Connection.connect(host, port, "test")
    await registered.wait()
    try:
        yield Role(server, quorum, client)
    finally:
        await client.close()
        await server.stop()
        await quorum.stop()
        await supervisor.close()
    assert supervisor.failure is None


def role_test(test: Callable[[Role], Awaitable[None]]) -> Callable[[], None]:
    """Run the test on a virtual loop with a started role."""

    def run() -> None:
        async def main() -> None:
            async with running() as role:
                await test(role)

        loop = VirtualLoop(Network(random.Random(1)))
        try:
            loop.run_world(main())
        finally:
            loop.close()

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@role_test
async def test_controller_registers_itself(role: Role) -> None:
    image = role.server.controller.committed_image
    port = role.server.bound_listeners["CONTROLLER"][1]
    assert [(e.name, e.port) for e in image.cluster.controllers[100].endpoints] == [
        ("CONTROLLER", port)
    ]
    assert image.metadata_version == 33


@role_test
async def test_refused_feature_update_has_the_message_of_kafka(role: Role) -> None:
    """Tools show the message of the whole request (QuorumController.updateFeatures of 4.4.0)."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="metadata.version", max_version_level=34, upgrade_type=1
    )
    answer = await role.ask(UpdateFeaturesRequest(feature_updates=[update]))
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_UPDATE_VERSION,
        "The update failed for all features since the following feature had an error: Invalid "
        "update version 34 for feature metadata.version. Local controller 100 only supports "
        "versions 7-33",
    )


@role_test
async def test_a_broker_registers_and_is_unfenced(role: Role) -> None:
    epoch = await role.start_broker(1)
    broker = role.server.controller.committed_image.cluster.brokers[1]
    assert (broker.epoch, broker.fenced) == (epoch, False)
    stale = await role.heartbeat(1, epoch - 1)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH


@role_test
async def test_a_broker_in_controlled_shutdown_may_go(role: Role) -> None:
    epoch = await role.start_broker(1)
    await role.ask(create_request("t"))
    answer = await role.heartbeat(1, epoch, want_shut_down=True)
    assert not answer.should_shut_down
    answer = await role.heartbeat(1, epoch, want_shut_down=True)
    assert answer.should_shut_down


@role_test
async def test_a_new_cluster_has_one_min_isr_and_a_lower_one_empties_the_elr(role: Role) -> None:
    await role.start_broker(2)
    epoch = await role.start_broker(1)
    created = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = CreateTopicsRequest.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[created],
        configs=[CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )
    assert (await role.ask(CreateTopicsRequest(topics=[topic]))).topics[0].error_code == 0
    await role.heartbeat(1, epoch, want_shut_down=True)

    def partition() -> Any:
        return role.server.controller.committed_image.topics.by_name["t"].partitions[0]

    assert (partition().leader, partition().isr, partition().elr) == (2, (2,), (1,))
    one = IncrementalAlterConfigsRequest.AlterConfigsResource
    value = IncrementalAlterConfigsRequest.AlterableConfig
    asked = [
        (2, "t", value(name="min.insync.replicas", config_operation=0, value="1")),
        (4, "", value(name="min.insync.replicas", config_operation=1, value=None)),
        (4, "1", value(name="min.insync.replicas", config_operation=0, value="1")),
    ]
    response = await role.ask(
        IncrementalAlterConfigsRequest(
            resources=[one(resource_type=t, resource_name=n, configs=[c]) for t, n, c in asked]
        )
    )
    refused = ErrorCode.INVALID_CONFIG
    assert [one.error_code for one in response.responses] == [0, refused, refused]
    assert partition().elr == ()


def create_request(name: str, **configs: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )


@role_test
async def test_topics_in_every_version(role: Role) -> None:
    await role.start_broker(1)
    for version in CreateTopicsRequest.VERSIONS.each():
        response = await role.ask(create_request(f"v{version}"), version)
        (topic,) = response.topics
        assert topic.error_code == 0
        if version >= 5:
            assert (topic.num_partitions, topic.replication_factor) == (2, 1)
            assert len(topic.configs) > 20
        again = await role.ask(create_request(f"v{version}"), version)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@role_test
async def test_configs_are_set_and_described(role: Role) -> None:
    await role.start_broker(1)
    await role.ask(create_request("t"))
    response = await role.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name="retention.ms", config_operation=0, value="77"
                        )
                    ],
                )
            ]
        )
    )
    assert response.responses[0].error_code == 0
    for resource_type, name, key, value in (
        (2, "t", "retention.ms", "77"),
        (4, "100", "node.id", "100"),
    ):
        described = await role.ask(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=resource_type, resource_name=name, configuration_keys=[key]
                    )
                ],
                include_synonyms=True,
            )
        )
        (result,) = described.results
        assert [(c.name, c.value) for c in result.configs] == [(key, value)]


@role_test
async def test_describe_cluster_knows_controllers_only(role: Role) -> None:
    for endpoint_type, code in (
        (1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (2, ErrorCode.NONE),
    ):
        response = await role.ask(DescribeClusterRequest(endpoint_type=endpoint_type))
        assert response.error_code == code
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 100)
    assert [b.broker_id for b in response.brokers] == [100]


@role_test
async def test_describe_cluster_needs_a_level_with_registrations_of_controllers(
    role: Role,
) -> None:
    """Kafka 4.4 refuses it first: below level 15, and before any level is final."""
    log_image = role.server.controller._log_image
    for level in (None, 14):
        features = Map() if level is None else Map({METADATA_VERSION: level})
        log_image._replayer.image = log_image.committed._replace(features=features)
        for endpoint_type in (1, 2):
            response = await role.ask(DescribeClusterRequest(endpoint_type=endpoint_type))
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert not response.brokers


def envelope(request: Request[Any], version: int, *, address: bytes = bytes(4)) -> EnvelopeRequest:
    header = RequestHeader(ApiKey(request.API_KEY), version, 77, "client")
    principal = DefaultPrincipalData(type="User", name="alice")
    return EnvelopeRequest(
        request_data=encode_request_header(header) + encode(request, version),
        request_principal=b"\0\0" + encode(principal, 0),
        client_host_address=address,
    )


@role_test
async def test_an_envelope_is_answered_as_its_content(role: Role) -> None:
    await role.start_broker(1)
    answer = await role.ask(envelope(create_request("t"), 7))
    assert answer.error_code == 0
    correlation_id, offset = decode_response_header(answer.response_data, ApiKey.CREATE_TOPICS, 7)
    response, _ = decode(CreateTopicsResponse, answer.response_data, 7, offset)
    assert correlation_id == 77
    assert response.topics[0].error_code == 0


@role_test
async def test_b47_an_envelope_with_what_is_not_forwarded(role: Role) -> None:
    inner = BrokerHeartbeatRequest(broker_id=1)
    assert (await role.ask(envelope(inner, 0))).error_code == ErrorCode.INVALID_REQUEST
    for data in (b"", b"\0\x13", b"\0\x13\0\x07\0\0\0\1\xff\xff", bytes(40)):
        answer = await role.ask(EnvelopeRequest(request_data=data, client_host_address=bytes(4)))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    bad_version = envelope(create_request("t"), 7)
    bad_version.request_data = b"\0\x13\0\x63" + bad_version.request_data[4:]
    assert (await role.ask(bad_version)).error_code == ErrorCode.UNSUPPORTED_VERSION
    bad_address = envelope(create_request("t"), 7, address=b"abc")
    assert (await role.ask(bad_address)).error_code == ErrorCode.INVALID_REQUEST
    bad_principal = envelope(create_request("t"), 7)
    bad_principal.request_principal = b"\0\x09x"
    answer = await role.ask(bad_principal)
    assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


@role_test
async def test_inactive_controller_refuses_every_change(role: Role) -> None:
    """Every request that changes the cluster is refused, in every version, if the node is not
    active."""
    role.server.controller.stop()
    answer = await role.ask(envelope(create_request("t"), 7))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    for key in sorted(MUTATING):
        request = request_class(key)
        entry = role.server.handlers.entries[key]
        for version in range(entry.version_min, entry.version_max + 1):
            message = MUTATING[key](version)
            response = await role.ask(message, version)
            assert NOT_CONTROLLER in error_codes(response), (request.__name__, version)


NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


def error_codes(value: Any) -> set[int]:
    found = set()
    if hasattr(value, "FIELDS"):
        for name, inner in value.items():
            if name == "error_code":
                found.add(int(inner))
            else:
                found |= error_codes(inner)
    elif isinstance(value, list):
        for inner in value:
            found |= error_codes(inner)
    return found


def _topics_to_delete(version: int) -> Any:
    request = request_class(ApiKey.DELETE_TOPICS)
    if version >= 6:
        return request(topics=[request.DeleteTopicState(name="t")])
    return request(topic_names=["t"])


def _with(key: ApiKey, **fields: Callable[[Any], Any]) -> Callable[[int], Any]:
    def make(version: int) -> Any:
        cls = request_class(key)
        return cls(**{name: value(cls) for name, value in fields.items()})

    return make


MUTATING: dict[ApiKey, Callable[[int], Any]] = {
    ApiKey.CREATE_TOPICS: lambda _: create_request("t"),
    ApiKey.DELETE_TOPICS: _topics_to_delete,
    ApiKey.CREATE_PARTITIONS: _with(
        ApiKey.CREATE_PARTITIONS, topics=lambda c: [c.CreatePartitionsTopic(name="t")]
    ),
    ApiKey.ALTER_CONFIGS: _with(
        ApiKey.ALTER_CONFIGS, resources=lambda c: [c.AlterConfigsResource()]
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _with(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=lambda c: [c.AlterConfigsResource()]
    ),
    ApiKey.ELECT_LEADERS: _with(
        ApiKey.ELECT_LEADERS,
        topic_partitions=lambda c: [c.TopicPartitions(topic="t", partitions=[0])],
    ),
    ApiKey.UPDATE_FEATURES: _with(ApiKey.UPDATE_FEATURES),
    ApiKey.UNREGISTER_BROKER: _with(ApiKey.UNREGISTER_BROKER),
    ApiKey.ALLOCATE_PRODUCER_IDS: _with(ApiKey.ALLOCATE_PRODUCER_IDS),
    ApiKey.ALTER_PARTITION: _with(ApiKey.ALTER_PARTITION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _with(ApiKey.ASSIGN_REPLICAS_TO_DIRS),
    ApiKey.BROKER_REGISTRATION: _with(ApiKey.BROKER_REGISTRATION),
    ApiKey.BROKER_HEARTBEAT: _with(ApiKey.BROKER_HEARTBEAT),
    ApiKey.CONTROLLER_REGISTRATION: _with(ApiKey.CONTROLLER_REGISTRATION),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _with(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _with(ApiKey.LIST_PARTITION_REASSIGNMENTS),
}


@role_test
async def test_only_what_is_built_is_advertised(role: Role) -> None:
    assert role.client.features is not None
    supported = {
        f.name: (f.min_version, f.max_version) for f in role.client.features.supported_features
    }
    assert supported == {name: tuple(levels) for name, levels in SUPPORTED_FEATURES.items()}
    served = set(role.client.versions)
    assert set(MUTATING) <= served
    assert {ApiKey.VOTE, ApiKey.FETCH, ApiKey.DESCRIBE_QUORUM, ApiKey.ENVELOPE} <= served
    assert ApiKey.PRODUCE not in served


@role_test
async def test_metrics(role: Role) -> None:
    await role.start_broker(1)
    await role.ask(create_request("t"))
    families = {family.name: list(family.samples) for family in role.server.collect() if family}
    values = {name: samples[0][1] for name, samples in families.items() if samples}
    prefix = "kafka_controller_kafkacontroller_"
    assert values[prefix + "activecontrollercount"] == 1
    assert values[prefix + "activebrokercount"] == 1
    assert values[prefix + "fencedbrokercount"] == 0
    assert values[prefix + "globaltopiccount"] == 1
    assert values[prefix + "globalpartitioncount"] == 2
    assert values[prefix + "offlinepartitionscount"] == 0
    assert values[prefix + "lastcommittedrecordoffset"] >= 6
