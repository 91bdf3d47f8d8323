"""Testcontainers with our image, started by the very programs of docs/testcontainers.md.

Its helper container, which cleans up after a crashed test, is switched off: it is an image of its
own, and these tests pull none.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from testkit.processes.ports import free_port
from testkit.skips import MAY_BE_MISSING
from tests.compose.docker import REPOSITORY, docker, run

pytestmark = pytest.mark.e2e

HERE = REPOSITORY / "tests/compose"
DOCUMENT = REPOSITORY / "docs/testcontainers.md"
RUNNING = "Transitioning from RECOVERY to RUNNING"
WITHOUT_HELPER = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    # Otherwise it runs a container to locate the daemon, if this is a container itself.
    "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
}


def program(language: str) -> str:
    """Return the one block of a language in docs/testcontainers.md."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} ({MAY_BE_MISSING})")


def environ(image: str) -> dict[str, str]:
    return {**os.environ, **WITHOUT_HELPER, "KRAFTBOX_IMAGE": image}


def test_the_program_in_java(image: str, tmp_path: Path) -> None:
    """`org.testcontainers.kafka.KafkaContainer`, the image declared a compatible substitute."""
    need("java", "mvn")
    jars, out, source = tmp_path / "jars", tmp_path / "out", tmp_path / "OrdersTest.java"
    copy = ("dependency:copy-dependencies", f"-DoutputDirectory={jars}")
    run("mvn", "-q", "-B", "-f", str(HERE / "java/pom.xml"), *copy)
    source.write_text(program("java"), encoding="utf-8")
    compiler = next(jars.glob("ecj-*.jar"))
    listed = os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))
    compiling = ("java", "-jar", str(compiler), "-17", "-nowarn", "-cp", listed)
    run(*compiling, "-d", str(out), str(source))
    started = ("org.junit.platform.console.ConsoleLauncher", "execute", "--select-class=OrdersTest")
    path = os.pathsep.join((str(out), listed))
    done = run("java", "-cp", path, *started, env=environ(image))
    assert "1 tests successful" in done.stdout, done.stdout + done.stderr


@pytest.mark.soak
def test_the_program_in_go(image: str, tmp_path: Path) -> None:
    need("go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path)
    (tmp_path / "orders_test.go").write_text(program("go"), encoding="utf-8")
    done = run("go", "test", "-count=1", "-v", ".", cwd=tmp_path, env=environ(image))
    assert "--- PASS: TestWhatIsSentIsRead" in done.stdout, done.stdout + done.stderr


@pytest.mark.soak
def test_the_program_in_node(image: str, tmp_path: Path) -> None:
    need("node", "npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "node" / name, tmp_path)
    run("npm", "ci", "--no-audit", "--no-fund", cwd=tmp_path)
    (tmp_path / "orders.test.js").write_text(program("javascript"), encoding="utf-8")
    command = ("node", "--test", "--test-reporter=tap", "orders.test.js")
    done = run(*command, cwd=tmp_path, env=environ(image))
    assert "# pass 1\n" in done.stdout, done.stdout + done.stderr


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


def test_the_program_in_python(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {**WITHOUT_HELPER, "KRAFTBOX_IMAGE": image}.items():
        monkeypatch.setenv(key, value)
    pytest.importorskip(
        "testcontainers.core.container", reason=f"testcontainers is not here ({MAY_BE_MISSING})"
    )
    source = tmp_path / "orders.py"
    source.write_text(program("python"), encoding="utf-8")
    runpy.run_path(str(source))["test_what_is_sent_is_read"]()
