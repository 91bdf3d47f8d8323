"""Loads for one node, each run to its end: Kafka's tools, our Java load, librdkafka, a blast.

Unless stated otherwise, a figure is of the whole run. Megabytes are 10^6 bytes of record values;
CPU seconds are the broker's, user and system, per 10^9 of these bytes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.nodes import Loaded, Node
from testkit.kafka.nodes import kafka_class_path

Figures = dict[str, float]

TIMEOUT_S = 900
MIB = 1.048576
_PRODUCED = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\).* (\d+) ms 99th,"
)
# Batches of a producer under some load, the same for every client.
PRODUCER_SETTINGS = ("batch.size=65536", "linger.ms=5")


class Java:
    """Kafka's tools and our load program, compiled once."""

    def __init__(self, place: Path) -> None:
        self._load: Path | None = None
        if shutil.which("javac"):
            classes = place / "classes"
            source = Path(__file__).with_name("java") / "Load.java"
            _run("javac", "-cp", kafka_class_path(), "-d", str(classes), str(source))
            self._load = classes

    @property
    def has_load(self) -> bool:
        """True if there is a compiler for the load program."""
        return self._load is not None

    def load(
        self,
        node: Loaded,
        topic: str,
        *,
        producers: int,
        size_bytes: int,
        acks: str,
        rate: float = 0,
        warmup_s: int = 4,
        seconds: int = 10,
        tail: bool = False,
    ) -> Figures:
        """Run our load program and return its figures without the warm-up.

        They are `mb_per_s`, `p50_ms`, `p99_ms`, `p999_ms` of acknowledgements (with `tail` also
        `tail_...` of a consumer's reads) and `cpu_s_per_gb`.
        """
        before = node.cpu_s()
        options = {
            "bootstrap": node.bootstrap,
            "topic": topic,
            "producers": producers,
            "size": size_bytes,
            "acks": acks,
            "rate": rate,
            "warmup": warmup_s,
            "seconds": seconds,
            "tail": str(tail).lower(),
        }
        output = _run(
            *("java", "-Xmx1g", "-cp", kafka_class_path(self._load) if self._load else "", "Load"),
            *(f"{key}={value}" for key, value in options.items()),
        )
        figures: Figures = json.loads(output.strip().splitlines()[-1])
        figures["cpu_s_per_gb"] = (node.cpu_s() - before) / figures["gb_in_all"]
        return figures


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def json_of(*arguments: str) -> Figures:
    """Run a Python program and return the JSON that it prints."""
    figures: Figures = json.loads(_run(sys.executable, *arguments))
    return figures


def _tool(name: str, *arguments: str) -> str:
    return _run("java", "-Xmx512m", "-cp", kafka_class_path(), name, *arguments)


def produce(node: Loaded, topic: str, records: int, size_bytes: int, acks: str) -> Figures:
    """Run kafka-producer-perf-test: `mb_per_s`, `p99_ms`, `cpu_s_per_gb`."""
    before = node.cpu_s()
    output = _tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size_bytes)),
        *("--throughput", "-1", "--bootstrap-server", node.bootstrap),
        *("--command-property", f"acks={acks}", *PRODUCER_SETTINGS),
    )
    found = _PRODUCED.findall(output)
    if not found:
        raise RuntimeError(output)
    cpu = node.cpu_s() - before
    return {
        "mb_per_s": float(found[-1][2]) * MIB,
        "p99_ms": float(found[-1][3]),
        "cpu_s_per_gb": cpu / (records * size_bytes / 1e9),
    }


def produce_librdkafka(
    node: Loaded, topic: str, records: int, size_bytes: int, rate: float = 0
) -> Figures:
    """Run the same load through confluent-kafka with acks=all, in a separate process.

    `rate` limits the records per second; 0 means no limit.
    """
    before = node.cpu_s()
    script = Path(__file__).with_name("librdkafka_producer.py")
    given = (node.bootstrap, topic, str(records), str(size_bytes), str(rate))
    figures = json_of(str(script), *given)
    figures["mb_per_s"] *= MIB
    cpu = node.cpu_s() - before
    figures["cpu_s_per_gb"] = cpu / (records * size_bytes / 1e9)
    return figures


def consume(node: Loaded, topic: str, records: int, size_bytes: int) -> Figures:
    """Run kafka-consumer-perf-test from the start of a topic.

    Returns: `mb_per_s` while it fetches, `cpu_s_per_gb`.
    """
    before = node.cpu_s()
    output = _tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--topic", topic, "--num-records", str(records), "--bootstrap-server", node.bootstrap),
    )
    cpu = node.cpu_s() - before
    return {
        "mb_per_s": float(output.strip().splitlines()[-1].split(",")[8]) * MIB,
        "cpu_s_per_gb": cpu / (records * size_bytes / 1e9),
    }


def consume_librdkafka(node: Loaded, topic: str, settings: Mapping[str, str]) -> Figures:
    """Read a topic from its start to its end through confluent-kafka with these settings.

    It runs in a separate process. Returns: `mb_per_s`.
    """
    script = Path(__file__).with_name("librdkafka_consumer.py")
    given = (f"{name}={value}" for name, value in settings.items())
    return json_of(str(script), node.bootstrap, topic, *given)


def blast(node: Node, topic: str, *arguments: str) -> Figures:
    """Run `bench.blast`: `mb_per_s`, `requests_per_s`, `cpu_s_per_gb`, `cpu_us_per_request`."""
    return json_of(
        *("-m", "bench.blast", node.bootstrap, topic), *("--pid", str(node.pid), *arguments)
    )


def _admin(node: Loaded) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})


def create_topic(
    node: Loaded,
    topic: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until its partitions have leaders."""
    admin = _admin(node)
    wanted = NewTopic(topic, partitions, replicas, config=dict(configs or {}))
    for future in admin.create_topics([wanted]).values():
        future.result(TIMEOUT_S)
    _until(lambda: _leaders(admin, topic) == partitions)


def delete_topics(node: Loaded, *topics: str) -> None:
    """Delete topics and wait until their names are free and their data is gone from the disk."""
    admin = _admin(node)  # must live until the responses have arrived
    for future in admin.delete_topics(list(topics), operation_timeout=30).values():
        future.result(TIMEOUT_S)
    for topic in topics:
        _until(lambda: not node.folders(topic))  # noqa: B023


def _leaders(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=10).topics[topic]
    return sum(partition.leader >= 0 for partition in found.partitions.values())


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a topic did not appear or disappear in time")
        time.sleep(0.05)
