"""One node for all interop tests, and one behind a proxy that cuts connections."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.kafka.jars import kafka_libs
from testkit.kafka.tools import KafkaTools
from testkit.processes.nodes import KraftboxNode
from testkit.processes.ports import free_port
from testkit.processes.reply_cuts import FlakyNode, ReplyCuts
from testkit.processes.wire_proxy import WireProxies
from tests.interop.foreign_programs import build_franz_go, build_java_client, build_kafkajs


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings about sockets that foreign clients leave open."""
    for ignored in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{ignored}")


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return HOST:PORT of a running node."""
    given = os.environ.get("KRAFTBOX_INTEROP_BOOTSTRAP")
    if given:
        yield given
        return
    node = KraftboxNode(tmp_path_factory.mktemp("interop") / "node").start()
    yield node.bootstrap
    assert node.stop() == 0


@pytest.fixture(scope="session")
def flaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlakyNode]:
    """Yield a node that advertises the address of a proxy, which is not armed yet."""
    directory: Path = tmp_path_factory.mktemp("flaky") / "node"
    cuts = ReplyCuts(seed=20_260)
    port = free_port()
    with WireProxies(cuts) as proxies:
        proxy = proxies.add(0, ("127.0.0.1", port))
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy}"}
        node = KraftboxNode(directory, port=port, settings=settings).start()
        yield FlakyNode(f"127.0.0.1:{proxy}", cuts)
        node.stop()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """Yield one JVM for Kafka's tools: the first run of each class costs more than all others."""
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    with KafkaTools(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return build_franz_go(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="session")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return build_kafkajs(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="session")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return build_java_client(tmp_path_factory.mktemp("java"))


@pytest.fixture
def prefix() -> str:
    """Return a name that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"
