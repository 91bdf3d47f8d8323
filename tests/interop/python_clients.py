"""A common interface for three Python clients, for one shared scenario.

A client provides `produce`, `read_all`, `member`, `offset_at`, and the admin calls; differences
between the libraries stay in this module.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

# Only a session or rebalance timeout detects a lost join, and the machine may be busy.
TIMEOUT_S = 60


@dataclass
class Message:
    """One record, as a client returns it."""

    value: bytes
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


class Member(Protocol):
    """A running group member; `values` counts the values that it read."""

    values: Counter[bytes]

    def assigned(self) -> int:
        """Return the number of partitions it owns now. Raises: the error of the member's loop."""

    def stop(self) -> None:
        """Commit, leave the group and end. Raises: the error of the member's loop."""


class Client(Protocol):
    """The operations of a client library that the scenario needs."""

    def produce(
        self, topic: str, messages: Sequence[Message], codec: str, idempotent: bool = False
    ) -> None: ...
    def read_all(self, topic: str, partitions: int, count: int) -> list[Message]: ...
    def member(self, topic: str, group: str) -> Member: ...
    def offset_at(self, topic: str, timestamp_ms: int) -> int: ...
    def read_from(self, topic: str, offset: int) -> Message: ...
    def committed(self, topic: str, group: str, partitions: int) -> int: ...
    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None: ...
    def topic_config(self, topic: str, key: str) -> str | None: ...
    def alter_topic(self, topic: str, key: str, value: str) -> None: ...
    def add_partitions(self, topic: str, total: int) -> None: ...
    def partitions(self, topic: str) -> int: ...
    def delete_topic(self, topic: str) -> None: ...
    def topics(self) -> set[str]: ...


class ThreadedMember:
    """A member whose loop runs `poll` in a thread until stopped."""

    def __init__(self) -> None:
        self.values: Counter[bytes] = Counter()
        self._owned = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        # A failed test leaves members behind, which must not keep the process alive.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> ThreadedMember:
        self._thread.start()
        return self

    def assigned(self) -> int:
        self._raise_failure()
        return self._owned

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.poll()
            self.close()
        except BaseException as error:  # noqa: BLE001 - raised again where the test looks
            self._failure = error

    def poll(self) -> None:
        raise AssertionError("a member polls")

    def close(self) -> None:
        raise AssertionError("a member closes")


# --- confluent-kafka (librdkafka) -------------------------------------------------------------


