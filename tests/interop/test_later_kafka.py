"""Peers that offer our private versions with another meaning, as a later Kafka release may.

A proxy in front of every node rewrites its ApiVersions response. The node then offers Fetch 19,
AlterPartition 4, ElectLeaders 3 and key 93, but no private key. Only Kafka's own versions may reach
it, in elections and recoveries under every strategy. The second test runs a broker of Kafka in
place of ours: it logs an error for each request that it cannot read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ApiError, ErrorCode
from protocol.headers import decode_response_header
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.explain_election import ExplainElectionRequest
from protocol.private_numbers import PRIVATE_MIN, PRIVATE_VERSIONS
from protocol.transport.client import Connection
from testkit.kafka.in_place import LEVELS, KafkaInPlace
from testkit.kafka.jars import ORACLE, kafka_libs
from testkit.processes.listing import listed
from testkit.processes.quorum_cluster import HOST, ProcessCluster
from testkit.processes.waiting import until
from testkit.processes.wire_proxy import Forward, WireConnection, WireProxies, WireRule
from testkit.processes.wire_record import RequestSent, WireRecord

pytestmark = [pytest.mark.interop, pytest.mark.rest, pytest.mark.filterwarnings("default")]

STRATEGIES = ("None", "Balanced", "Aggressive")
TOPIC = "held"
BROKERS = (4, 5, 6)
LAST = 6
TAKEN_BY_KAFKA = 93
WAIT_S = 60.0
SETTINGS = {
    "unclean.recovery.manager.enabled": "true",
    "unclean.recovery.timeout.ms": "1000",
    "kraftbox.broker.connection.loss.fence.ms": "300",
    "offsets.topic.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}
LOCAL_LOG_BYTES = "leader.election.eligible.local.log.bytes"


class LaterKafka(WireRule):
    """Rewrites every ApiVersions response to that of a later Kafka release."""

    def __init__(self) -> None:
        self.rewritten = 0
        self._versions: dict[WireConnection, dict[bytes, int]] = {}

    async def request(self, connection: WireConnection, frame: bytes, forward: Forward) -> None:
        if int.from_bytes(frame[4:6], "big") == ApiKey.API_VERSIONS:
            version = int.from_bytes(frame[6:8], "big")
            self._versions.setdefault(connection, {})[frame[8:12]] = version
        await forward(frame)

    async def response(self, connection: WireConnection, frame: bytes, forward: Forward) -> None:
        version = self._versions.get(connection, {}).pop(frame[4:8], None)
        await forward(frame if version is None else self._rewrite(frame, version))

    def _rewrite(self, frame: bytes, version: int) -> bytes:
        _, at = decode_response_header(frame[4:], ApiKey.API_VERSIONS, version)
        answer, _ = decode(ApiVersionsResponse, frame[4:], version, at)
        if answer.error_code:
            return frame
        answer.api_keys = [one for one in answer.api_keys if one.api_key < PRIVATE_MIN]
        for one in answer.api_keys:
            for api, private in PRIVATE_VERSIONS.items():
                if one.api_key == api:
                    one.max_version = private
        offer = ApiVersionsResponse.ApiVersion(api_key=TAKEN_BY_KAFKA, min_version=0, max_version=0)
        answer.api_keys.append(offer)
        self.rewritten += 1
        body = frame[4 : 4 + at] + encode(answer, version)
        return len(body).to_bytes(4, "big") + body

    def closed(self, connection: WireConnection) -> None:
        self._versions.pop(connection, None)


def is_private(one: RequestSent) -> bool:
    private = PRIVATE_VERSIONS.get(one.api_key)
    return (
        one.api_key >= PRIVATE_MIN
        or one.api_key == TAKEN_BY_KAFKA
        or (private is not None and one.version >= private)
    )


def create(admin: AdminClient, strategy: str) -> None:
    config = {"min.insync.replicas": "1", "unclean.recovery.strategy": strategy}
    topics = [
        NewTopic(TOPIC, 1, replica_assignment=[list(BROKERS)], config=config),
        NewTopic("local", 1, replica_assignment=[list(BROKERS)], config={LOCAL_LOG_BYTES: "1"}),
    ]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)


def leader(admin: AdminClient) -> int:
    """Return the leader of the topic; -1 without one, or without an answer."""
    with contextlib.suppress(KafkaException, RuntimeError):
        partitions = listed(admin, TOPIC).topics[TOPIC].partitions
        return partitions[0].leader if partitions else -1
    return -1


def isr(admin: AdminClient) -> list[int]:
    with contextlib.suppress(KafkaException, RuntimeError):
        return sorted(listed(admin, TOPIC).topics[TOPIC].partitions[0].isrs)
    return []


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(100):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(WAIT_S) == 0


async def use_private_requests(address: str) -> None:
    """Send the requests of our tools: they fall back to Kafka's version, or are not sent."""
    host, port = address.split(":")
    connection = await Connection.connect(host, int(port), "a tool of ours")
    try:
        wanted = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
        await connection.request(ElectLeadersRequest(topic_partitions=[wanted]), 20_000)
        with pytest.raises(ApiError) as refused:
            await connection.request(ExplainElectionRequest(), 20_000)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    finally:
        await connection.close()


