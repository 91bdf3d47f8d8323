"""The image in the place of apache/kafka: environment, files, commands, and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testkit.processes.ports import free_ports
from tests.compose.docker import (
    BIN,
    REPOSITORY,
    STOP_S,
    Project,
    container,
    docker,
    health,
    inspect,
    logs,
    run,
    tool,
    wait_for,
)

pytestmark = pytest.mark.e2e

FILES = REPOSITORY / "tests/compose/files"
RUNNING = "Transitioning from RECOVERY to RUNNING"
LOCAL = ("--bootstrap-server", "localhost:9092")
TOOLS = (
    "topics",
    "configs",
    "consumer-groups",
    "console-producer",
    "console-consumer",
    "broker-api-versions",
    "storage",
    "metadata-quorum",
    "leader-election",
    "producer-perf-test",
    "cluster",
    "get-offsets",
    "reassign-partitions",
    "features",
    "log-dirs",
    "delete-records",
    "dump-log",
    "server-start",
    "run-class",
    "acls",
    "verifiable-producer",
    "verifiable-consumer",
)


def flow(project: Project, service: str, bootstrap: str) -> None:
    """Run the plaintext flow of Kafka's own test of its image.

    Create, list, produce with a key, consume, stop and start the broker, consume again.
    """
    name = project.container(service)
    where = ("--bootstrap-server", bootstrap)
    tool(name, "kafka-topics", *where, "--create", "--topic", "flow")
    assert "flow" in tool(name, "kafka-topics", *where, "--list").split()
    produce = ("--topic", "flow", "--property", "parse.key=true", "--property", "key.separator=:")
    tool(name, "kafka-console-producer", *where, *produce, input="key:message\n")
    consume = (
        *("--topic", "flow", "--property", "print.key=true", "--property", "key.separator=:"),
        *("--from-beginning", "--max-messages", "1", "--timeout-ms", "40000"),
    )
    assert tool(name, "kafka-console-consumer", *where, *consume) == "key:message\n"
    docker("stop", "-t", str(STOP_S), name)
    assert inspect(name)["State"]["ExitCode"] == 0
    docker("start", name)
    wait_for(lambda: logs(name).count(RUNNING) == 2, f"{service} runs again")
    assert tool(name, "kafka-console-consumer", *where, *consume) == "key:message\n"


@pytest.mark.parametrize(
    ("kind", "service", "bootstrap"),
    [
        ("single", "broker", "broker:19092"),
        ("combined", "kafka-1", "kafka-1:19092,kafka-2:19092,kafka-3:19092"),
        ("isolated", "kafka-1", "kafka-1:19092,kafka-2:19092,kafka-3:19092"),
    ],
)
def test_environment_of_kafkas_examples(
    image: str, kind: str, service: str, bootstrap: str
) -> None:
    ports = free_ports(3)
    environ = {"IMAGE": image, **{f"PORT_{at}": str(port) for at, port in enumerate(ports, 1)}}
    with Project(f"kraftbox-{kind}-{ports[0]}", FILES / f"{kind}.yml", environ) as project:
        project.up()
        for name in project.services():
            known = project.container(name)
            wait_for(lambda known=known: RUNNING in logs(known), f"{name} runs")
        flow(project, service, bootstrap)


def test_without_any_environment_it_is_one_node_with_defaults(image: str) -> None:
    with container(image) as name:
        wait_for(lambda: health(name) == "healthy", "healthy")
        assert RUNNING in logs(name)
        tool(name, "kafka-topics", *LOCAL, "--create", "--topic", "t", "--partitions", "2")
        described = tool(name, "kafka-topics", *LOCAL, "--describe", "--topic", "t")
        assert re.search(r"Topic: t\tTopicId: \S+\tPartitionCount: 2\t", described)
        assert "ReplicationFactor: 1\t" in described
        status = tool(name, "kafka-metadata-quorum", *LOCAL, "describe", "--status")
        assert re.search(r"ClusterId: +5L6g3nShT-eMCtK--X86sw", status), status
        _tools(name)
        begun = docker("exec", name, "sh", "-c", "id -un; ls -ld /var/lib/kafka/data; pwd")
        assert begun.startswith("appuser\n")
        docker("stop", "-t", str(STOP_S), name)
        assert inspect(name)["State"]["ExitCode"] == 0


def _tools(name: str) -> None:
    """Check that every tool works with Kafka's options."""
    assert set(docker("exec", name, "ls", BIN).split()) == {f"kafka-{t}.sh" for t in TOOLS}
    topic = ("--entity-type", "topics", "--entity-name", "t")
    tool(name, "kafka-configs", *LOCAL, "--alter", *topic, "--add-config", "retention.ms=60000")
    shown = tool(name, "kafka-configs", *LOCAL, "--describe", *topic)
    assert "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG" in shown
    perf = ("--topic", "t", "--num-records", "500", "--record-size", "100", "--throughput", "-1")
    said = tool(
        name,
        "kafka-producer-perf-test",
        *(*perf, "--producer-props", "bootstrap.servers=localhost:9092", "acks=1"),
    )
    assert re.match(r"500 records sent, [\d.]+ records/sec \(", said), said
    group = ("--topic", "t", "--group", "g", "--from-beginning", "--max-messages", "500")
    read = tool(name, "kafka-console-consumer", *LOCAL, *group, "--timeout-ms", "30000")
    assert len(read.splitlines()) == 500
    assert tool(name, "kafka-consumer-groups", *LOCAL, "--list").split() == ["g"]
    reset = ("--reset-offsets", "--group", "g", "--all-topics", "--to-earliest", "--execute")
    assert "NEW-OFFSET" in tool(name, "kafka-consumer-groups", *LOCAL, *reset)
    assert "Produce(0): 0 to 13 [usable: 13]" in tool(name, "kafka-broker-api-versions", *LOCAL)
    assert len(tool(name, "kafka-storage", "random-uuid").strip()) == 22
    elect = ("--election-type", "PREFERRED", "--all-topic-partitions")
    tool(name, "kafka-leader-election", *LOCAL, *elect)
    tool(name, "kafka-topics", *LOCAL, "--delete", "--topic", "t")
    wrong = run("docker", "exec", name, f"{BIN}/kafka-topics.sh", "--zookeeper", "x", check=False)
    assert wrong.returncode == 1 and "--bootstrap-server" in wrong.stderr


