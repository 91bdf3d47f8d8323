"""Testcontainers starts the image as it would start apache/kafka.

Its helper container, which removes what a crashed test leaves, is switched off: it is an image of
its own, and these tests pull none.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from testkit.processes.ports import free_port
from testkit.skips import MAY_BE_MISSING
from tests.compose.docker import REPOSITORY, docker, run

pytestmark = pytest.mark.e2e

HERE = REPOSITORY / "tests/compose/java"
RUNNING = "Transitioning from RECOVERY to RUNNING"
WITHOUT_HELPER = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    # Else it runs a container to find out where the daemon is, if this is a container itself.
    "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
}


def test_the_kafka_container_of_java(image: str, tmp_path: Path) -> None:
    """`org.testcontainers.kafka.KafkaContainer`, the image declared a compatible substitute."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} ({MAY_BE_MISSING})")
    jars = tmp_path / "jars"
    copy = ("dependency:copy-dependencies", f"-DoutputDirectory={jars}")
    run("mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), *copy)
    compiler = next(jars.glob("ecj-*.jar"))
    class_path = f"{jars}/*"
    out = tmp_path / "out"
    listed = os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))
    source = str(HERE / "Containers.java")
    run("java", "-jar", str(compiler), "-17", "-nowarn", "-cp", listed, "-d", str(out), source)
    done = run(
        *("java", "-cp", f"{out}{os.pathsep}{class_path}", "Containers", image),
        env={**os.environ, **WITHOUT_HELPER},
    )
    assert "consumed 100" in done.stdout, done.stdout + done.stderr


def test_a_generic_container_of_python(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in WITHOUT_HELPER.items():
        monkeypatch.setenv(key, value)
    containers = pytest.importorskip(
        "testcontainers.core.container", reason=f"testcontainers is not here ({MAY_BE_MISSING})"
    )
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    port = free_port()
    kafka = (
        containers.DockerContainer(image)
        .with_bind_ports(9092, port)
        .with_env("KAFKA_PROCESS_ROLES", "broker,controller")
        .with_env("KAFKA_NODE_ID", "1")
        .with_env("CLUSTER_ID", "4L6g3nShT-eMCtK--X86sw")
        .with_env("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9093")
        .with_env("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER")
        .with_env("KAFKA_LISTENERS", "PLAINTEXT://:9092,CONTROLLER://:9093")
        .with_env("KAFKA_ADVERTISED_LISTENERS", f"PLAINTEXT://localhost:{port}")
        .with_env("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1")
        .waiting_for(LogMessageWaitStrategy(RUNNING))
    )
    with kafka:
        common = {"bootstrap.servers": f"localhost:{port}", "log_level": 0}
        producer = Producer(common)
        producer.produce("t", b"hello")
        assert producer.flush(30) == 0
        consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        try:
            assert consumer.poll(30).value() == b"hello"
        finally:
            consumer.close()
    assert not docker("ps", "-q", "--filter", f"ancestor={image}", "--filter", f"publish={port}")


def test_our_container_of_python(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in WITHOUT_HELPER.items():
        monkeypatch.setenv(key, value)
    pytest.importorskip(
        "testcontainers.core.container", reason=f"testcontainers is not here ({MAY_BE_MISSING})"
    )
    from kraftbox.testing.containers import KraftboxContainer

    with KraftboxContainer(image, {"num.partitions": 3}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        producer.produce("t", b"hello")
        assert producer.flush(30) == 0
        assert len(producer.list_topics("t", 30).topics["t"].partitions) == 3
