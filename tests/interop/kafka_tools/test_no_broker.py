"""Kafka's tools that need no broker, and the one for Connect's topics."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testkit.kafka.jars import kafka_libs
from testkit.kafka.tool_table import Trial
from testkit.kafka.tools import ToolRun
from tests.interop.kafka_tools.toolbox import Admin, Node, T, tool

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


@tool(f"{T}ConnectInternalTopics", "connect-internal-topics")
def test_connect_internal_topics(trial: Trial, node: Node, admin: Admin, tmp_path: Path) -> None:
    """The tool creates the three topics of a Connect worker's configuration (new in Kafka 4.4)."""
    worker = tmp_path / "worker.properties"
    settings = {"bootstrap.servers": node.place.bootstrap, "group.id": "connect"}
    for kind in ("config", "offset", "status"):
        settings[f"{kind}.storage.topic"] = f"connect-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    for kind in ("key", "value"):
        settings[f"{kind}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
    worker.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    trial.works("create", "create", "--worker-config", str(worker))
    found = {kind: len(admin.ends(f"connect-{kind}")) for kind in ("config", "offset", "status")}
    assert found == {"config": 1, "offset": 25, "status": 5}
