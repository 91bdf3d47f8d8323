"""Time from the kill of a leader to the next delivery, for producers of other projects.

    python -m bench.client_failover [--clients java,librdkafka,franz-go,kafka-python,kafkajs]
                                    [--rounds 20] [--fence-ms 100]

The cluster is that of `bench.failover`. A client with default settings sends a record every 5 ms.
For each delivery it prints when it got the record and when the record was delivered, both in
wall-clock milliseconds (`paced/`). The leader is killed at a random moment. The figure is the time
until the first delivery of a record that was sent after the kill. A client whose program or
compiler is missing is skipped with a message.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bench.failover import (
    ROUND_S_MAX,
    TOPIC,
    Cluster,
    Result,
    kraftbox,
    measure_deliveries,
)
from bench.report import names_among
from testkit.kafka.nodes import kafka_class_path
from testkit.processes.ending import end_on_sigterm

PROGRAMS: Final = Path(__file__).with_name("paced")
INTEROP: Final = Path(__file__).parent.parent / "tests" / "interop"
BUILD_S: Final = 300
FIRST_S: Final = 60
REAPED_S: Final = 1.0
"""After this time the launcher has noticed a broker's death, also on a busy machine."""
STEADY_S: Final = 12.0
"""A client that has just started is still learning about the cluster. franz-go requests metadata
at most every five seconds, and twice while it starts.
"""
JAVA, LIBRDKAFKA, FRANZ_GO, KAFKA_PYTHON, KAFKAJS = CLIENTS = (
    "java",
    "librdkafka",
    "franz-go",
    "kafka-python",
    "kafkajs",
)


def built(client: str, place: Path) -> list[str]:
    """Build the client and return its command; the arguments are HOST:PORT,... and a topic.

    Raises RuntimeError if that fails.
    """
    if client == JAVA:
        _made("javac", "-cp", kafka_class_path(), "-d", place, PROGRAMS / "Paced.java")
        return ["java", "-Xmx256m", "-cp", kafka_class_path(place), "Paced"]
    if client == FRANZ_GO:
        _made("go", "build", "-o", place / "paced", PROGRAMS / "paced.go", cwd=INTEROP / "go")
        return [str(place / "paced")]
    if client == KAFKAJS:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(INTEROP / "node" / name, place)
        shutil.copy(PROGRAMS / "paced.js", place)
        _made("npm", "ci", "--no-audit", "--no-fund", cwd=place)
        return ["node", str(place / "paced.js")]
    return [sys.executable, str(PROGRAMS / "paced.py"), client]


def _made(*command: str | Path, cwd: Path | None = None) -> None:
    if not shutil.which(command[0]):
        raise RuntimeError(f"{command[0]} is not installed")
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    if done.returncode:
        raise RuntimeError(done.stdout)


async def delivered_after(
    command: Sequence[str], cluster: Cluster, leader: int, random_s: float
) -> float:
    """Return the ms from the kill of `leader` to the first delivery of a record sent after it."""
    bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
    process = await asyncio.create_subprocess_exec(
        *command, bootstrap, TOPIC, stdout=asyncio.subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    killed_ms = float("inf")
    try:
        await asyncio.wait_for(process.stdout.readline(), FIRST_S)
        kill_s = time.monotonic() + STEADY_S + random_s
        async with asyncio.timeout(STEADY_S + ROUND_S_MAX):
            # One line every few milliseconds, so the kill is at most that late.
            async for line in process.stdout:
                sent_ms, acked_ms = map(float, line.split())
                if sent_ms > killed_ms:
                    return acked_ms - killed_ms
                if killed_ms == float("inf") and time.monotonic() > kill_s:
                    killed_ms = time.time() * 1000
                    await cluster.kill(leader)
        raise RuntimeError(f"{command[0]} exited unexpectedly")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure(name: str, cluster: Cluster, rounds: int, command: Sequence[str]) -> Result:
    """Run all rounds of one client."""
    return await measure_deliveries(
        name, cluster, rounds, partial(delivered_after, command), REAPED_S
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--clients", type=names_among(CLIENTS), default=CLIENTS, help=",".join(CLIENTS)
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--fence-ms",
        type=int,
        default=100,
        help="time until a broker is fenced after its connection was lost",
    )
    options = parser.parse_args()
    settings = {"kraftbox.broker.connection.loss.fence.ms": str(options.fence_ms)}
    results = []
    for client in options.clients:
        with tempfile.TemporaryDirectory(prefix="kraftbox-clients-") as made:
            try:
                command = built(client, Path(made))
            except RuntimeError as error:
                print(f"{client}: skipped: {error}", flush=True)
                continue

            run = partial(measure, command=command)
            results.append(kraftbox(client, settings, options.rounds, run))
    print(f"load average {os.getloadavg()[0]:.0f}")
    for result in results:
        print(result.line())


if __name__ == "__main__":
    end_on_sigterm()
    main()
