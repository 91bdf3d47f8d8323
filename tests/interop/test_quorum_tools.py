"""Kafka's tools for a quorum on three controllers of ours, through brokers and directly.

`kafka_tools/` tests each tool with one node; this module tests the effects of a quorum: voters and
observers, their directories and their lag, before and after the active controller has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from protocol.ids import ZERO_UUID, uuid_to_text
from testkit.kafka.jars import kafka_libs
from testkit.kafka.tools import KafkaTools
from testkit.processes.quorum_cluster import CLUSTER_ID, HOST, ProcessCluster, process_cluster
from testkit.processes.waiting import until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]
T = "org.apache.kafka.tools."
QUORUM = f"{T}MetadataQuorumCommand"


@pytest.fixture(scope="module", params=[False, True], ids=["static", "dynamic"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProcessCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with process_cluster(folder, brokers=1, dynamic=request.param) as started:
        yield started


def ways(cluster: ProcessCluster) -> list[tuple[str, str]]:
    """Return the ways: by a broker, and by each running controller."""
    controllers = [f"{HOST}:{one.proxy}" for one in cluster.controllers if one.process is not None]
    asked = [("--bootstrap-controller", one) for one in [*controllers, ",".join(controllers)]]
    return [("--bootstrap-server", cluster.bootstrap), *asked]


def run(tools: KafkaTools, name: str, *arguments: str) -> str:
    done = tools.run(name, *arguments)
    assert done.code == 0, done.text
    return done.out


def test_describe_status(tools: KafkaTools, cluster: ProcessCluster) -> None:
    leader = cluster.wait_for_leader().id
    for way in ways(cluster):
        told = run(tools, QUORUM, *way, "describe", "--status")
        facts = dict(re.findall(r"^(\w+): +(.*)$", told, re.MULTILINE))
        assert facts["ClusterId"] == CLUSTER_ID
        assert int(facts["LeaderId"]) == leader
        assert int(facts["LeaderEpoch"]) >= 1 and int(facts["HighWatermark"]) > 0
        voters = re.findall(r'"id": (\d+)', facts["CurrentVoters"])
        assert sorted(map(int, voters)) == [1, 2, 3]
        assert re.findall(r'"id": (\d+)', facts["CurrentObservers"]) == ["4"]
        if cluster.dynamic:
            for node in cluster.controllers:
                assert uuid_to_text(node.directory_id) in facts["CurrentVoters"]
                assert f":{node.proxy}" in facts["CurrentVoters"]


def test_describe_replication(tools: KafkaTools, cluster: ProcessCluster) -> None:
    leader = cluster.wait_for_leader().id
    for way in ways(cluster):
        for more in ([], ["--human-readable"]):
            told = run(tools, QUORUM, *way, "describe", "--replication", *more)
            head, *lines = [line.split("\t") for line in told.splitlines() if line.strip()]
            assert [one.strip() for one in head][:2] == ["NodeId", "DirectoryId"]
            rows = {int(line[0]): [one.strip() for one in line if one] for line in lines}
            status = {node_id: row[-1] for node_id, row in rows.items()}
            wanted = {1: "Follower", 2: "Follower", 3: "Follower", 4: "Observer", leader: "Leader"}
            assert status == wanted
            for node in cluster.controllers:
                directory_id = node.directory_id if cluster.dynamic else ZERO_UUID
                assert rows[node.id][1] == uuid_to_text(directory_id)


def test_other_tools_work_with_controllers(tools: KafkaTools, cluster: ProcessCluster) -> None:
    for way in ways(cluster):
        assert CLUSTER_ID in run(tools, f"{T}ClusterTool", "cluster-id", *way)
        features = run(tools, f"{T}FeatureCommand", *way, "describe")
        level = re.search(r"Feature: kraft.version.*FinalizedVersionLevel: (\d)", features)
        assert level is not None and int(level[1]) == int(cluster.dynamic)
        asked = (*way, "--describe", "--entity-type", "brokers", "--entity-default")
        told = run(tools, f"{T}ConfigCommand", *asked)
        assert "Default configs for brokers in the cluster are" in told
    controllers = ways(cluster)[-1]
    listed = run(tools, f"{T}ClusterTool", "list-endpoints", *controllers)
    assert {int(line.split()[0]) for line in listed.splitlines()[1:]} == {1, 2, 3}
    reassignments = (*controllers, "--list")
    run(tools, f"{T}reassign.ReassignPartitionsCommand", *reassignments)
    asked = run(tools, f"{T}BrokerApiVersionsCommand", "--bootstrap-server", cluster.bootstrap)
    assert "DescribeQuorum(55)" in asked and "(id: 4 " in asked


def test_after_the_active_one_was_lost(tools: KafkaTools, cluster: ProcessCluster) -> None:
    old = cluster.wait_for_leader()
    old.kill()
    new = cluster.wait_for_leader(but=old)
    for way in ways(cluster):

        def told(way: tuple[str, str] = way) -> bool:
            status = run(tools, QUORUM, *way, "describe", "--status")
            return re.search(rf"LeaderId: +{new.id}\n", status) is not None

        until("the new leader", told)
        assert CLUSTER_ID in run(tools, f"{T}ClusterTool", "cluster-id", *way)
    defaults = ("--entity-type", "brokers", "--entity-default")
    change = ("--alter", "--add-config", "log.cleaner.threads=1")
    run(tools, f"{T}ConfigCommand", *ways(cluster)[-1], *defaults, *change)
    described = run(tools, f"{T}ConfigCommand", *ways(cluster)[0], "--describe", *defaults)
    assert "log.cleaner.threads=1" in described
    old.start()
    cluster.wait_for_leader()
