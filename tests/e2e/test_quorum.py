"""Three controllers and two brokers as processes: the active controller killed, paused, cut off.

A load creates topics all the time. Every successful creation must be there at the end, every
refused one must not; one without an answer may be either.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kraftbox.testing import KafkaCluster
from testkit.processes.listing import listed
from testkit.processes.quorum_cluster import (
    NodeProcess,
    ProcessCluster,
    process_cluster,
)
from testkit.processes.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

TIMEOUT_S = 60
"""Limit for conditions that must become true.

tests/sim/test_quorum_cluster.py bounds the time itself, in virtual time, where no machine is busy.
The proxies between these nodes accept connections for a dead one, too, so only a timeout detects
it.
"""


class Creations:
    """A thread that creates topics one after the other, and now and then one that is refused."""

    def __init__(self, bootstrap: str) -> None:
        self.succeeded: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        # A creation that waits for a controller blocks later requests on its connection.
        self._observer = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="creations")

    def __enter__(self) -> Creations:
        self._thread.start()
        self.wait_for_more(3)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, count: int, wait_s: float = TIMEOUT_S) -> None:
        goal = len(self.succeeded) + count
        until("further creations", lambda: len(self.succeeded) >= goal, wait_s)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            refused = number % 5 == 0
            name = f"{'refused' if refused else 'topic'}-{number}"
            outcome = self._create(name, replicas=2 if refused else 1)
            outcome.append(name)

    def _create(self, name: str, replicas: int) -> list[str]:
        try:
            topic = NewTopic(name, 1, replicas)
            self._admin.create_topics([topic], request_timeout=5)[name].result(TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.INVALID_REPLICATION_FACTOR:
                return self.refused
            return self.unknown
        return self.succeeded

    def check(self) -> None:
        """Check that the topics are those reported, once the metadata has reached the brokers."""
        wanted = set(self.succeeded)
        until("all topics", lambda: wanted <= self.topics())
        there = self.topics()
        assert not there & set(self.refused)
        assert there <= wanted | set(self.unknown)

    def topics(self) -> set[str]:
        return set(listed(self._observer).topics)


@pytest.fixture(params=[False, True], ids=["static", "dynamic"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessCluster]:
    with process_cluster(tmp_path, dynamic=request.param) as started:
        yield started


def settle(cluster: ProcessCluster) -> None:
    """Wait until every controller has everything; their logs are byte for byte the same."""
    leader = cluster.wait_for_leader()
    mark = cluster.describe(leader)
    assert mark is not None
    cluster.wait_for_high_watermark(mark.high_watermark)

    def caught_up() -> bool:
        told = cluster.describe(cluster.wait_for_leader())
        ends = [] if told is None else [v.log_end_offset for v in told.current_voters]
        return len(ends) == 3 and min(ends) >= mark.high_watermark

    until("controllers that have caught up", caught_up)
    for node in cluster.nodes.values():
        if not node.is_controller:
            assert node.stop() == 0
    for node in cluster.controllers:
        node.stop()
    logs = [read_log(node) for node in cluster.controllers]
    shortest = min(map(len, logs))
    assert shortest > 0 and len({log[:shortest] for log in logs}) == 1


def read_log(node: NodeProcess) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(node.metadata_dir.glob("*.log")))


def test_killed(cluster: ProcessCluster) -> None:
    with Creations(cluster.bootstrap) as creations:
        for _ in range(2):
            leader = cluster.wait_for_leader()
            leader.kill()
            creations.wait_for_more(5)
            leader.start()
            creations.wait_for_more(5)
    creations.check()
    settle(cluster)


def test_killed_controllers_are_not_waited_for(tmp_path: Path) -> None:
    """Their ports are closed: followers and brokers do not wait for ten minutes of silence.

    Here nodes reach each other without the proxies of the other tests, whose ports stay open.
    """
    configs = {"controller.quorum.fetch.timeout.ms": 10 * TIMEOUT_S * 1000}
    with (
        KafkaCluster.start(tmp_path, controllers=3, brokers=1, configs=configs) as cluster,
        Creations(cluster.bootstrap_servers) as creations,
    ):
        for _ in range(2):
            killed = cluster.controller()
            killed.kill()
            creations.wait_for_more(5)
            assert cluster.controller() != killed
            killed.start()
            creations.wait_for_more(5)
        creations.stop()
        creations.check()


def test_paused_and_cut_off(cluster: ProcessCluster) -> None:
    """F6, F8: the old leader resumes with a leadership that is over."""
    with Creations(cluster.bootstrap) as creations:
        leader = cluster.wait_for_leader()
        leader.pause()
        creations.wait_for_more(5)
        leader.resume()
        creations.wait_for_more(5)
        leader = cluster.wait_for_leader()
        cluster.links.cut_off(leader.id, list(cluster.nodes))
        creations.wait_for_more(5)

        def resigned() -> bool:
            told = cluster.describe(leader)
            return told is not None and told.leader_id != leader.id

        until("a leader cut off that resigns", resigned)
        cluster.links.heal()
        creations.wait_for_more(5)
    creations.check()
    settle(cluster)


def test_majority_lost_and_regained(cluster: ProcessCluster) -> None:
    """F26: without a majority no topic is created and brokers continue; with it creations
    resume."""
    with Creations(cluster.bootstrap) as creations:
        leader = cluster.wait_for_leader()
        lost = [node for node in cluster.controllers if node is not leader]
        for node in lost:
            node.kill()

        def resigned() -> bool:
            told = cluster.describe(leader)
            return told is not None and told.leader_id != leader.id

        until("a leader without a majority that resigns", resigned)
        before = list(creations.succeeded)
        assert creations.topics() >= set(before)
        assert creations.succeeded == before
        for node in lost:
            node.start()
        creations.wait_for_more(5)
    creations.check()
    settle(cluster)


def test_wiped_voter(tmp_path: Path) -> None:
    """F22: with a voter set in the log, a replaced disk makes it another replica."""
    with process_cluster(tmp_path, dynamic=True) as cluster, Creations(cluster.bootstrap) as load:
        leader = cluster.wait_for_leader()
        wiped = next(node for node in cluster.controllers if node is not leader)
        wiped.kill()
        shutil.rmtree(wiped.data)
        wiped.format(no_initial_controllers=True)
        wiped.start()
        load.wait_for_more(5)

        def observed() -> bool:
            told = cluster.describe(cluster.wait_for_leader())
            assert told is not None
            voters = {v.replica_id: v.log_end_offset for v in told.current_voters}
            seen = {o.replica_id for o in told.observers if o.log_end_offset > 0}
            return set(voters) == {1, 2, 3} and wiped.id in seen

        until("the wiped one as an observer", observed)
        load.stop()
        load.check()


def test_snapshots_survive_kills(tmp_path: Path) -> None:
    """F34: snapshots all the time, controllers killed at any moment of writing and installing."""
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "4000",
        "internal.metadata.log.segment.bytes": "4096",
    }
    with process_cluster(tmp_path, settings=settings) as cluster:
        with Creations(cluster.bootstrap) as load:
            for node in cluster.controllers * 2:
                load.wait_for_more(10)
                node.kill()
                load.wait_for_more(3)
                node.start()
        load.check()
        assert any(list(node.metadata_dir.glob("*.checkpoint")) for node in cluster.controllers)
