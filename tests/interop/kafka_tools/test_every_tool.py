"""Every tool of Kafka 4.3.1 on a node of ours: it works, or its error names the missing part.

Each test's result in this folder is a row of docs/tools.md (`testkit/kafka/tool_table.py`). The
classes come from the jar, so that none can be forgotten.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from testkit.kafka.jars import kafka_libs
from testkit.kafka.tool_table import rows
from testkit.kafka.tools import KafkaTools
from tests.interop.kafka_tools.toolbox import MORE_CLASSES, TOOLS, TOOLS_JAR, T

pytestmark = pytest.mark.interop


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
