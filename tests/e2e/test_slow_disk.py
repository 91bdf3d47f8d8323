"""A real node whose disk takes a second to flush and a tenth of a second to read (F16)."""

from __future__ import annotations

import re
import statistics
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.processes.nodes import KraftboxNode
from tests.e2e.numbers import create_topic, read_numbers

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

FLUSH_S = 1.0
LAG_S_MAX = 0.9 * FLUSH_S
"""A loop that waits for a flush is blocked for all of it; other lags come from the machine's
work."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KraftboxNode]:
    made = KraftboxNode(
        tmp_path / "node",
        settings={
            "kraftbox.fault.files": "slow",
            "kraftbox.fault.files.flush.ms": "1000",
            "kraftbox.fault.files.read.ms": "100",
            "kraftbox.http.listener": "127.0.0.1:0",
            "log.segment.bytes": "1048576",
        },
    )
    yield made
    made.kill()


def scrape(node: KraftboxNode) -> dict[str, float]:
    """Return the series of the node that is running now."""
    addresses = re.findall(
        r"Serving health and metrics.*?address=(\S+)", (node.directory / "node.log").read_text()
    )
    with urllib.request.urlopen(f"http://{addresses[-1]}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


def healthy(node: KraftboxNode) -> dict[str, float]:
    """Scrape, and assert that no broker is fenced and the loop was not blocked since the last
    scrape."""
    seen = scrape(node)
    assert seen["kraftbox_loop_lag_worst_seconds"] < LAG_S_MAX
    assert seen["kafka_controller_kafkacontroller_fencedbrokercount"] == 0
    assert seen["kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount"] == 0
    assert seen["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
    return seen


class Sender:
    """A sender of numbers one by one that keeps the time of each acknowledgement in seconds."""

    def __init__(self, node: KraftboxNode, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": node.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        self._topic = topic
        self.times_s: list[float] = []
        self.failures: list[object] = []

    def send(self, numbers: range, width: int = 1) -> None:
        for number in numbers:
            begun = time.monotonic()
            self._producer.produce(
                self._topic, b"%*d" % (width, number), partition=0, on_delivery=self._delivered
            )
            self._producer.flush(30)
            self.times_s.append(time.monotonic() - begun)
        assert not self.failures

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(error)


def test_latency_rises_and_nothing_is_fenced_or_lost(node: KraftboxNode) -> None:
    node.start()
    scrape(node)  # blocking during the start is not tested here
    create_topic(node.bootstrap, "flushed", **{"flush.messages": "1"})
    create_topic(node.bootstrap, "cached")
    flushed, cached = Sender(node, "flushed"), Sender(node, "cached")
    flushed.send(range(8))
    cached.send(range(100), width=50_000)  # five segments: all but the last are cold
    seen = healthy(node)
    assert statistics.median(flushed.times_s) >= FLUSH_S
    assert statistics.median(cached.times_s) < FLUSH_S, "they wait for no flush"
    assert seen["kafka_server_raftmetrics_commit_latency_avg"] >= FLUSH_S * 1000
    slowest = 'kafka_network_requestmetrics_remotetimems{request="Produce",quantile="0.999"}'
    assert seen[slowest] >= FLUSH_S * 1000 / 2

    assert read_numbers(node.bootstrap, "cached") == list(range(100))
    assert read_numbers(node.bootstrap, "flushed") == list(range(8))
    seen = healthy(node)
    slowest = 'kafka_network_requestmetrics_totaltimems{request="FetchConsumer",quantile="0.999"}'
    assert seen[slowest] >= 50

    node.kill()
    node.start()
    assert read_numbers(node.bootstrap, "cached") == list(range(100))
    assert read_numbers(node.bootstrap, "flushed") == list(range(8))
    said = (node.directory / "node.log").read_text()
    assert "Fencing a broker" not in said
