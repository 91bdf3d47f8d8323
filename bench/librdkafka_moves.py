"""The producer of `java/Moves.java` with librdkafka and the same options. It does not consume."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from functools import partial
from typing import Any

from confluent_kafka import Producer

SLOW_MS = 15.0
SLOW_MAX = 5_000
ROUND_S = 60


def main() -> None:
    """Send at the rate, print "warm" after the warm-up, and one JSON object at the end."""
    options = dict(argument.split("=", 1) for argument in sys.argv[1:])
    rate = int(options["rate"])
    warm = rate * int(options["warmup"])
    counts: Counter[int] = Counter()
    slow: list[tuple[int, int, int]] = []
    failed = 0
    longest_us = 0

    def delivered(begun: float, wall_ms: int, counted: bool, error: object, message: Any) -> None:
        nonlocal failed, longest_us
        if error is not None:
            failed += 1
        elif counted:
            took_us = int((time.monotonic() - begun) * 1e6)
            counts[took_us // 100 + 1] += 1
            longest_us = max(longest_us, took_us)
            if took_us >= SLOW_MS * 1000 and len(slow) < SLOW_MAX:
                slow.append((wall_ms, took_us, message.partition()))

    producer = Producer({"bootstrap.servers": options["bootstrap"], "acks": "all", "linger.ms": 0})
    value = b"x" * int(options["size"])
    start = time.monotonic()
    for at in range(warm + rate * int(options["seconds"])):
        if at == warm // 2:
            print("sending", flush=True)
        if at == warm:
            print("warm", flush=True)
        while (left_s := start + at / rate - time.monotonic()) > 0:
            producer.poll(left_s)
        producer.produce(
            options["topic"],
            value,
            partition=at % int(options["partitions"]),
            on_delivery=partial(delivered, time.monotonic(), int(time.time() * 1000), at >= warm),
        )
    failed += producer.flush(ROUND_S)
    sends = {"longest_us": longest_us, "counts": counts, "slow": slow}
    nothing: dict[str, Any] = {"longest_us": 0, "counts": {}, "slow": []}
    print(json.dumps({"sends": sends, "reads": nothing, "failed": failed}))


if __name__ == "__main__":
    main()
