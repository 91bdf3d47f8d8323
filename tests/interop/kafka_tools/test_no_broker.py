"""Kafka's tools that need no broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testkit.kafka.jars import kafka_libs
from testkit.kafka.tool_table import Trial
from testkit.kafka.tools import ToolRun
from tests.interop.kafka_tools.toolbox import Node, T, tool

pytestmark = pytest.mark.interop


@tool(f"{T}JmxTool", "kafka-jmx")
def test_jmx(trial: Trial, node: Node) -> None:
    done = node.slow["jmx"].result()
    trial.refused("read MBeans: there is no JVM", done, "Could not connect to JMX url")


@tool(f"{T}OAuthCompatibilityTool", None)
def test_oauth_compatibility(trial: Trial) -> None:
    url = ("--sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/token")
    trial.refuses(
        "asks an OAuth provider, not a broker",
        *("--clientId", "c", "--clientSecret", "s", *url),
        saying="sasl.oauthbearer.token.endpoint.url",
    )


@tool(f"{T}ConnectPluginPath", "connect-plugin-path")
def test_connect_plugin_path(trial: Trial, tmp_path: Path) -> None:
    """The tool searches its whole class path, so it gets a short one."""
    libs = kafka_libs()
    assert libs is not None
    wanted = (
        "kafka-tools-",
        "kafka-clients",
        "connect-",
        "argparse",
        "classgraph",
        "slf4j-api",
        "maven-art",
    )
    jars = [path for path in libs.glob("*.jar") if path.name.startswith(wanted)]
    command = ["java", "-cp", ":".join(map(str, jars)), trial.name]
    done = subprocess.run(
        [*command, "list", "--plugin-path", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    printed = trial.worked(
        "list plug-ins: needs no broker", ToolRun(done.returncode, done.stdout, done.stderr)
    )
    assert "Total plugins:" in printed
