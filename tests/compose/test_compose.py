"""The compose project of the repository, and its behaviour after an operator's accidents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from testkit.processes.ports import free_ports
from tests.compose.docker import (
    REPOSITORY,
    STOP_S,
    Project,
    docker,
    inspect,
    logs,
    tool,
    wait_for,
)
from tests.compose.ledger import Ledger

pytestmark = pytest.mark.e2e

INSIDE = ("--bootstrap-server", "broker-1:19092,broker-2:19092,broker-3:19092")
SESSION_MS = 4_000
SERVICES = [f"{role}-{number}" for role in ("broker", "controller") for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def cluster(image: str) -> Iterator[tuple[Project, str]]:
    """Start the project. Yields: the healthy project, and its bootstrap servers for this
    machine."""
    ports = free_ports(3)
    environ = {
        "IMAGE": image,
        "BROKER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        **{f"PORT_{at}": str(port) for at, port in enumerate(ports, 1)},
    }
    file = REPOSITORY / "docker-compose.yml"
    with Project(f"kraftbox-test-{ports[0]}", file, environ) as project:
        project.up()
        project.wait_until_healthy()
        yield project, ",".join(f"localhost:{port}" for port in ports)
        # All of them stop cleanly on request.
        project.compose("stop", "--timeout", str(STOP_S))
        ends = {s: inspect(project.container(s))["State"]["ExitCode"] for s in SERVICES}
        assert ends == dict.fromkeys(SERVICES, 0)


class View:
    """The ledger's topic as clients of this machine see it."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 3000}
        )

    def leader(self) -> int:
        """Return the leader of the first partition; -1 for none."""
        return self._partitions()[0].leader if self._partitions() else -1

    def is_whole(self) -> bool:
        """Return whether every partition has a leader and all replicas in sync."""
        found = self._partitions().values()
        return bool(found) and all(
            p.leader > 0 and sorted(p.isrs) == sorted(p.replicas) for p in found
        )

    def _partitions(self) -> dict[int, Any]:
        try:
            topic = self._admin.list_topics("ledger", timeout=5).topics["ledger"]
        except KafkaException:
            return {}
        return dict(topic.partitions)


def active_controller(project: Project, asked: str) -> str | None:
    """Return the service that leads the quorum; None if the tool does not name it."""
    arguments = (*INSIDE, "describe", "--status")
    shown = tool(project.container(asked), "kafka-metadata-quorum", *arguments, check=False)
    found = re.search(r"LeaderId:\s+(\d+)", shown)
    return f"controller-{int(found[1]) - 100}" if found else None


def test_a_cluster_survives_its_accidents(cluster: tuple[Project, str]) -> None:
    """F1, F5, F6, F8 with containers: the ledger finds no fault."""
    project, bootstrap = cluster
    make = ("--create", "--topic", "ledger", "--partitions", "3", "--replication-factor", "3")
    tool(project.container("broker-1"), "kafka-topics", *INSIDE, *make)

    view = View(bootstrap)
    with Ledger(bootstrap, "ledger") as ledger:
        wait_for(ledger.progress(), "a first acknowledgement")

        # A leader is killed.
        led = view.leader()
        docker("kill", project.container(f"broker-{led}"))
        wait_for(lambda: view.leader() not in (-1, led), "another leader")
        wait_for(ledger.progress(), "acknowledgements without the leader")
        docker("start", project.container(f"broker-{led}"))
        wait_for(view.is_whole, "all in sync again")

        # The active controller is killed.
        first = wait_for(lambda: active_controller(project, "broker-1"), "a controller is active")
        docker("kill", project.container(first))
        wait_for(
            lambda: active_controller(project, "broker-1") not in (None, first),
            "another controller",
        )
        docker("start", project.container(first))
        project.wait_until_healthy(first)

        # A leader is paused for longer than its session; it may not continue as one.
        led = view.leader()
        docker("pause", project.container(f"broker-{led}"))
        wait_for(lambda: view.leader() not in (-1, led), "another leader than the paused one")
        docker("unpause", project.container(f"broker-{led}"))
        wait_for(view.is_whole, "all in sync again")

        # A leader loses its network.
        led = view.leader()
        service = f"broker-{led}"
        network = f"{project.name}_kafka"
        docker("network", "disconnect", network, project.container(service))
        wait_for(lambda: view.leader() not in (-1, led), "another than the one without network")
        wait_for(ledger.progress(), "acknowledgements without it")
        docker("network", "connect", "--alias", service, network, project.container(service))
        wait_for(view.is_whole, "all in sync again")
        wait_for(ledger.progress(), "acknowledgements at the end")
    ledger.check()
    assert ledger.acked > 0


def test_records_travel_between_host_and_container(cluster: tuple[Project, str]) -> None:
    project, bootstrap = cluster
    # A plain producer may write a record twice if its leader moved before it answered.
    config = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True}
    producer = Producer(config)
    producer.produce("greetings", "from the host", key="k1")
    assert producer.flush(60) == 0
    broker = project.container("broker-2")
    from_outside = tool(
        broker,
        "kafka-console-consumer",
        *INSIDE,
        *("--topic", "greetings", "--from-beginning", "--max-messages", "1"),
        *("--timeout-ms", "30000", "--property", "print.key=true"),
    )
    assert from_outside == "k1\tfrom the host\n"

    tool(
        broker,
        "kafka-console-producer",
        *(*INSIDE, "--topic", "greetings"),
        input="from the container\n",
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["greetings"])
    try:
        values = [consumer.poll(60).value() for _ in range(2)]
    finally:
        consumer.close()
    assert values == [b"from the host", b"from the container"], "\n\n".join(
        logs(project.container(service)) for service in SERVICES
    )
    listed = tool(broker, "kafka-consumer-groups", *INSIDE, "--describe", "--group", "readers")
    assert re.search(r"readers +greetings +0 +2 +2 +0 ", listed), listed


def test_all_six_services_run_as_unprivileged_user(cluster: tuple[Project, str]) -> None:
    project, _ = cluster
    assert project.services() == sorted(SERVICES)
    for service in SERVICES:
        assert "Transitioning from RECOVERY to RUNNING" in logs(project.container(service))
        assert inspect(project.container(service))["Config"]["User"] == "appuser"
