"""A producer's acknowledged records, compared with a topic's final content."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from testkit.processes.listing import listed

RATE_PER_S = 200.0
DELIVERY_MS = 60_000
CONSUME_S = 60.0


class Ledger:
    """A thread that writes numbers to a topic with acks=all while its block runs."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="ledger")
        self._acked: dict[int, tuple[int, int]] = {}
        self._failed: set[int] = set()
        self._sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def acked(self) -> int:
        return len(self._acked)

    def progress(self) -> Callable[[], bool]:
        """Return a check for an acknowledgement of any record that was sent after this call."""
        first = self._sent
        return lambda: max(self._acked, default=-1) > first

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": DELIVERY_MS,
                "log_level": 0,
            }
        )

        def done(number: int) -> Callable[[Any, Any], None]:
            def note(error: Any, message: Any) -> None:
                if error is None:
                    self._acked[number] = (message.partition(), message.offset())
                else:
                    self._failed.add(number)

            return note

        for number in itertools.count():
            producer.produce(self._topic, str(number), on_delivery=done(number))
            self._sent = number + 1
            producer.poll(0)
            if self._end.wait(1 / RATE_PER_S):
                break
        assert producer.flush(DELIVERY_MS / 1000) == 0, "records without an answer"

    def check(self) -> None:
        """Check after the block that each acknowledged record is there once, at its offset."""
        found = self._read_all()
        values = Counter(found.values())
        lost = sorted(n for n, where in self._acked.items() if found.get(where) != n)
        assert not lost, f"{len(lost)} acknowledged records are not where they were: {lost[:10]}"
        twice = [n for n, count in values.items() if count > 1]
        assert not twice, f"records more than once: {twice[:10]}"
        strangers = [n for n in values if n >= self._sent]
        assert not strangers, strangers
        # Numbers of one partition come in the order in which they were sent.
        for partition in {where[0] for where in found}:
            numbers = [found[w] for w in sorted(found) if w[0] == partition]
            assert numbers == sorted(numbers), f"partition {partition} is out of order"

    def _read_all(self) -> dict[tuple[int, int], int]:
        conf = {"bootstrap.servers": self._bootstrap, "group.id": "ledger", "log_level": 0}
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        partitions = listed(admin, self._topic).topics[self._topic].partitions
        consumer = Consumer({**conf, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        try:
            left = {}
            for index in partitions:
                _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, index), 30)
                if end:
                    left[index] = end
            consumer.assign([TopicPartition(self._topic, index, 0) for index in left])
            found = {}
            while left:
                message = consumer.poll(CONSUME_S)
                assert message is not None, f"nothing more comes, and {left} are not reached"
                if message.error():
                    continue
                where = (message.partition(), message.offset())
                found[where] = int(message.value())
                if message.offset() + 1 >= left[message.partition()]:
                    del left[message.partition()]
            return found
        finally:
            consumer.close()
