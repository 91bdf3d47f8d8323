"""Our own extensions on the wire, never offered or sent to foreign clients and nodes.

Covers KIP-966 and KIP-1303. Proxies record all traffic to our nodes, on the listener for clients,
on that between brokers, and on the controller's. The Java client, librdkafka, kafka-python and a
broker of Kafka's take part in elections that succeed and that fail, with an unclean recovery
between them. Our own nodes and tools use the extensions at the same time, local logs included.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.transport.client import Connection
from protocol.transport.own_names import (
    BROKER_SOFTWARE_NAME,
    CONTROLLER_SOFTWARE_NAME,
    OWN_BY_NAME,
    TOOL_SOFTWARE_NAME,
)
from testkit.kafka.in_place import LEVELS, KafkaInPlace
from testkit.kafka.jars import ORACLE, kafka_libs
from testkit.kafka.tools import KafkaTools
from testkit.processes.listing import listed
from testkit.processes.ports import free_port
from testkit.processes.quorum_cluster import HOST, ProcessCluster
from testkit.processes.waiting import until
from testkit.processes.wire_record import Exchange, RequestSent, WireRecord

pytestmark = [
    pytest.mark.interop,
    pytest.mark.rest,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]

CLIENTS, BETWEEN, CONTROLLER = "PLAINTEXT", "BETWEEN", "CONTROLLER"
LISTENERS = (CLIENTS, BETWEEN)
JAVA, LIBRDKAFKA, KAFKA_PYTHON = "apache-kafka-java", "librdkafka", "kafka-python"
NAMES = {"confluent-kafka-python": LIBRDKAFKA}
OURS_ALONE = {ApiKey.GET_REPLICA_LOG_INFO, ApiKey.EXPLAIN_ELECTION}
LAST_OF_KAFKA = {ApiKey.ELECT_LEADERS: 2, ApiKey.FETCH: 18, ApiKey.ALTER_PARTITION: 3}
"""Versions above are ours alone."""
LOCAL_LOG_BYTES = "leader.election.eligible.local.log.bytes"
FIRST_PRIVATE_CODE = 10_000
KAFKAS_BROKER = 4
HELD, SHARED, CROWD = "held", "shared", "crowd"
CROWDED = 1001
WAIT_S = 60.0
T = "org.apache.kafka.tools."
SETTINGS = {
    "unclean.recovery.manager.enabled": "true",
    "kraftbox.broker.connection.loss.fence.ms": "300",
    "offsets.topic.num.partitions": "1",
    # Otherwise a closing consumer waits 90 s for a killed coordinator.
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    # The controller, too, must know the listener between brokers.
    "inter.broker.listener.name": BETWEEN,
    "listener.security.protocol.map": ",".join(
        f"{name}:PLAINTEXT" for name in (CLIENTS, BETWEEN, CONTROLLER)
    ),
}


class Place(NamedTuple):
    """A running cluster, and its recorded traffic."""

    cluster: ProcessCluster
    record: WireRecord

    def bootstrap(self, listener: str) -> str:
        """Return addresses of the brokers on a listener, behind their proxies."""
        marked = f"{listener}://"
        advertised = [one.settings["advertised.listeners"] for one in self.cluster.brokers]
        return ",".join(
            part.removeprefix(marked)
            for text in advertised
            for part in text.split(",")
            if part.startswith(marked)
        )

    @property
    def controller(self) -> str:
        return f"{HOST}:{self.cluster.controllers[0].proxy}"


def listen_behind_proxies(cluster: ProcessCluster, record: WireRecord) -> None:
    """Give each broker two listeners, and advertise only their proxies' addresses."""
    for broker in cluster.brokers:
        ports = {CLIENTS: broker.port, BETWEEN: free_port()}
        proxies = {
            name: cluster.links.add(
                broker.id,
                (HOST, port),
                lambda n=name, b=broker.id: record.begin(n, b),  # type: ignore[misc]
            )
            for name, port in ports.items()
        }
        broker.settings = {
            "listeners": ",".join(f"{n}://{HOST}:{port}" for n, port in ports.items()),
            "advertised.listeners": ",".join(f"{n}://{HOST}:{port}" for n, port in proxies.items()),
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Start controller 1 and brokers 2 and 3 of ours, and broker 4 of Kafka's."""
    record = WireRecord()
    with ProcessCluster(
        tmp_path,
        controllers=1,
        brokers=3,
        settings=SETTINGS,
        features=LEVELS[ORACLE],
        watch=lambda: record.begin(CONTROLLER),
    ) as cluster:
        listen_behind_proxies(cluster, record)
        cluster.format()
        kafka = KafkaInPlace(cluster.nodes[KAFKAS_BROKER])
        try:
            kafka.begin()
            for node in cluster.nodes.values():
                if node.id != KAFKAS_BROKER:
                    node.start()
            kafka.wait_until_ready()
            yield Place(cluster, record)
        finally:
            kafka.kill()


# --- foreign clients ------------------------------------------------------------------------------


class Librdkafka:
    def __init__(self, bootstrap: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(self._servers)

    def use(self) -> None:
        """Produce, consume and describe with librdkafka."""
        producer = Producer(self._servers)
        producer.produce(SHARED, b"librdkafka", partition=0)
        assert producer.flush(WAIT_S) == 0
        consumer = Consumer({**self._servers, "group.id": "librdkafka"})
        try:
            consumer.assign([TopicPartition(SHARED, 0, 0)])
            (message,) = consumer.consume(1, WAIT_S)
            assert message.error() is None
        finally:
            consumer.close()
        listed(self._admin)

    def elect(self, *, unclean: bool, partitions: list[tuple[str, int]]) -> set[int]:
        """Return the error codes of the elections."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        wanted = [TopicPartition(*one) for one in partitions]
        told = self._admin.elect_leaders(kind, wanted).result(WAIT_S)
        return {0 if error is None else error.code() for error in told.values()}


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        import kafka  # it warns of its own deprecated calls

        self._servers = bootstrap.split(",")
        self._kafka = kafka

    def use(self) -> None:
        """Produce, consume and describe with kafka-python."""
        producer = self._kafka.KafkaProducer(bootstrap_servers=self._servers)
        try:
            producer.send(SHARED, b"kafka-python", partition=0).get(WAIT_S)
        finally:
            producer.close()
        consumer = self._kafka.KafkaConsumer(
            SHARED,
            bootstrap_servers=self._servers,
            group_id=None,
            auto_offset_reset="earliest",
        )
        try:
            assert next(consumer).value
        finally:
            consumer.close()

    def elect(self, *, unclean: bool, partitions: list[tuple[str, int]]) -> set[int]:
        """Return the error codes of the elections."""
        wanted: dict[str, list[int]] = {}
        for topic, partition in partitions:
            wanted.setdefault(topic, []).append(partition)
        admin = self._kafka.KafkaAdminClient(bootstrap_servers=self._servers)
        try:
            told: Any = admin.elect_leaders(int(unclean), wanted, raise_errors=False)
        finally:
            admin.close()
        assert not isinstance(told, dict) or told, told
        return _codes_of(told)


def _codes_of(told: Any) -> set[int]:
    """Return the error codes in an answer of kafka-python's."""
    fields = told if isinstance(told, dict) else told.to_dict()
    return {
        partition["error_code"]
        for topic in fields["replica_election_results"]
        for partition in topic["partition_result"]
    }


class JavaTools:
    def __init__(self, tools: KafkaTools, bootstrap: str) -> None:
        self._tools = tools
        self._servers = ("--bootstrap-server", bootstrap)

    def use(self) -> None:
        """Describe topics and the brokers' API versions."""
        for name, *more in ((f"{T}TopicCommand", "--describe"), (f"{T}BrokerApiVersionsCommand",)):
            done = self._tools.run(name, *self._servers, *more)
            assert done.code == 0, done.text

    def elect(self, *, unclean: bool, partitions: list[tuple[str, int]]) -> str:
        """Return the output of the election tool."""
        kind = ("--election-type", "unclean" if unclean else "preferred")
        ((topic, partition),) = partitions
        which = ("--topic", topic, "--partition", str(partition))
        return self._tools.run(f"{T}LeaderElectionCommand", *self._servers, *kind, *which).text


def speak_to_the_controller(tools: KafkaTools, place: Place) -> None:
    """Connect to the controller: the Java client can use it, the others find no API for them."""
    import kafka

    way = ("--bootstrap-controller", place.controller)
    for name, *more in (
        (f"{T}MetadataQuorumCommand", *way, "describe", "--status"),
        (f"{T}FeatureCommand", *way, "describe"),
        (f"{T}ClusterTool", "cluster-id", *way),
    ):
        done = tools.run(name, *more)
        assert done.code == 0, done.text
    with contextlib.suppress(KafkaException):
        AdminClient({"bootstrap.servers": place.controller, "log_level": 0}).list_topics(timeout=2)
    with contextlib.suppress(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(bootstrap_servers=place.controller, request_timeout_ms=2000).close()


# --- our own --------------------------------------------------------------------------------------


async def too_many(address: str) -> set[int]:
    """Send ElectLeaders v3 of our tools with too many partitions, and return the codes."""
    host, port = address.split(":")
    connection = await Connection.connect(host, int(port), "a tool of ours")
    try:
        crowd = ElectLeadersRequest.TopicPartitions(topic=CROWD, partitions=list(range(CROWDED)))
        answer = await connection.request(ElectLeadersRequest(topic_partitions=[crowd]), 20_000)
    finally:
        await connection.close()
    return {p.error_code for t in answer.replica_election_results for p in t.partition_result}


# --- the story ------------------------------------------------------------------------------------


def create(place: Place) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": place.bootstrap(CLIENTS), "log_level": 0})
    one = {"min.insync.replicas": "1"}
    new = [
        NewTopic(HELD, 1, replica_assignment=[[2, 3]], config=one),
        NewTopic(SHARED, 1, replica_assignment=[[2, 3, 4]], config={**one, LOCAL_LOG_BYTES: "1"}),
        NewTopic(CROWD, CROWDED, replica_assignment=[[3, 2]] * CROWDED, config=one),
    ]
    for created in admin.create_topics(new).values():
        created.result(WAIT_S)
    return admin


def leader(admin: AdminClient, topic: str) -> int:
    """Return the leader; -1 without one, or if the broker does not know the topic yet."""
    partitions = listed(admin, topic).topics[topic].partitions
    return partitions[0].leader if partitions else -1


def live_through_elections(place: Place, tools: KafkaTools) -> None:
    admin = create(place)
    until("a leader", lambda: leader(admin, CROWD) == 3, WAIT_S)
    everywhere = [(CROWD, index) for index in range(CROWDED)]
    nothing_to_do = {ErrorCode.ELECTION_NOT_NEEDED}
    for bootstrap in map(place.bootstrap, LISTENERS):
        for client in (Librdkafka(bootstrap), KafkaPython(bootstrap)):
            client.use()
            assert client.elect(unclean=False, partitions=everywhere) <= {0, *nothing_to_do}
            assert client.elect(unclean=True, partitions=[(HELD, 0)]) == nothing_to_do
        java = JavaTools(tools, bootstrap)
        java.use()
        assert "already elected" in java.elect(unclean=True, partitions=[(HELD, 0)])
    speak_to_the_controller(tools, place)
    codes = asyncio.run(too_many(place.bootstrap(CLIENTS).split(",")[0]))
    assert ErrorCode.REQUEST_LIMIT_REACHED in codes

    # Only Kafka's broker is left, which forwards elections to our controller.
    place.cluster.nodes[3].kill()
    until("another leader", lambda: leader(admin, CROWD) == 2, WAIT_S)
    place.cluster.nodes[2].kill()
    until("nobody to lead", lambda: leader(admin, HELD) == -1, WAIT_S)
    nobody = {
        False: {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE},
        True: {ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE},
    }
    for bootstrap in map(place.bootstrap, LISTENERS):
        for client in (Librdkafka(bootstrap), KafkaPython(bootstrap)):
            for unclean, wanted in nobody.items():
                assert client.elect(unclean=unclean, partitions=[(HELD, 0)]) == wanted
        assert "EligibleLeadersNotAvailable" in JavaTools(tools, bootstrap).elect(
            unclean=True, partitions=[(HELD, 0)]
        )

    # The last one crashed: our controller compares the logs before it leads.
    place.cluster.nodes[2].start()
    until("an unclean recovery", lambda: leader(admin, HELD) == 2, WAIT_S)
    for bootstrap in map(place.bootstrap, LISTENERS):
        for client in (Librdkafka(bootstrap), KafkaPython(bootstrap)):
            client.use()


# --- recorded traffic -----------------------------------------------------------------------------


class Said(NamedTuple):
    software: str
    listener: str
    exchange: Exchange


def everything_said(record: WireRecord) -> list[Said]:
    return [
        Said(NAMES.get(software, software), conversation.listener, exchange)
        for conversation in record.conversations
        for software in [conversation.software()]
        for exchange in conversation.exchanges()
    ]


def _is_ours_alone(one: Exchange | RequestSent) -> bool:
    return one.version > LAST_OF_KAFKA.get(one.api_key, one.version)


def check_versions_of_our_own(record: WireRecord) -> None:
    """Check all requests above Kafka's versions: their senders and receivers, answered or not."""
    asked = [
        (spoken, NAMES.get(spoken.software(), spoken.software()), one)
        for spoken in record.conversations
        for one in spoken.requests()
    ]
    beyond = {
        (one.api_key, one.version, software, spoken.listener)
        for spoken, software, one in asked
        if _is_ours_alone(one)
    }
    local_logs = {
        (ApiKey.FETCH, 19, BROKER_SOFTWARE_NAME, BETWEEN),
        (ApiKey.ALTER_PARTITION, 4, BROKER_SOFTWARE_NAME, CONTROLLER),
    }
    assert beyond == {*local_logs, (ApiKey.ELECT_LEADERS, 3, TOOL_SOFTWARE_NAME, CLIENTS)}
    # Our brokers follow Kafka's broker without our own versions, as all clients and the quorum do.
    to_kafka = [one for spoken, _, one in asked if spoken.node == KAFKAS_BROKER]
    follower = re.compile(r"broker-[23]-fetcher")
    assert any(follower.match(one.client_id or "") for one in to_kafka)
    assert not any(map(_is_ours_alone, to_kafka))
    raft = {
        (software, one.version)
        for spoken, software, one in asked
        if spoken.listener == CONTROLLER and one.api_key == ApiKey.FETCH
    }
    # Our raft fetches are sent like those of any client: under our tools' name.
    assert {software for software, _ in raft} == {TOOL_SOFTWARE_NAME, JAVA}
    # Of the fetches between brokers only those of our fetchers, on connections of their own.
    fetchers = {
        one.client_id for _, _, one in asked if one.api_key == ApiKey.FETCH and one.version == 19
    }
    assert fetchers and all(name and follower.match(name) for name in fetchers)


def check_offers_to_our_own(own: list[Said]) -> None:
    """Check that our tools, controllers and raft clients are not offered inter-broker versions
    either.

    A client that uses the highest version of all would request it.
    """
    offered = {
        (api, one.software, one.listener)
        for one in own
        if one.exchange.api_key == ApiKey.API_VERSIONS
        for api in (ApiKey.FETCH, ApiKey.ALTER_PARTITION)
        if one.exchange.offered().get(api, 0) > LAST_OF_KAFKA[api]
    }
    assert offered == {
        (ApiKey.FETCH, BROKER_SOFTWARE_NAME, BETWEEN),
        (ApiKey.ALTER_PARTITION, BROKER_SOFTWARE_NAME, CONTROLLER),
    }


def check_foreign(said: Said) -> None:
    exchange = said.exchange
    assert exchange.api_key not in OURS_ALONE, said
    assert [code for code in exchange.error_codes() if code >= FIRST_PRIVATE_CODE] == [], said
    assert not _is_ours_alone(exchange), said
    if exchange.api_key == ApiKey.API_VERSIONS:
        offered = exchange.offered()
        assert OURS_ALONE.isdisjoint(offered), said
        # Controllers do not offer all of them.
        assert all(offered.get(api, 0) <= last for api, last in LAST_OF_KAFKA.items()), said


def test_own_extensions_are_not_sent_to_foreign_software(place: Place, tools: KafkaTools) -> None:
    live_through_elections(place, tools)
    said = everything_said(place.record)
    foreign = [one for one in said if one.software not in OWN_BY_NAME]
    for one in foreign:
        check_foreign(one)

    # All of them sent requests on every listener, and observed failing elections.
    asked = {(one.software, one.listener) for one in foreign}
    clients = (JAVA, LIBRDKAFKA, KAFKA_PYTHON)
    assert asked >= {(name, on) for name in clients for on in (*LISTENERS, CONTROLLER)}
    failed = {
        (one.software, one.listener)
        for one in foreign
        if one.exchange.api_key == ApiKey.ELECT_LEADERS and one.exchange.error_codes()
    }
    assert failed >= {(name, on) for name in clients for on in LISTENERS}
    # Kafka's broker has forwarded such an election, and followed our leaders.
    assert (JAVA, CONTROLLER) in failed
    fetched = [one for one in foreign if one.exchange.api_key == ApiKey.FETCH]
    follower = f"broker-{KAFKAS_BROKER}-fetcher"
    assert any(
        one.listener == BETWEEN and follower in (one.exchange.client_id or "") for one in fetched
    )

    check_versions_of_our_own(place.record)

    # Our own nodes and tools have used all of it at the same time: otherwise the test proves
    # nothing.
    own = [one for one in said if one.software in OWN_BY_NAME]
    check_offers_to_our_own(own)
    questions = [one for one in own if one.exchange.api_key == ApiKey.GET_REPLICA_LOG_INFO]
    assert {(q.software, q.listener) for q in questions} == {(CONTROLLER_SOFTWARE_NAME, BETWEEN)}
    limited = [one for one in own if ErrorCode.REQUEST_LIMIT_REACHED in one.exchange.error_codes()]
    assert (TOOL_SOFTWARE_NAME, CLIENTS) in {(one.software, one.listener) for one in limited}
    for one in (*questions, *limited):
        with pytest.raises(AssertionError):
            check_foreign(one)
