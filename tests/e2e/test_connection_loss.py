"""Lost connections of real processes: fencing by the controller, and clients without it.

With kraftbox.broker.connection.loss.fence.ms a dead broker is fenced at once, a hung one is not.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from testkit.audits import elections_of
from testkit.processes.listing import listed
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

SESSION_S = 30
WAIT_S = 20
"""Well below the session, so that only the closed connection can be the reason."""


@pytest.fixture
def settings() -> dict[str, str]:
    return {
        "broker.session.timeout.ms": str(SESSION_S * 1000),
        "kraftbox.broker.connection.loss.fence.ms": "100",
    }


@pytest.fixture
def cluster(tmp_path: Path, settings: dict[str, str]) -> Iterator[KraftboxCluster]:
    made = KraftboxCluster(
        tmp_path / "cluster",
        *("--port", "0", "--controllers", "1", "--brokers", "3"),
        *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")),
    )
    yield made
    made.end(signal.SIGKILL)


def led(admin: AdminClient) -> list[int]:
    """Return the leaders of topic t's partitions, -1 where the metadata has none."""
    topic = listed(admin, "t").topics["t"]
    return [partition.leader for partition in topic.partitions.values()]


def created(cluster: KraftboxCluster) -> AdminClient:
    """Return a client for which every broker leads a partition of topic t."""
    wanted = ("--partitions", "3", "--replication-factor", "3")
    done = cluster.run("topics", "create", "t", *wanted, "-b", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    until("each broker leads a partition", lambda: sorted(led(admin)) == [1, 2, 3])
    return admin


def test_a_killed_broker_is_fenced_at_once_and_one_that_hangs_is_not(
    cluster: KraftboxCluster,
) -> None:
    cluster.start()
    admin = created(cluster)
    cluster.command("node", "pause", "2")
    cluster.command("node", "kill", "3")

    def fenced() -> list[str]:
        log = (cluster.directory / "node-101" / "node.log").read_text()
        return [line for line in log.splitlines() if "without a heartbeat" in line]

    # no client sends requests in the meantime: one might reach the broker that hangs
    until("somebody is fenced", lambda: bool(fenced()))
    cluster.command("node", "resume", "2")
    until("the dead one's leadership has moved", lambda: set(led(admin)) == {1, 2})
    told = elections_of(cluster.directory)
    assert [(e.kind, e.from_leader, e.to_leader in (1, 2)) for e in told] == [("isr", 3, True)]
    assert len(fenced()) == 1 and "broker=3" in fenced()[0], fenced()


@pytest.mark.parametrize(
    "settings",
    [
        {
            "broker.session.timeout.ms": "6000",
            "kraftbox.broker.connection.loss.fence.ms": "0",
        }
    ],
)
def test_librdkafka_is_not_sent_to_a_leader_that_its_followers_found_dead(
    cluster: KraftboxCluster,
) -> None:
    """The controller decides after a session: until then the leader is alive in the metadata."""
    cluster.start()
    admin = created(cluster)
    orphan = led(admin).index(3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    delivered: list[object] = []

    def send() -> None:
        producer.produce("t", b"x", partition=orphan, on_delivery=lambda e, _: delivered.append(e))

    send()
    assert producer.flush(WAIT_S) == 0
    cluster.command("node", "kill", "3")
    send()
    until("nobody is sent to broker 3", lambda: led(admin)[orphan] == -1, SESSION_S)
    log = (cluster.directory / "node-101" / "node.log").read_text()
    assert "without a heartbeat" not in log, "the metadata has decided already"
    assert {b.id for b in listed(admin).brokers.values()} == {1, 2, 3}
    until("the next one leads", lambda: led(admin)[orphan] in (1, 2), SESSION_S)
    assert producer.flush(WAIT_S) == 0 and delivered == [None, None]