class ConfluentMember(ThreadedMember):
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from confluent_kafka import Consumer

        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 200,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.assign(partitions)
        self._owned = len(partitions)

    def _on_revoke(self, consumer: Any, _partitions: list[Any]) -> None:
        self._owned = 0
        consumer.unassign()

    def poll(self) -> None:
        messages = [m for m in self._consumer.consume(100, 0.05) if m.error() is None]
        self.values.update(m.value() for m in messages)
        if messages:
            self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Confluent:
    """librdkafka through confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def produce(
        self, topic: str, messages: Sequence[Message], codec: str, idempotent: bool = False
    ) -> None:
        from confluent_kafka import Producer

        failures: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": codec,
                "linger.ms": 5,
                "enable.idempotence": idempotent,
                "batch.num.messages": 20 if idempotent else 1000,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
            }
        )
        for message in messages:
            options: dict[str, Any] = {"headers": message.headers or None}
            if message.partition is not None:
                options["partition"] = message.partition
            if message.timestamp_ms is not None:
                options["timestamp"] = message.timestamp_ms
            producer.produce(
                topic,
                message.value,
                key=message.key,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                **options,
            )
        assert producer.flush(60) == 0
        assert not failures, failures[0]

    def _reader(self, topic: str, offsets: dict[int, int]) -> Any:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "unused"})
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in offsets.items()])
        return consumer

    def read_all(self, topic: str, partitions: int, count: int) -> list[Message]:
        consumer = self._reader(topic, dict.fromkeys(range(partitions), 0))
        got: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(got) < count and time.monotonic() < deadline:
            for m in consumer.consume(500, 0.2):
                assert m.error() is None, m.error()
                got.append(Message(m.value(), m.key(), m.headers() or [], m.partition()))
        consumer.close()
        return got

    def member(self, topic: str, group: str) -> Member:
        return ConfluentMember(self._bootstrap, topic, group).begin()

    def offset_at(self, topic: str, timestamp_ms: int) -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "unused"})
        found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], TIMEOUT_S)
        consumer.close()
        return int(found[0].offset)

    def read_from(self, topic: str, offset: int) -> Message:
        consumer = self._reader(topic, {0: offset})
        message = consumer.poll(TIMEOUT_S)
        consumer.close()
        return Message(message.value(), message.key())

    def committed(self, topic: str, group: str, partitions: int) -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        offsets = consumer.committed(
            [TopicPartition(topic, p) for p in range(partitions)], TIMEOUT_S
        )
        consumer.close()
        return sum(max(o.offset, 0) for o in offsets)

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, partitions, 1, config=config)
        self._admin.create_topics([new])[topic].result(TIMEOUT_S)

    def topic_config(self, topic: str, key: str) -> str | None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            entries = self._admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        except KafkaException:
            return None
        return str(entries[key].value)

    def alter_topic(self, topic: str, key: str, value: str) -> None:
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
        )

        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def add_partitions(self, topic: str, total: int) -> None:
        from confluent_kafka.admin import NewPartitions

        new = NewPartitions(topic, total)
        self._admin.create_partitions([new])[topic].result(TIMEOUT_S)

    def partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=TIMEOUT_S).topics)


# --- kafka-python -----------------------------------------------------------------------------


class KafkaPythonMember(ThreadedMember):
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from kafka import KafkaConsumer

        super().__init__()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
        )
        # A leader that assigns before its first metadata has arrived never assigns anything.
        self._consumer.partitions_for_topic(topic)

    def poll(self) -> None:
        polled = self._consumer.poll(timeout_ms=50)
        self.values.update(r.value for records in polled.values() for r in records)
        if polled:
            self._consumer.commit()
        self._owned = len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _admin(self) -> Any:
        from kafka import KafkaAdminClient

        return KafkaAdminClient(bootstrap_servers=self._bootstrap)

    def _with_admin(self, call: Callable[[Any], Any]) -> Any:
        admin = self._admin()
        try:
            return call(admin)
        finally:
            admin.close()

    def produce(
        self, topic: str, messages: Sequence[Message], codec: str, idempotent: bool = False
    ) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            acks="all",
            enable_idempotence=idempotent,
            batch_size=400 if idempotent else 16384,
            retry_backoff_ms=10,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
        )
        futures = [
            producer.send(
                topic,
                value=m.value,
                key=m.key,
                headers=m.headers or None,
                partition=m.partition,
                timestamp_ms=m.timestamp_ms,
            )
            for m in messages
        ]
        producer.flush(60)
        for future in futures:
            future.get(timeout=1)
        producer.close()

    def _reader(self, topic: str, offsets: dict[int, int]) -> Any:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        consumer.assign([TopicPartition(topic, p) for p in offsets])
        for partition, offset in offsets.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        return consumer

    def read_all(self, topic: str, partitions: int, count: int) -> list[Message]:
        consumer = self._reader(topic, dict.fromkeys(range(partitions), 0))
        got: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(got) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                got += [Message(r.value, r.key, list(r.headers), r.partition) for r in records]
        consumer.close()
        return got

    def member(self, topic: str, group: str) -> Member:
        return KafkaPythonMember(self._bootstrap, topic, group).begin()

    def offset_at(self, topic: str, timestamp_ms: int) -> int:
        from kafka import TopicPartition

        consumer = self._reader(topic, {0: 0})
        found = consumer.offsets_for_times({TopicPartition(topic, 0): timestamp_ms})
        consumer.close()
        return int(found[TopicPartition(topic, 0)].offset)

    def read_from(self, topic: str, offset: int) -> Message:
        consumer = self._reader(topic, {0: offset})
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                consumer.close()
                return Message(records[0].value, records[0].key)
        raise AssertionError("no record came")

    def committed(self, topic: str, group: str, partitions: int) -> int:
        offsets = self._with_admin(lambda admin: admin.list_group_offsets(group))
        named = offsets.get(group, offsets)
        return sum(max(o.offset, 0) for o in named.values())

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        from kafka.admin import NewTopic

        new = NewTopic(topic, partitions, 1, topic_configs=config)
        self._with_admin(lambda admin: admin.create_topics([new]))

    def topic_config(self, topic: str, key: str) -> str | None:
        from kafka.admin import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._with_admin(lambda admin: admin.describe_configs([resource]))
        return _config_value(described, key)

    def alter_topic(self, topic: str, key: str, value: str) -> None:
        from kafka.admin import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        self._with_admin(lambda admin: admin.alter_configs([resource]))

    def add_partitions(self, topic: str, total: int) -> None:
        from kafka.admin import NewPartitions

        self._with_admin(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def partitions(self, topic: str) -> int:
        described = self._with_admin(lambda admin: admin.describe_topics([topic]))
        return len(described[0]["partitions"])

    def delete_topic(self, topic: str) -> None:
        self._with_admin(lambda admin: admin.delete_topics([topic]))

    def topics(self) -> set[str]:
        return set(self._with_admin(lambda admin: admin.list_topics()))


def _config_value(described: Any, key: str) -> str | None:
    """Find a key in any form in which the library describes configs."""
    if isinstance(described, dict):
        if key in described:
            found = described[key]
            return str(found.get("value", found) if isinstance(found, dict) else found)
        parts = list(described.values())
    elif isinstance(described, (list, tuple)):
        parts = list(described)
    else:
        return None
    for part in parts:
        found = _config_value(part, key)
        if found is not None:
            return found
    return None


# --- aiokafka ---------------------------------------------------------------------------------


class AioMember:
    """A group member on the adapter's loop."""

    def __init__(self, owner: AioKafka, topic: str, group: str) -> None:
        self.values: Counter[bytes] = Counter()
        self._owner = owner
        self._stopping = False
        self._consumer: Any = None
        self._future: Future[None] = owner.submit(self._run(topic, group))

    async def _run(self, topic: str, group: str) -> None:
        from aiokafka import AIOKafkaConsumer

        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self._owner.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
        )
        await self._consumer.start()
        while not self._stopping:
            polled = await self._consumer.getmany(timeout_ms=50)
            self.values.update(r.value for records in polled.values() for r in records)
            if polled:
                await self._consumer.commit()
        await self._consumer.stop()

    def assigned(self) -> int:
        return len(self._consumer.assignment()) if self._consumer is not None else 0

    def stop(self) -> None:
        self._stopping = True
        self._future.result(TIMEOUT_S)


