"""Shared parts of the tests of Kafka's tools: each test's tool, the node, and its preparation."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from testkit.kafka.jars import ORACLE
from testkit.kafka.nodes import kafka_class_path
from testkit.kafka.tool_table import Trial, check_row
from testkit.kafka.tools import KafkaTools, ToolRun
from testkit.kafka.twins import NodeDirectory

T = "org.apache.kafka.tools."
TOOLS_JAR = f"kafka-tools-{ORACLE}.jar"
SHELL = "org.apache.kafka.shell.MetadataShell"
MORE_CLASSES = {"kafka.tools.StorageTool", SHELL}
"""Tools that are in other jars, among classes that are not tools."""

NO_SHARE_GROUPS = "The node does not support SHARE_GROUP_DESCRIBE"
NO_STREAMS_GROUPS = "The node does not support STREAMS_GROUP_DESCRIBE"
NO_SHARE_CONSUMERS = "The cluster does not support the share group protocol"
NO_AUTHORIZER = "SecurityDisabledException: No authorizer is configured"


class ToolName(NamedTuple):
    name: str
    script: str | None


TOOLS: dict[str, ToolName] = {}
"""Tools by the name of their test."""


def tool(name: str, script: str | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the class that a test is about, and the script in Kafka's bin folder that starts
    it."""

    def register(test: Callable[..., None]) -> Callable[..., None]:
        assert test.__name__ not in TOOLS, f"{test.__name__} is the name of two tests"
        TOOLS[test.__name__] = ToolName(name, script)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            test(**fixtures)
            trial: Trial = fixtures.get("trial") or fixtures["shell_trial"]
            check_row("tools", trial.row())

        return run

    return register


class Node(NamedTuple):
    """A running node, with the tool runs that take long because they wait."""

    place: NodeDirectory
    slow: dict[str, SlowRun]

    @property
    def at(self) -> tuple[str, str]:
        return ("--bootstrap-server", self.place.bootstrap)

    @property
    def controller(self) -> tuple[str, str]:
        return ("--bootstrap-controller", self.place.controller)


def slow_runs(place: NodeDirectory) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield runs that wait for seconds without much work: started first, checked last."""
    compaction = (f"{T}LogCompactionTester", "--bootstrap-server", place.bootstrap)
    yield "compaction", (*compaction, "--messages", "1000", "--duplicates", "10", "--sleep", "1")
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{place.port}/jmxrmi"
    yield "jmx", (f"{T}JmxTool", "--jmx-url", url, "--one-time")


class SlowRun:
    """A tool in a JVM of its own, concurrent with all other tests."""

    def __init__(self, folder: Path, *command: str) -> None:
        folder.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            self._process = subprocess.Popen(
                [*java, "-cp", kafka_class_path(), *command], stdout=out, stderr=err
            )

    def result(self) -> ToolRun:
        code = self._process.wait(timeout=120)
        return ToolRun(code, self._out.read_text(), self._err.read_text())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Admin:
    """Preparation of a test, apart from the tool under test."""

    def __init__(self, tools: KafkaTools, node: Node) -> None:
        self._tools = tools
        self._node = node

    def _run(self, name: str, *arguments: str, stdin: str = "") -> str:
        done = self._tools.run(T + name, *self._node.at, *arguments, stdin=stdin)
        assert done.code == 0, done.text
        return done.out

    def topic(
        self, name: str, partitions: int = 1, records: int = 0, config: str | None = None
    ) -> str:
        """Create a topic with records `v0`, `v1`, ...; the keys are the values."""
        given = ("--config", config) if config else ()
        asked = ("--create", "--topic", name, "--partitions", str(partitions))
        self._run("TopicCommand", *asked, *given)
        if records:
            self.produce(name, *(f"v{number}" for number in range(records)))
        return name

    def produce(self, topic: str, *values: str) -> None:
        lines = "".join(f"{value}\t{value}\n" for value in values)
        keys = ("--reader-property", "parse.key=true")
        self._run("ConsoleProducer", "--topic", topic, *keys, stdin=lines)

    def load(self, topic: str, *, records: int, size: int) -> None:
        """Produce many records in batches of 16 KB."""
        load = ("--num-records", str(records), "--record-size", str(size), "--throughput", "-1")
        self._run("ProducerPerformance", "--topic", topic, *load)

    def consume(self, topic: str, group: str, count: int) -> list[str]:
        """Return the values in order of arrival; the group's offsets are committed."""
        asked = ("--topic", topic, "--group", group, "--from-beginning")
        return self._run("consumer.ConsoleConsumer", *asked, "--max-messages", str(count)).split()

    def ends(self, topic: str) -> dict[int, int]:
        """Return log end offsets by partition."""
        return offsets(self._run("GetOffsetShell", "--topic", topic))

    def starts(self, topic: str) -> dict[int, int]:
        return offsets(self._run("GetOffsetShell", "--topic", topic, "--time", "earliest"))


def offsets(printed: str) -> dict[int, int]:
    """Parse `topic:partition:offset` lines to offsets by partition."""
    lines = (line.rsplit(":", 2) for line in printed.split())
    return {int(partition): int(offset) for _, partition, offset in lines}


def table(printed: str) -> list[dict[str, str]]:
    """Return the rows of a table whose columns have one-word headings."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    heading = lines[0]
    return [dict(zip(heading, line, strict=False)) for line in lines[1:] if len(line) > 2]