def leads_after_a_wish(admin: AdminClient) -> bool:
    """Return whether the topic has a leader; without one request an unclean election: no log can be
    queried of brokers that seem to be Kafka's."""
    if leader(admin) in BROKERS:
        return True
    with contextlib.suppress(KafkaException):
        admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(TOPIC, 0)]).result(WAIT_S)
    return False


def lose_every_broker(cluster: ProcessCluster, admin: AdminClient) -> None:
    """Kill the brokers one after the other, and start the last in sync at the end.

    Under Balanced and Aggressive the controller requests the logs of the others.
    """
    nodes = [cluster.nodes[one] for one in BROKERS]
    for node, left in zip(nodes, ([5, 6], [6], []), strict=True):
        node.kill()
        if left:
            until(f"ISR {left}", lambda left=left: isr(admin) == left, WAIT_S)  # type: ignore[misc]
    for node in nodes[:2]:
        node.start()
    until("two brokers", lambda: all(n.log_text.count("to RUNNING") == 2 for n in nodes[:2]))
    nodes[2].start()
    until("all brokers", lambda: nodes[2].log_text.count("to RUNNING") == 2)
    until("a leader", lambda: leads_after_a_wish(admin), WAIT_S)
    until("the whole ISR", lambda: isr(admin) == list(BROKERS), WAIT_S)


@contextlib.contextmanager
def disguised(folder: Path) -> Iterator[tuple[ProcessCluster, WireRecord, LaterKafka]]:
    """Start 3 + 3 nodes of ours; each sees the others as a later Kafka release."""
    record, rule = WireRecord(), LaterKafka()
    cluster = ProcessCluster(
        folder,
        controllers=3,
        brokers=3,
        settings=SETTINGS,
        watch=lambda: record.begin("CONTROLLER"),
    )
    cluster.links = WireProxies(rule)
    with cluster:
        for broker in cluster.brokers:
            port = cluster.links.add(
                broker.id,
                (HOST, broker.port),
                lambda node=broker.id: record.begin("PLAINTEXT", node),  # type: ignore[misc]
            )
            broker.settings = {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
        cluster.start()
        yield cluster, record, rule


def proxies_of(cluster: ProcessCluster) -> str:
    marked = [broker.settings["advertised.listeners"] for broker in cluster.brokers]
    return ",".join(one.removeprefix("PLAINTEXT://") for one in marked)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_peer_without_a_private_key_receives_no_private_version(
    strategy: str, tmp_path: Path
) -> None:
    """Kafka may give each private number another meaning (4.4.0 did so with key 93)."""
    with disguised(tmp_path) as (cluster, record, rule):
        bootstrap = proxies_of(cluster)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        create(admin, strategy)
        produce(bootstrap)
        until("the whole ISR", lambda: isr(admin) == list(BROKERS), WAIT_S)
        asyncio.run(use_private_requests(bootstrap.split(",")[0]))
        lose_every_broker(cluster, admin)
        asked = [one for spoken in record.conversations for one in spoken.requests()]
    sent = Counter((one.api_key.name, one.version) for one in asked if is_private(one))
    assert not sent
    assert rule.rewritten > 20
    highest = {api: max(o.version for o in asked if o.api_key == api) for api in PRIVATE_VERSIONS}
    assert highest == {api: private - 1 for api, private in PRIVATE_VERSIONS.items()}


@pytest.mark.skipif(
    kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
)
@pytest.mark.parametrize(
    ("strategy", "wait_s"),
    [
        pytest.param("Aggressive", 5, id="Aggressive, short"),
        *(pytest.param(one, 60, id=one, marks=pytest.mark.soak) for one in STRATEGIES),
    ],
)
def test_broker_of_kafka_logs_no_error_in_our_cluster(
    strategy: str, wait_s: float, tmp_path: Path
) -> None:
    """Kafka's broker 6 leads last; our controllers recover the topic while it is away."""
    with ProcessCluster(
        tmp_path, controllers=3, brokers=3, settings=SETTINGS, features=LEVELS[ORACLE]
    ) as cluster:
        cluster.format()
        kafka = KafkaInPlace(cluster.nodes[LAST])
        try:
            kafka.begin()
            for node in cluster.nodes.values():
                if node.id != LAST:
                    node.start()
            kafka.wait_until_ready()
            began = time.monotonic()
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            create(admin, strategy)
            produce(cluster.bootstrap)
            until("the whole ISR", lambda: isr(admin) == list(BROKERS), WAIT_S)
            ours = [cluster.nodes[one] for one in BROKERS if one != LAST]
            # Kafka's broker follows, and has no part in the ISR of the leader that is lost.
            for node in ours:
                node.kill()
            until("Kafka's broker leads", lambda: leader(admin) == LAST, WAIT_S)
            for node in ours:
                node.start()
            until("the whole ISR", lambda: isr(admin) == list(BROKERS), WAIT_S)
            kafka.kill()
            until("a leader of ours", lambda: leader(admin) in BROKERS[:2], WAIT_S)
            for node in ours:
                node.kill()
            kafka.start()
            until("rest of the time", lambda: time.monotonic() - began > wait_s, wait_s + WAIT_S)
            for node in ours:
                node.start()
            until("the whole ISR", lambda: isr(admin) == list(BROKERS), WAIT_S)
            errors = [line for line in kafka.node.log_text.splitlines() if " ERROR " in line]
        finally:
            kafka.kill()
    assert errors == []
