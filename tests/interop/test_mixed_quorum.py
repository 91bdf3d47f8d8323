"""Apache Kafka's controllers and ours in one quorum: elections and replication in both
directions."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from metalog.image.features import FEATURES
from metalog.supported import SUPPORTED_FEATURES
from protocol.batch.header import iter_batches
from protocol.ids import uuid_to_text
from testkit.audits import elections_of
from testkit.kafka.in_place import LEVELS, KafkaInPlace
from testkit.kafka.jars import ORACLE, PREVIOUS, kafka_libs
from testkit.kafka.nodes import run_kafka_tool
from testkit.processes.quorum_cluster import CLUSTER_ID, NodeProcess, ProcessCluster
from testkit.processes.waiting import until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        kafka_libs() is None, reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)"
    ),
]


DUMP = "org.apache.kafka.tools.DumpLogSegments"


@contextlib.contextmanager
def mixed(
    directory: Path, kafka_ids: tuple[int, ...], *, dynamic: bool, version: str
) -> Iterator[tuple[ProcessCluster, dict[int, KafkaInPlace]]]:
    """Start controllers 1-3 and broker 4, those in `kafka_ids` Kafka's.

    Both sides format with the same explicit levels; `version` is Kafka's release.
    """
    levels = LEVELS[version]
    with ProcessCluster(directory, brokers=1, dynamic=dynamic, features=levels) as cluster:
        theirs = {i: KafkaInPlace(cluster.nodes[i], version=version) for i in kafka_ids}
        try:
            for node in cluster.nodes.values():
                given = cluster.initial_controllers() if dynamic and node.is_controller else None
                if node.id in theirs:
                    option = ["--initial-controllers", given] if given else []
                    theirs[node.id].node.format(CLUSTER_ID, *features(levels), *option)
                else:
                    node.format(initial_controllers=given)
            for node in cluster.nodes.values():
                theirs[node.id].start() if node.id in theirs else node.start()
            broker = cluster.brokers[0]
            if broker.id not in theirs:
                until("the broker", lambda: "to RUNNING" in broker.log_text, 60)
            yield cluster, theirs
        finally:
            for one in theirs.values():
                one.stop()


def features(levels: Iterable[str]) -> list[str]:
    """Return format options: `levels`, our brokers' other features at their highest level, and
    Kafka's others at 0."""
    arguments = [part for level in levels for part in ("--feature", level)]
    for name, levels in sorted(SUPPORTED_FEATURES.items()):
        if name not in ("metadata.version", "kraft.version"):
            arguments += ["--feature", f"{name}={levels.max_level}"]
    missing = {f.name for f in FEATURES} - set(SUPPORTED_FEATURES) - {"kraft.version"}
    for name in sorted(missing):
        arguments += ["--feature", f"{name}=0"]
    return arguments


def leader_id(cluster: ProcessCluster) -> int:
    def look() -> int | None:
        for node in cluster.controllers:
            told = cluster.describe(node)
            if told is not None and not told.error_code and told.leader_id == node.id:
                return node.id
        return None

    return until("a leader", look, 60)


def create(cluster: ProcessCluster, name: str) -> None:
    """Create a topic with a new name.

    A broker repeats the request at the next controller if the answer of a failing one was lost. If
    the first had committed the topic, the second refuses it: for a new name that is a success.
    """
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    try:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def batches(node: NodeProcess) -> dict[int, bytes]:
    data = b"".join(path.read_bytes() for path in sorted(node.metadata_dir.glob("*.log")))
    return {h.base_offset: data[at : at + h.size_bytes] for h, at in iter_batches(data)}


@pytest.mark.parametrize(
    ("kafka_ids", "dynamic", "version"),
    [
        pytest.param((3,), False, ORACLE, id="one of theirs, static"),
        pytest.param((3,), True, ORACLE, id="one of theirs, dynamic"),
        pytest.param((2, 3), True, ORACLE, id="two of theirs, dynamic"),
        pytest.param((2, 3), False, PREVIOUS, id="two of the previous release, static"),
    ],
)
def test_mixed_quorum(
    tmp_path: Path, kafka_ids: tuple[int, ...], dynamic: bool, version: str
) -> None:
    """Every controller but one's own is lost in turn; leaders of both kinds accept creations."""
    leaders = set()
    with mixed(tmp_path, kafka_ids, dynamic=dynamic, version=version) as (cluster, theirs):
        for number in range(4):
            leader = leader_id(cluster)
            leaders.add(leader in theirs)
            create(cluster, f"topic-{number}")
            if leader in theirs:
                theirs[leader].stop()
                leader_id(cluster)
                create(cluster, f"without-{number}")
                theirs[leader].start()
            else:
                cluster.nodes[leader].stop()
                leader_id(cluster)
                create(cluster, f"without-{number}")
                cluster.nodes[leader].start()
        told = cluster.describe(cluster.nodes[leader_id(cluster)])
        assert told is not None
        mark = told.high_watermark

        def level() -> bool:
            now = cluster.describe(cluster.nodes[leader_id(cluster)])
            return now is not None and all(v.log_end_offset >= mark for v in now.current_voters)

        until("everybody to have everything", level, 60)
        logs = [batches(node) for node in cluster.controllers]
        elections_of(*(node.metadata_dir for node in cluster.controllers))
    for offset in [base for base in logs[0] if base < mark]:
        assert len({log[offset] for log in logs}) == 1, f"the logs differ at {offset}"
    assert leaders


def test_removed_controller_is_unregistered_by_our_tool(tmp_path: Path) -> None:
    """`remove-controller --unregister` sends both requests, which Kafka's broker forwards.

    The departed controller is ours. Our own nodes do not offer RemoveRaftVoter.
    """
    with mixed(tmp_path, (2, 3, 4), dynamic=True, version=ORACLE) as (cluster, theirs):
        departed = cluster.nodes[1]
        departed.stop()
        leader = cluster.nodes[leader_id(cluster)]
        assert leader.id in theirs
        done = subprocess.run(
            [
                *(sys.executable, "-m", "kraftbox", "kafka-metadata-quorum"),
                *("--bootstrap-server", cluster.bootstrap),
                *("remove-controller", "--unregister", "--controller-id", "1"),
                *("--controller-directory-id", uuid_to_text(departed.directory_id)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Unregistered controller 1" in done.stdout
        told = cluster.describe(leader)
        assert told is not None
        assert [voter.replica_id for voter in told.current_voters] == [2, 3]
        log = leader.metadata_dir / "00000000000000000000.log"
        dump = run_kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", str(log))
        (data,) = re.findall(r'"UNREGISTER_CONTROLLER_RECORD".*?"data":({.*?})', dump.stdout)
        assert json.loads(data) == {"controllerId": 1}
