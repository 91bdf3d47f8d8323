"""Kafka 4.4.0's tools unregister our controllers, through brokers and controllers (KIP-1312)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testkit.audits import elections_of
from testkit.kafka.jars import kafka_libs
from testkit.kafka.nodes import run_kafka_tool
from testkit.processes.quorum_cluster import HOST, NodeProcess, ProcessCluster
from testkit.processes.waiting import until
from tests.interop import documented

pytestmark = [
    pytest.mark.interop,
    pytest.mark.rest,
    pytest.mark.skipif(
        kafka_libs() is None,
        reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)",
    ),
]

CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
SECTION = "Feature levels and Kafka 4.4"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def unregister(controller: int, *way: str) -> str:
    done = run_kafka_tool(CLUSTER_TOOL, "unregister-controller", *way, "--id", str(controller))
    return done.stdout + done.stderr


def dumped(node: NodeProcess) -> str:
    log = node.data / "__cluster_metadata-0/00000000000000000000.log"
    done = run_kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", str(log))
    assert done.returncode == 0, done.stderr
    return done.stdout


def registered(node: NodeProcess) -> list[int]:
    """Return the registered controllers, by the records of the node's log."""
    found: set[int] = set()
    pattern = r'"(UN)?REGISTER_CONTROLLER_RECORD","version":0,"data":{"controllerId":(\d+)'
    for removed, controller in re.findall(pattern, dumped(node)):
        found = found - {int(controller)} if removed else found | {int(controller)}
    return sorted(found)


def test_tools_of_the_oracle_unregister_our_controllers(tmp_path: Path) -> None:
    """Codes and order of checks are Kafka's; a running controller returns, a departed one does not.

    The dump tool of 4.4.0 reads the log, and the audit finds every promise kept.
    """
    with ProcessCluster(tmp_path, controllers=3, brokers=1) as cluster:
        cluster.start()
        leader = cluster.wait_for_leader()
        departed, running = [node for node in cluster.controllers if node is not leader]
        by_broker = ("--bootstrap-server", cluster.bootstrap)
        by_controller = ("--bootstrap-controller", f"{HOST}:{leader.port}")
        until("registrations", lambda: registered(leader) == [1, 2, 3])
        departed.stop()

        for way in (by_broker, by_controller):
            assert "InvalidRequestException" in unregister(leader.id, *way)
            assert "ControllerIdNotRegisteredException" in unregister(2**31 - 1, *way)
            # An observer or broker is no registered controller either.
            assert "ControllerIdNotRegisteredException" in unregister(4, *way)
        gone = f"Controller {departed.id} is no longer registered."
        (written,) = [c for c in documented.commands(SECTION) if "unregister" in c]
        command = written.replace("--id 3", f"--id {departed.id}")
        assert gone in documented.run(command, cluster.bootstrap).stdout
        assert "ControllerIdNotRegisteredException" in unregister(departed.id, *by_controller)
        assert f"Controller {running.id} is no longer" in unregister(running.id, *by_controller)

        until("a new registration", lambda: registered(leader) == sorted({leader.id, running.id}))
        assert dumped(leader).count('"UNREGISTER_CONTROLLER_RECORD"') == 2
        told = cluster.describe(leader)
        assert told is not None
        assert {voter.replica_id for voter in told.current_voters} == {1, 2, 3}
        elections_of(leader.data)
