"""Whole topics written and read: the record count and hash of each partition.

The hash goes over offset (8 bytes, big endian), length (4) and value of each record, in order. The
foreign programs compute it, too. `python -m tests.interop.whole_topics CLIENT BOOTSTRAP TOPIC RACK`
prints it in their format, as read by a Python client.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

TIMEOUT_S = 120
VALUE_BYTES = (100, 4000)
BATCH_BYTES = 200_000

Read: TypeAlias = dict[int, tuple[int, str]]
"""Count and hash by partition."""


@dataclass(slots=True)
class Digest:
    """The digest of one partition."""

    count: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def add(self, offset: int, value: bytes) -> None:
        self.count += 1
        self._hash.update(offset.to_bytes(8) + len(value).to_bytes(4))
        self._hash.update(value)

    @property
    def read(self) -> tuple[int, str]:
        return self.count, self._hash.hexdigest()


class Sender:
    """librdkafka's idempotent producer, which continues from one call to the next."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int = 15) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._digests = [Digest() for _ in range(partitions)]
        self._rng = random.Random(seed)
        self._noise = self._rng.randbytes(1 << 20)
        self._failures: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.size": BATCH_BYTES,
                "log_level": 0,
            }
        )

    @property
    def sent(self) -> Read:
        return {number: digest.read for number, digest in enumerate(self._digests)}

    def send(self, size_bytes: int) -> None:
        """Send random values in turn to all partitions, and return once they are acknowledged."""
        while size_bytes > 0:
            for number, digest in enumerate(self._digests):
                length = self._rng.randint(*VALUE_BYTES)
                at = self._rng.randrange(len(self._noise) - length)
                value = self._noise[at : at + length]
                self._produce(number, value)
                digest.add(digest.count, value)
                size_bytes -= length
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not self._failures, self._failures[0]

    def _produce(self, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(error)


Record: TypeAlias = tuple[int, int, bytes]
"""Partition, offset, value."""


def _librdkafka(bootstrap: str, topic: str, rack: str) -> tuple[dict[int, int], Iterator[Record]]:
    """Return the ends of the partitions, and an endless iterator of records."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "client.rack": rack})
    numbers = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1]
        for number in numbers
    }

    def records() -> Iterator[Record]:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        try:
            while True:
                for message in consumer.consume(10_000, 1):
                    if message.error() is not None:
                        raise RuntimeError(message.error())
                    yield message.partition(), message.offset(), message.value()
        finally:
            consumer.close()

    return ends, records()


def _kafka_python(bootstrap: str, topic: str, rack: str) -> tuple[dict[int, int], Iterator[Record]]:
    """Return the same as `_librdkafka`, by kafka-python."""
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaConnectionError

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_rack=rack,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_poll_records=10_000,
    )
    while True:
        # It tries one broker of its list, and raises if that broker has just died.
        with suppress(KafkaConnectionError):
            numbers = consumer.partitions_for_topic(topic)
            break
    all_of_them = [TopicPartition(topic, number) for number in numbers]
    ends = {one.partition: end for one, end in consumer.end_offsets(all_of_them).items()}

    def records() -> Iterator[Record]:
        consumer.assign(all_of_them)
        consumer.seek_to_beginning(*all_of_them)
        try:
            while True:
                for polled in consumer.poll(timeout_ms=500).values():
                    for record in polled:
                        yield record.partition, record.offset, record.value
        finally:
            consumer.close()

    return ends, records()


READERS: dict[str, Callable[[str, str, str], tuple[dict[int, int], Iterator[Record]]]] = {
    "librdkafka": _librdkafka,
    "kafka-python": _kafka_python,
}


def read_whole(client: str, bootstrap: str, topic: str, rack: str) -> Read:
    """Read with one of `READERS`, to the ends that the partitions have at its start."""
    ends, records = READERS[client](bootstrap, topic, rack)
    digests = {number: Digest() for number in ends}
    left = {number for number, end in ends.items() if end > 0}
    while left:
        number, offset, value = next(records)
        digests[number].add(offset, value)
        if offset + 1 >= ends[number]:
            left.discard(number)
    return {number: digest.read for number, digest in digests.items()}


def parsed(lines: Iterable[str]) -> Read:
    """Parse a program's lines of partition, count and hash."""
    rows = [line.split() for line in lines]
    return {int(number): (int(count), digest) for number, count, digest in rows}


def main() -> None:
    for number, (count, digest) in read_whole(*sys.argv[1:5]).items():
        print(number, count, digest)


if __name__ == "__main__":
    main()
