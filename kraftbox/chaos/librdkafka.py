"""Shell: Recorded librdkafka clients of a chaos run: an idempotent producer and a consumer.

A check with the broker's own client alone misses bugs that both share; librdkafka behaves as users'
applications do. It needs confluent-kafka, and threads.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition, libversion

from client.producer import NotProduced
from kraftbox.chaos.checks import BROKEN, Finding
from kraftbox.chaos.history import value_bytes, value_id, value_of
from kraftbox.chaos.ledger import Ledger
from kraftbox.chaos.run import Run
from protocol.errors import ApiError, ErrorCode

CLIENT = f"librdkafka {libversion()[0]}"
NEVER_SENT = (KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE)
FLUSH_S_MAX = 60.0
JOIN_S_MAX = 90.0


class ConfluentClients:
    """One producer and one consumer of all partitions; use it as a context manager."""

    def __init__(
        self, ledger: Ledger, bootstrap: str, topic: str, partitions: int, per_second: int = 200
    ) -> None:
        self._ledger = ledger
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second
        self._stop_sending = threading.Event()
        self._stop_reading = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True)
            for work in (self._send, self._read)
        ]
        self.fatal: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop once every send has an outcome; a thread that does not end is added to `fatal`."""
        for stop, thread in zip(
            (self._stop_sending, self._stop_reading), self._threads, strict=True
        ):
            stop.set()
            thread.join(JOIN_S_MAX)
            if thread.is_alive():
                self.fatal.append(f"librdkafka's {thread.name} did not end within {JOIN_S_MAX:g} s")

    def _send(self) -> None:
        process = self._ledger.process("producer", CLIENT)
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 30_000,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        orders = [0] * self._partitions
        number = 0
        while not self._stop_sending.is_set():
            partition = number % self._partitions
            value = value_id(process, number)
            place = (process, 0, partition)
            order, orders[partition] = orders[partition], orders[partition] + 1
            begin_us = self._ledger.now_us()

            def delivered(
                error: Any,
                message: Any,
                value: int = value,
                place: tuple[int, int, int] = place,
                order: int = order,
                begin_us: int = begin_us,
            ) -> None:
                result: int | BaseException = message.offset()
                if error is not None:
                    certain = error.code() in NEVER_SENT
                    cause = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.str())
                    result = NotProduced(cause, certain=certain)
                self._ledger.sent([value], place, order, begin_us, result, 0)

            try:
                producer.produce(
                    self._topic, value_bytes(value, 100), partition=partition, on_delivery=delivered
                )
            except BufferError:
                orders[partition] -= 1
                producer.poll(0.05)
                continue
            number += 1
            producer.poll(1.0 / self._per_second)
        left = producer.flush(FLUSH_S_MAX)
        if left:
            self.fatal.append(f"librdkafka left {left} sends without a result")

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.fatal.append(error.str())

    def _read(self) -> None:
        process = self._ledger.process("consumer", CLIENT)
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "socket.timeout.ms": 5_000,
                "log_level": 0,
            }
        )
        for partition in range(self._partitions):
            self._ledger.assigned((process, 0, partition), 0)
        consumer.assign([TopicPartition(self._topic, n, 0) for n in range(self._partitions)])
        while not self._stop_reading.is_set():
            begin_us = self._ledger.now_us()
            found: dict[int, tuple[list[int], list[int]]] = {}
            for message in consumer.consume(500, 0.2):
                at, offset = message.partition(), message.offset()
                error = message.error()
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.fatal.append(f"librdkafka reported an offset out of range: {error.str()}")
                if error is not None or at is None or offset is None:
                    continue
                offsets, values = found.setdefault(at, ([], []))
                offsets.append(offset)
                values.append(value_of(message.value()))
            for partition, (offsets, values) in found.items():
                self._ledger.polled((process, 0, partition), begin_us, offsets, values)
        consumer.close()


class WitnessedRun(Run):
    """A run with librdkafka's clients in addition to our own."""

    witness: ConfluentClients

    async def clients_begin(self) -> None:
        bootstrap = ",".join(f"{host}:{port}" for host, port in self.target.bootstrap)
        load = self.load
        self.witness = ConfluentClients(self.ledger, bootstrap, load.topic, load.partitions)
        await asyncio.to_thread(self.witness.__enter__)

    async def clients_end(self) -> None:
        await asyncio.to_thread(self.witness.stop)

    def of_clients(self) -> list[Finding]:
        """Return the fatal errors of librdkafka's clients: a failed producer, an offset out of
        range.
        """
        fatal = self.witness.fatal
        if not fatal:
            return []
        return [Finding("client-fatal", BROKEN, len(fatal), "librdkafka had a fatal error", fatal)]
