"""B43 in full size: ten thousand hostile connections, and their effect on another client."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.processes.nodes import KraftboxNode
from testkit.processes.peer import Target, produce_request
from testkit.records.lying_batches import batch, record

CONNECTIONS = 10_000
REQUESTS = 4_000
CONNECTION_BYTES_MAX = 8 * 1024
NOISE_MS = 3.0
"""Differences below this are caused by the machine."""

HOSTILE = """
import socket, sys, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
open_ones = []
for _ in range(count):
    one = socket.create_connection((host, port), timeout=60)
    one.setblocking(False)
    open_ones.append(one)
frame = (50_000_000).to_bytes(4, "big") + b"\\x00\\x00\\x00\\x09" + bytes(100)
print("ready", flush=True)
sent = 0
while True:
    began = time.monotonic()
    for n, one in enumerate(open_ones):
        try:
            one.send(frame[sent % len(frame):sent % len(frame) + 1])
        except OSError:
            pass
        # A byte each, spread over ten seconds.
        time.sleep(max(0.0, began + 10.0 * (n + 1) / count - time.monotonic()))
    sent += 1
"""


@contextmanager
def crowd(target: Target) -> Iterator[None]:
    host, port = target.address
    process = subprocess.Popen(
        [sys.executable, "-c", HOSTILE, host, str(port), str(CONNECTIONS)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def latencies_ms(target: Target, topic: str) -> list[float]:
    data = batch(record(bytes(1000)))
    took = []
    with target.connect() as peer:
        for _ in range(REQUESTS):
            began = time.perf_counter()
            answer = peer.ask(produce_request({(topic, 0): data}, acks=1), 9)
            took.append((time.perf_counter() - began) * 1000.0)
            assert answer.responses[0].partition_responses[0].error_code == 0
    return sorted(took)


@pytest.mark.soak
def test_b43_ten_thousand_hostile_connections(tmp_path: Path) -> None:
    settings = {"socket.listen.backlog.size": "1000"}
    node = KraftboxNode(tmp_path / "node", settings=settings).start()
    host, _, port = node.bootstrap.rpartition(":")
    target = Target((host, int(port)), is_kafka=False)
    try:
        topic = target.topic()
        latencies_ms(target, topic.name)
        calm = latencies_ms(target, topic.name)
        before = resident_bytes(node.pid)
        with crowd(target):
            besieged = latencies_ms(target, topic.name)
            grown = resident_bytes(node.pid) - before
            time.sleep(12.0)
            again = latencies_ms(target, topic.name)
        at = REQUESTS * 99 // 100
        print(
            f"p99 {calm[at]:.2f} ms alone, {besieged[at]:.2f} and {again[at]:.2f} ms with "
            f"{CONNECTIONS} hostile connections of {grown / CONNECTIONS:.0f} bytes each"
        )
        assert min(besieged[at], again[at]) < max(2 * calm[at], calm[at] + NOISE_MS)
        assert grown < CONNECTIONS * CONNECTION_BYTES_MAX
    finally:
        assert node.stop() == 0
