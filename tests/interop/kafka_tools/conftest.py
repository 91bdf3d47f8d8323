"""One node and one JVM for all tests of Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.kafka_tools.toolbox import TOOLS, Admin, Node, SlowRun, slow_runs
from tests.kafka_jars import kafka_libs
from tests.support.kafka_tools import KafkaTools
from tests.support.tool_table import Trial
from tests.support.twins import COMMON_FEATURES, KraftboxServer, Place


@pytest.fixture(scope="package")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    with KafkaTools(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture(scope="package")
def node(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    place = Place(folder / "node", {"broker.rack": "r1"})
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
def admin(tools: KafkaTools, node: Node) -> Admin:
    return Admin(tools, node)
