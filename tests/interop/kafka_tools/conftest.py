"""One node for all tests of Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.kafka.jars import PREVIOUS, kafka_libs
from testkit.kafka.tool_table import Trial
from testkit.kafka.tools import KafkaTools
from testkit.kafka.twins import COMMON_FEATURES, KraftboxServer, NodeDirectory
from tests.interop.kafka_tools.toolbox import TOOLS, Admin, Node, SlowRun, slow_runs


@pytest.fixture(scope="package")
def node(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    place = NodeDirectory(folder / "node", {"broker.rack": "r1"})
    place.format(tools, *COMMON_FEATURES)
    server = KraftboxServer(place).start()
    slow = {name: SlowRun(folder / name, *run) for name, run in slow_runs(place)}
    try:
        yield Node(place, slow)
    finally:
        for run in slow.values():
            run.end()
        assert server.stop() == 0


@pytest.fixture
def trial(request: pytest.FixtureRequest, tools: KafkaTools) -> Trial:
    return Trial(tools, *TOOLS[request.node.originalname])


@pytest.fixture
def shell_trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    """Yield a trial with the metadata shell of the previous release: Maven Central has no newer."""
    libs = kafka_libs(PREVIOUS)
    if libs is None or not list(libs.glob("kafka-shell-*.jar")):
        pytest.skip("the folder of Kafka's jars has no kafka-shell (docs/gaps.md)")
    with KafkaTools(tmp_path / "jvm", version=PREVIOUS) as running:
        yield Trial(running, *TOOLS[request.node.originalname])


@pytest.fixture
def admin(tools: KafkaTools, node: Node) -> Admin:
    return Admin(tools, node)
