"""The interop scenario with confluent-kafka, aiokafka and kafka-python (see README.md here)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from broker.apis.find_coordinator import NO_TRANSACTIONS
from testkit.processes.reply_cuts import FlakyNode
from testkit.processes.waiting import until
from tests.interop.python_clients import (
    TIMEOUT_S,
    AioKafka,
    Client,
    Confluent,
    KafkaPython,
    Message,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.core,
    # The client libraries leave sockets and deprecated calls of their own behind.
    pytest.mark.filterwarnings("default"),
]

CUTS = 8

CLIENTS: dict[str, Callable[[str], Client]] = {
    "confluent-kafka": Confluent,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
}


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Client]:
    made = CLIENTS[request.param](bootstrap)
    yield made
    if isinstance(made, AioKafka):
        made.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(client: Client, prefix: str, codec: str) -> None:
    client.create_topic(prefix, 3, {})
    messages = [
        Message(b"value %d, and again: %d" % (i, i), b"k%d" % i, [("n", b"%d" % i)])
        for i in range(200)
    ]
    client.produce(prefix, messages, codec)
    got = client.read_all(prefix, 3, len(messages))
    assert sorted((m.key, m.value, tuple(m.headers)) for m in got) == sorted(
        (m.key, m.value, tuple(m.headers)) for m in messages
    )


def test_group_of_three_with_a_rebalance(client: Client, prefix: str) -> None:
    client.create_topic(prefix, 6, {})
    # kafka-python's group leader assigns nothing for a topic that its metadata lacks.
    until("six partitions", lambda: client.partitions(prefix) == 6)
    members = [client.member(prefix, prefix) for _ in range(3)]
    got: Counter[bytes] = Counter()

    def all_read() -> Counter[bytes]:
        return sum((m.values for m in members), got.copy())

    until("2+2+2", lambda: [m.assigned() for m in members] == [2, 2, 2])
    client.produce(prefix, [Message(b"%d" % i, partition=i % 6) for i in range(300)], "none")
    until("300 records", lambda: len(all_read()) == 300)
    first = members.pop(0)
    first.stop()
    got += first.values
    until("3+3", lambda: [m.assigned() for m in members] == [3, 3])
    client.produce(prefix, [Message(b"%d" % i, partition=i % 6) for i in range(300, 600)], "none")
    until("600 records", lambda: len(all_read()) == 600)
    for member in members:
        member.stop()
    assert set(all_read().values()) == {1}
    assert client.committed(prefix, prefix, 6) == 600


def test_seek_by_timestamp(client: Client, prefix: str) -> None:
    client.create_topic(prefix, 1, {})
    base_ms = int(time.time()) * 1000 - 3_600_000
    client.produce(
        prefix,
        [Message(b"%d" % i, partition=0, timestamp_ms=base_ms + i * 1000) for i in range(100)],
        "none",
    )
    offset = client.offset_at(prefix, base_ms + 49_500)
    assert offset == 50
    assert client.read_from(prefix, offset).value == b"50"


def test_create_describe_alter_delete(client: Client, prefix: str) -> None:
    client.create_topic(prefix, 2, {"retention.ms": "3600000"})
    until("described", lambda: client.topic_config(prefix, "retention.ms") == "3600000")
    client.alter_topic(prefix, "retention.ms", "7200000")
    until("altered", lambda: client.topic_config(prefix, "retention.ms") == "7200000")
    client.add_partitions(prefix, 5)
    until("five partitions", lambda: client.partitions(prefix) == 5)
    client.delete_topic(prefix)
    until("deleted", lambda: prefix not in client.topics())


def test_librdkafka_receives_error_for_transactions(bootstrap: str, prefix: str) -> None:
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": prefix})
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(TIMEOUT_S)
    error = raised.value.args[0]
    assert error.fatal()
    assert not error.retriable()
    assert error.name() == "CLUSTER_AUTHORIZATION_FAILED"
    assert NO_TRANSACTIONS in error.str()


async def test_aiokafka_is_refused_a_transactional_producer(bootstrap: str, prefix: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=prefix)
    with pytest.raises(KafkaError, match="ClusterAuthorizationFailed"):
        await asyncio.wait_for(producer.start(), TIMEOUT_S)
    await producer.stop()


def test_kafka_python_is_refused_a_transactional_producer(bootstrap: str, prefix: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=prefix, max_block_ms=TIMEOUT_S * 1000
    )
    with pytest.raises(KafkaError, match="ClusterAuthorizationFailed"):
        producer.init_transactions()
    producer.close(1)


def test_librdkafka_receives_error_for_consumer_protocol(bootstrap: str, prefix: str) -> None:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": prefix, "group.protocol": "consumer"}
    consumer = Consumer(settings)
    consumer.subscribe([prefix])
    deadline = time.monotonic() + TIMEOUT_S
    error = None
    while error is None:
        assert time.monotonic() < deadline, "librdkafka waits in silence"
        message = consumer.poll(0.2)
        error = None if message is None else message.error()
    assert error.name() == "_FATAL"
    assert "ConsumerGroupHeartbeat" in error.str()
    consumer.close()


@pytest.mark.parametrize("name", list(CLIENTS))
def test_idempotent_producer_with_retries(flaky: FlakyNode, prefix: str, name: str) -> None:
    address = flaky.address
    flaky.cuts.arm(0)
    client = CLIENTS[name](address)
    client.create_topic(prefix, 1, {})
    flaky.cuts.arm(CUTS)
    before = flaky.cuts.made
    values = [b"%d" % i for i in range(1000)]
    client.produce(prefix, [Message(v, partition=0) for v in values], "none", idempotent=True)
    flaky.cuts.arm(0)
    assert flaky.cuts.made > before, "no connection was cut, so nothing was tested"
    assert [m.value for m in client.read_all(prefix, 1, len(values))] == values
    if isinstance(client, AioKafka):
        client.close()
