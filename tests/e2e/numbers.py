"""A topic of one partition whose records are numbers."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from testkit.processes.waiting import until

TIMEOUT_S = 60


def create_topic(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(TIMEOUT_S)


def read_numbers(bootstrap: str, topic: str) -> list[int]:
    """Return the values of partition 0 from its start to its end, as integers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    partition = TopicPartition(topic, 0, 0)
    _, end = until("the log end is known", lambda: _watermarks(consumer, partition))
    consumer.assign([partition])
    numbers: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(numbers) < end and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1):
            assert message.error() is None, message.error()
            numbers.append(int(message.value()))
    consumer.close()
    return numbers


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int] | None:
    """Return the watermarks, or None while the leader has to flush first (`flush.messages`).

    A client retries that error, and librdkafka leaves the retry to its caller.
    """
    try:
        low, high = consumer.get_watermark_offsets(partition, TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.OFFSET_NOT_AVAILABLE:
            return None
        raise
    return low, high
