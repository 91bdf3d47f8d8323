"""One node for all tests of Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
def admin(tools: KafkaTools, node: Node) -> Admin:
    return Admin(tools, node)
