"""Real processes, killed with SIGKILL and started again on the data left on the disk."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from testkit.processes.nodes import KraftboxNode
from tests.e2e.numbers import TIMEOUT_S, create_topic, read_numbers

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

RECORDS = 1_000_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KraftboxNode]:
    made = KraftboxNode(tmp_path / "node")
    yield made
    made.kill()


@pytest.fixture
def lossy_node(tmp_path: Path) -> Iterator[KraftboxNode]:
    """Return a node that loses all unflushed data when it is killed."""
    made = KraftboxNode(tmp_path / "node", settings={"kraftbox.fault.files": "lossy"})
    yield made
    made.kill()


class Load:
    """A thread that sends 0, 1, 2 ... with acks=all and records acknowledgements."""

    def __init__(self, bootstrap: str, topic: str, records: int, *, idempotent: bool) -> None:
        self.acknowledged = 0
        self.failures: list[Any] = []
        self._topic = topic
        self._records = records
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "message.timeout.ms": 120_000 if idempotent else 2_000,
                "linger.ms": 5,
                "queue.buffering.max.messages": 20_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error)

    def _run(self) -> None:
        for number in range(self._records):
            while not self._stop.is_set():
                try:
                    self._producer.produce(
                        self._topic, b"%d" % number, partition=0, on_delivery=self._delivered
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            if number % 256 == 0:
                self._producer.poll(0)
        self._producer.flush(120)

    def wait_for(self, acknowledged: int) -> None:
        """Wait until `count` records are acknowledged."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.acknowledged < acknowledged:
            assert time.monotonic() < deadline, f"only {self.acknowledged} were acknowledged"
            time.sleep(0.002)

    def end(self) -> None:
        """Send nothing more and wait for the thread."""
        self._stop.set()
        self._thread.join()

    def join(self) -> None:
        """Wait until everything is sent."""
        self._thread.join()


def test_kill_9_in_the_middle_of_a_million_records(node: KraftboxNode) -> None:
    """F1 for one node: the producer continues after the restart, and no record is lost or
    doubled."""
    node.start()
    create_topic(node.bootstrap, "numbers")
    load = Load(node.bootstrap, "numbers", RECORDS, idempotent=True)
    load.wait_for(RECORDS // 3)
    node.kill()
    node.start()
    load.wait_for(2 * RECORDS // 3)
    node.kill()
    node.start()
    load.join()
    assert not load.failures
    assert load.acknowledged == RECORDS
    assert read_numbers(node.bootstrap, "numbers") == list(range(RECORDS))


def test_lossy_files_lose_only_what_was_not_flushed(lossy_node: KraftboxNode) -> None:
    """The loss is that of Kafka in a power cut: the unflushed tail of the data, and nothing
    else."""
    lossy_node.start()
    create_topic(lossy_node.bootstrap, "flushed", **{"flush.messages": "1"})
    create_topic(lossy_node.bootstrap, "cached")
    flushed = Load(lossy_node.bootstrap, "flushed", RECORDS, idempotent=False)
    flushed.wait_for(2_000)
    cached = Load(lossy_node.bootstrap, "cached", 1_000, idempotent=False)
    cached.join()
    lossy_node.kill()
    acknowledged = flushed.acknowledged
    flushed.end()
    lossy_node.start()
    numbers = read_numbers(lossy_node.bootstrap, "flushed")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= acknowledged
    tail = read_numbers(lossy_node.bootstrap, "cached")
    assert tail == list(range(len(tail)))
    assert len(tail) < cached.acknowledged, "nothing was lost, so the fault did nothing"


@pytest.mark.parametrize("seed", range(4))
def test_metadata_survives_a_power_cut_at_any_moment(lossy_node: KraftboxNode, seed: int) -> None:
    """A topic whose creation was acknowledged exists after the kill, whenever it comes."""
    rng = random.Random(seed)
    created: list[str] = []
    for life in range(3):
        lossy_node.start()
        admin = AdminClient({"bootstrap.servers": lossy_node.bootstrap, "log_level": 0})
        assert set(created) <= set(admin.list_topics(timeout=TIMEOUT_S).topics)
        killer = threading.Timer(rng.uniform(0.05, 0.6), lossy_node.kill)
        for number in range(10_000):
            name = f"topic-{life}-{number}"
            patience_s = 1 if number else TIMEOUT_S
            future = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=patience_s)[name]
            try:
                future.result(2 * patience_s)
            except KafkaException:
                break
            created.append(name)
            if not number:
                # However slow the machine is, some topics have been acknowledged.
                killer.start()
        killer.join()
    lossy_node.start()
    admin = AdminClient({"bootstrap.servers": lossy_node.bootstrap})
    assert set(created) <= set(admin.list_topics(timeout=TIMEOUT_S).topics)
    assert len(created) >= 3
