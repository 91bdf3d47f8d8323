"""The paced client of `bench.client_failover`, with kafka-python or librdkafka.

Arguments: kafka-python|librdkafka BOOTSTRAP TOPIC.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

PERIOD_S = 0.005


def delivered(sent: float, *_: object) -> None:
    print(f"{sent:.1f} {time.time() * 1000:.1f}", flush=True)


def kafka_python(bootstrap: str, topic: str) -> Callable[[], None]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))

    def send() -> None:
        done = producer.send(topic, b"x", partition=0)
        done.add_callback(partial(delivered, time.time() * 1000))

    return send


def librdkafka(bootstrap: str, topic: str) -> Callable[[], None]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})

    def on_delivery(sent: float, error: object, _: Any) -> None:
        if error is None:
            delivered(sent)

    def send() -> None:
        producer.produce(
            topic, b"x", partition=0, on_delivery=partial(on_delivery, time.time() * 1000)
        )
        producer.poll(0)

    return send


def main() -> None:
    client, bootstrap, topic = sys.argv[1:]
    send = {"kafka-python": kafka_python, "librdkafka": librdkafka}[client](bootstrap, topic)
    due = time.monotonic()
    while True:
        send()
        due += PERIOD_S
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
