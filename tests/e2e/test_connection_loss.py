"""kraftbox.broker.connection.loss.fence.ms with real processes: dead at once, hung not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from testkit.audits import elections_of
from testkit.processes.local_cluster import KraftboxCluster
from testkit.processes.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

SESSION_S = 30
WAIT_S = 20
"""Well below the session, so that only the closed connection can be the reason."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KraftboxCluster]:
    made = KraftboxCluster(
        tmp_path / "cluster",
        *("--port", "0", "--controllers", "1", "--brokers", "3"),
        *("--set", f"broker.session.timeout.ms={SESSION_S * 1000}"),
        *("--set", "kraftbox.broker.connection.loss.fence.ms=100"),
    )
    yield made
    made.end(signal.SIGKILL)


def test_a_killed_broker_is_fenced_at_once_and_one_that_hangs_is_not(
    cluster: KraftboxCluster,
) -> None:
    cluster.start()
    wanted = ("--partitions", "3", "--replication-factor", "3")
    created = cluster.run("topics", "create", "t", *wanted, "-b", cluster.bootstrap)
    assert created.returncode == 0, created.stderr
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def leaders() -> set[int]:
        topic = admin.list_topics("t", timeout=WAIT_S).topics["t"]
        return {p.leader for p in topic.partitions.values()}

    until("each broker leads a partition", lambda: leaders() == {1, 2, 3})
    cluster.command("node", "pause", "2")
    cluster.command("node", "kill", "3")

    def fenced() -> list[str]:
        log = (cluster.directory / "node-101" / "node.log").read_text()
        return [line for line in log.splitlines() if "not heard of" in line]

    # no client asks meanwhile: it might ask the broker that hangs
    until("somebody is fenced", lambda: bool(fenced()))
    cluster.command("node", "resume", "2")
    until("the dead one's leadership has moved", lambda: leaders() == {1, 2})
    told = elections_of(cluster.directory)
    assert [(e.kind, e.from_leader, e.to_leader in (1, 2)) for e in told] == [("isr", 3, True)]
    assert len(fenced()) == 1 and "broker=3" in fenced()[0], fenced()