class AioKafka:
    """aiokafka, on a loop in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _wait(self, coroutine: Any) -> Any:
        return self.submit(coroutine).result(60)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _admin_call(self, call: Callable[[Any], Any]) -> Any:
        from aiokafka.admin import AIOKafkaAdminClient

        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            return await call(admin)
        finally:
            await admin.close()

    def produce(
        self, topic: str, messages: Sequence[Message], codec: str, idempotent: bool = False
    ) -> None:
        self._wait(self._produce(topic, messages, codec, idempotent))

    async def _produce(
        self, topic: str, messages: Sequence[Message], codec: str, idempotent: bool
    ) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            acks="all",
            enable_idempotence=idempotent,
            max_batch_size=400 if idempotent else 16384,
            retry_backoff_ms=10,
        )
        await producer.start()
        futures = [
            await producer.send(
                topic,
                m.value,
                key=m.key,
                partition=m.partition,
                timestamp_ms=m.timestamp_ms,
                headers=m.headers or None,
            )
            for m in messages
        ]
        await producer.flush()
        await asyncio.gather(*futures)
        await producer.stop()

    async def _read(self, topic: str, offsets: dict[int, int], count: int) -> list[Message]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([TopicPartition(topic, p) for p in offsets])
        for partition, offset in offsets.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        got: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(got) < count and time.monotonic() < deadline:
            polled = await consumer.getmany(timeout_ms=200)
            for records in polled.values():
                got += [Message(r.value, r.key, list(r.headers), r.partition) for r in records]
        await consumer.stop()
        return got

    def read_all(self, topic: str, partitions: int, count: int) -> list[Message]:
        read = self._read(topic, dict.fromkeys(range(partitions), 0), count)
        return list(self._wait(read))

    def member(self, topic: str, group: str) -> Member:
        return AioMember(self, topic, group)

    def offset_at(self, topic: str, timestamp_ms: int) -> int:
        async def ask() -> int:
            from aiokafka import AIOKafkaConsumer, TopicPartition

            consumer = AIOKafkaConsumer(topic, bootstrap_servers=self.bootstrap)
            await consumer.start()
            partition = TopicPartition(topic, 0)
            found = await consumer.offsets_for_times({partition: timestamp_ms})
            await consumer.stop()
            return int(found[partition].offset)

        return int(self._wait(ask()))

    def read_from(self, topic: str, offset: int) -> Message:
        return self._wait(self._read(topic, {0: offset}, 1))[0]  # type: ignore[no-any-return]

    def committed(self, topic: str, group: str, partitions: int) -> int:
        async def ask(admin: Any) -> int:
            offsets = await admin.list_consumer_group_offsets(group)
            return sum(max(o.offset, 0) for o in offsets.values())

        return int(self._wait(self._admin_call(ask)))

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        from aiokafka.admin import NewTopic

        new = NewTopic(topic, partitions, 1, topic_configs=config)
        self._wait(self._admin_call(lambda admin: admin.create_topics([new])))

    def topic_config(self, topic: str, key: str) -> str | None:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        replies = self._wait(self._admin_call(lambda admin: admin.describe_configs([resource])))
        for reply in replies:
            for resource_row in reply.resources:
                for entry in resource_row[4]:
                    if entry[0] == key:
                        return str(entry[1])
        return None

    def alter_topic(self, topic: str, key: str, value: str) -> None:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        self._wait(self._admin_call(lambda admin: admin.alter_configs([resource])))

    def add_partitions(self, topic: str, total: int) -> None:
        from aiokafka.admin import NewPartitions

        new = {topic: NewPartitions(total)}
        self._wait(self._admin_call(lambda admin: admin.create_partitions(new)))

    def partitions(self, topic: str) -> int:
        described = self._wait(self._admin_call(lambda admin: admin.describe_topics([topic])))
        return len(described[0]["partitions"])

    def delete_topic(self, topic: str) -> None:
        self._wait(self._admin_call(lambda admin: admin.delete_topics([topic])))

    def topics(self) -> set[str]:
        return set(self._wait(self._admin_call(lambda admin: admin.list_topics())))
