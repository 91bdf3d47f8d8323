"""Every tool of Kafka 4.4.0 on a node of ours: it works, or its error names the missing part.

Each test's result in this folder is a row of docs/tools.md (`testkit/kafka/tool_table.py`). The
classes come from the jar, so that none can be forgotten.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from testkit.kafka.jars import kafka_libs
from testkit.kafka.nodes import run_kafka_tool
from testkit.kafka.tool_table import check_rows, rows
from testkit.kafka.tools import KafkaTools
from tests.interop.kafka_tools.toolbox import MORE_CLASSES, TOOLS, TOOLS_JAR, T

pytestmark = pytest.mark.interop

NOT_BUILT = "refused: not built"
NEW_OPTIONS = (
    ("ClusterTool", "kafka-cluster api-versions", "--bootstrap-controller", "works"),
    ("ClusterTool", "kafka-cluster unregister-controller", "--id", "works"),
    ("ConnectInternalTopics", "connect-internal-topics create", "--worker-config", "works"),
    ("MetadataQuorumCommand", "kafka-metadata-quorum remove-controller", "--unregister", NOT_BUILT),
    ("ProducerPerformance", "kafka-producer-perf-test", "--key-distribution", "works"),
    ("ProducerPerformance", "kafka-producer-perf-test", "--random-seed", "works"),
    ("ProducerPerformance", "kafka-producer-perf-test", "--record-key-range", "works"),
    ("VerifiableConsumer", "kafka-verifiable-consumer", "--close-timeout", "works"),
    ("VerifiableShareConsumer", "kafka-verifiable-share-consumer", "--ack-pattern", NOT_BUILT),
    ("consumer.group.ShareGroupCommand", "kafka-share-groups", "--export", NOT_BUILT),
    ("consumer.group.ShareGroupCommand", "kafka-share-groups", "--from-file", NOT_BUILT),
    ("consumer.group.ShareGroupCommand", "kafka-share-groups", "--to-current", NOT_BUILT),
    ("consumer.group.ShareGroupCommand", "kafka-share-groups", "--to-offset", NOT_BUILT),
    ("streams.StreamsGroupCommand", "kafka-streams-groups", "--topology", NOT_BUILT),
)
"""Class, command, option that is new in Kafka 4.4.0, and its result; the tests of the tools use
each."""


def test_every_tool_of_the_jar_has_a_test_and_a_row(tools: KafkaTools) -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    libs = kafka_libs()
    assert libs is not None
    found = tools.run("Tools$Mains", str(libs / TOOLS_JAR))
    classes = set(found.out.split())
    assert f"{T}TopicCommand" in classes
    tested = [name for name, _ in TOOLS.values()]
    assert sorted(tested) == sorted(classes | MORE_CLASSES)
    assert sorted(row[0].strip("`") for row in rows("tools")) == sorted(tested)


def test_new_options_of_the_oracle_are_in_its_help_and_in_the_document() -> None:
    """Each help has a JVM of its own, because half of the tools end theirs."""
    printed: dict[str, str] = {}
    for name, command, option, _ in NEW_OPTIONS:
        if command not in printed:
            done = run_kafka_tool(T + name, *command.split()[1:], "--help")
            printed[command] = done.stdout + done.stderr
        assert option in printed[command], (command, option, printed[command])
    found = [(f"`{command} {option}`", result) for _, command, option, result in NEW_OPTIONS]
    check_rows("new-options", found)