def test_a_mounted_file_and_arguments(image: str, tmp_path: Path) -> None:
    """The environment overrides the file; VAR=value arguments override the environment.

    Variables set the store of tiered storage, too, and the image has its packages (KIP-405).
    """
    tmp_path.chmod(0o755)
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=7\n"
        "controller.quorum.voters=7@localhost:9093\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "advertised.listeners=PLAINTEXT://localhost:9092\n"
        "log.dirs=/tmp/mounted\nnum.partitions=2\nlog.retention.hours=5\n"
        "offsets.topic.replication.factor=1\n"
    )
    properties.chmod(0o644)
    options = (
        *("-v", f"{tmp_path}:/mnt/shared/config:ro", "-e", "KAFKA_NUM_PARTITIONS=3"),
        *("-e", "KAFKA_REMOTE_LOG_STORAGE_SYSTEM_ENABLE=true"),
        *("-e", "KAFKA_RSM_CONFIG_URL=file:///tmp/tier"),
        *("-e", "KAFKA_REMOTE_LOG_MANAGER_TASK_INTERVAL_MS=200"),
        *("-e", "KAFKA_RLMM_CONFIG_REMOTE_LOG_METADATA_TOPIC_REPLICATION_FACTOR=1"),
        *("-e", "KAFKA_RLMM_CONFIG_REMOTE_LOG_METADATA_TOPIC_MIN_ISR=1"),
    )
    command = ("/etc/kafka/docker/run", "KAFKA_NUM_PARTITIONS=4")
    with container(image, *options, command=command) as name:
        wait_for(lambda: health(name) == "healthy", "healthy")
        written = docker("exec", name, "cat", "/opt/kafka/config/server.properties").splitlines()
        assert {"node.id=7", "num.partitions=4", "log.retention.hours=5"} <= set(written)
        tiered = ("--config", "remote.storage.enable=true", "--config", "segment.bytes=1048576")
        tool(name, "kafka-topics", *LOCAL, "--create", "--topic", "t", "--partitions", "1", *tiered)
        perf = ("--topic", "t", "--num-records", "2500", "--record-size", "1000")
        props = ("--throughput", "-1", "--producer-props", "bootstrap.servers=localhost:9092")
        tool(name, "kafka-producer-perf-test", *perf, *props)
        wait_for(lambda: _copied(name) >= 2, "two segments are in the store")


def _copied(name: str) -> int:
    where = ("-b", "localhost:9092", "--properties", "/opt/kafka/config/server.properties")
    listed = json.loads(docker("exec", name, "kraftbox", "tier", "list", *where, "--json"))
    return sum(each["state"] == "COPY_FINISHED" for each in listed["segments"])


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        (
            {
                "KAFKA_PROCESS_ROLES": "controller",
                "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
                "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:1",
            },
            "KAFKA_ADVERTISED_LISTENERS is not supported",
        ),
        ({"KAFKA_CFG_PROCESS_ROLES": "broker"}, "process.roles"),
    ],
)
def test_image_refuses_settings_like_kafkas_image(
    image: str, environ: dict[str, str], complaint: str
) -> None:
    options = [part for key, value in environ.items() for part in ("-e", f"{key}={value}")]
    done = run("docker", "run", "--rm", *options, image, check=False)
    assert done.returncode == 1 and complaint in done.stdout + done.stderr


def test_the_image_is_what_scripts_expect(image: str) -> None:
    facts = json.loads(docker("image", "inspect", image))[0]["Config"]
    assert facts["User"] == "appuser"
    assert facts["Cmd"] == ["/etc/kafka/docker/run"] and not facts["Entrypoint"]
    assert set(facts["Volumes"]) == {
        "/etc/kafka/secrets",
        "/mnt/shared/config",
        "/var/lib/kafka/data",
    }
    assert "9092/tcp" in facts["ExposedPorts"] and facts["Healthcheck"]
    shells = docker("run", "--rm", image, "sh", "-c", "command -v sh && command -v bash")
    assert len(shells.split()) == 2
