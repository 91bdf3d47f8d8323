"""Produce with librdkafka and print the figures as JSON: BOOTSTRAP TOPIC RECORDS SIZE_BYTES [RATE].

RATE is the number of records per second; without it there is no limit.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Producer


def main() -> None:
    """Send, wait for every acknowledgement, print MB/s and the p99 of the delivery time."""
    bootstrap, topic, records, size_bytes = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    latencies_ms: list[float] = []
    failures = 0

    def delivered(error: object, message: object) -> None:
        nonlocal failures
        if error is not None:
            failures += 1
        elif len(latencies_ms) < 200_000:
            latencies_ms.append(message.latency() * 1000)  # type: ignore[attr-defined]

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    value = bytes(range(256)) * (size_bytes // 256 + 1)
    value = value[:size_bytes]
    begin = time.monotonic()
    for number in range(records):
        # One report in sixteen: the cost of reports in Python is the client's, not the broker's.
        report: dict[str, Any] = {"on_delivery": delivered} if number % 16 == 0 else {}
        while True:
            try:
                producer.produce(topic, value, **report)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1024 == 0:
            producer.poll(0)
        while rate and number > (time.monotonic() - begin) * rate:
            producer.poll(0.001)
    left = producer.flush(120)
    took_s = time.monotonic() - begin
    latencies_ms.sort()
    p99_ms = latencies_ms[int(len(latencies_ms) * 0.99)] if latencies_ms else 0.0
    if left or failures:
        sys.exit(f"{left} records unsent, {failures} failed")
    mb_per_s = records * size_bytes / 1048576 / took_s
    print(json.dumps({"mb_per_s": mb_per_s, "p99_ms": p99_ms}))


if __name__ == "__main__":
    main()
