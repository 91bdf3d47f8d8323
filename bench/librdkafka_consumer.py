"""Read a whole topic with librdkafka and print the figures as JSON.

    python bench/librdkafka_consumer.py BOOTSTRAP TOPIC [NAME=VALUE ...]

NAME=VALUE are settings of the client.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

TIMEOUT_S = 60
AT_ONCE = 10_000


def main() -> None:
    """Print MB/s of record values, from the first fetch to the last record."""
    bootstrap, topic, *given = sys.argv[1:]
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": "false"}
    for one in given:
        name, _, value = one.partition("=")
        settings[name] = value
    consumer = Consumer(settings)
    numbers = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    left = 0
    for number in numbers:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)
        left += high - low
    begin = time.monotonic()
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
    read_bytes = 0
    while left > 0:
        messages = consumer.consume(min(left, AT_ONCE), TIMEOUT_S)
        if not messages or messages[-1].error() is not None:
            sys.exit(f"{left} records were not read")
        read_bytes += sum(map(len, messages))
        left -= len(messages)
    took_s = time.monotonic() - begin
    consumer.close()
    print(json.dumps({"mb_per_s": read_bytes / 1e6 / took_s}))


if __name__ == "__main__":
    main()
