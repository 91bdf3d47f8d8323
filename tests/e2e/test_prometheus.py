"""Prometheus with the files of `deploy/`, scraping a running cluster.

They are used unchanged except for addresses and times: a templated copy scrapes twice a second and
lets alerts fire after one.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kraftbox.testing import KafkaCluster
from testkit.processes.ports import free_port
from testkit.processes.waiting import until
from testkit.skips import MAY_BE_MISSING

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[2]
SHIPPED = REPOSITORY / "deploy/prometheus"
DASHBOARDS = REPOSITORY / "deploy/grafana/dashboards"
WAIT_S = 90.0
TOPIC = "watched"
ALONE = "unreplicated"
TIERED = "tiered"

TP = {"topic", "partition"}
REQUEST = {"request", "quantile"}

# Series that dashboards and alerts for Kafka use most, with the labels they select by. Others
# belong to the JVM, the kubelet, a disk or kafka_exporter, and are in NOT_OURS.
SERIES: dict[str, set[str]] = {
    "kafka_cluster_partition_underminisr": TP,
    "kafka_cluster_partition_atminisr": TP,
    "kafka_cluster_partition_underreplicated": TP,
    "kafka_cluster_partition_replicascount": TP,
    "kafka_controller_kafkacontroller_activecontrollercount": set(),
    "kafka_controller_kafkacontroller_activebrokercount": set(),
    "kafka_controller_kafkacontroller_offlinepartitionscount": set(),
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": set(),
    "kafka_controller_kafkacontroller_fencedbrokercount": set(),
    "kafka_controller_kafkacontroller_metadataerrorcount": set(),
    "kafka_controller_kafkacontroller_lastappliedrecordlagms": set(),
    "kafka_controller_controllereventmanager_eventqueuetimems": {"quantile"},
    "kafka_controller_controllereventmanager_eventqueueprocessingtimems": {"quantile"},
    "kafka_controller_controllerstats_uncleanleaderelections_total": set(),
    "kafka_coordinator_group_groupmetadatamanager_numgroups": set(),
    "kafka_server_brokertopicmetrics_bytesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_bytesout_total": {"topic"},
    "kafka_server_brokertopicmetrics_messagesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_totalproducerequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_failedproducerequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": {"topic"},
    "kafka_server_replicamanager_underreplicatedpartitions": set(),
    "kafka_server_replicamanager_underminisrpartitioncount": set(),
    "kafka_server_replicamanager_partitioncount": set(),
    "kafka_server_replicamanager_leadercount": set(),
    "kafka_server_replicamanager_isrshrinks_total": set(),
    "kafka_server_replicamanager_isrexpands_total": set(),
    "kafka_server_kafkaserver_brokerstate": set(),
    "kafka_server_kafkaserver_linux_disk_cancelled_write_bytes": set(),
    "kafka_server_kafkaserver_linux_disk_rchar": set(),
    "kafka_server_kafkaserver_linux_disk_read_bytes": set(),
    "kafka_server_kafkaserver_linux_disk_syscr": set(),
    "kafka_server_kafkaserver_linux_disk_syscw": set(),
    "kafka_server_kafkaserver_linux_disk_wchar": set(),
    "kafka_server_kafkaserver_linux_disk_write_bytes": set(),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": set(),
    "kafka_server_raftmetrics_current_leader": set(),
    "kafka_server_raftmetrics_current_epoch": set(),
    "kafka_server_raftmetrics_current_vote": set(),
    "kafka_server_raftmetrics_current_state": {"current_state"},
    "kafka_server_raftmetrics_high_watermark": set(),
    "kafka_server_raftmetrics_log_end_offset": set(),
    "kafka_server_raftmetrics_commit_latency_avg": set(),
    "kafka_server_raftmetrics_append_records_rate": set(),
    "kafka_server_raftmetrics_fetch_records_rate": set(),
    "kafka_server_socket_server_metrics_connection_count": {"listener", "networkProcessor"},
    "kafka_server_raftchannelmetrics_incoming_byte_total": set(),
    "kafka_server_raftchannelmetrics_outgoing_byte_total": set(),
    "kafka_server_raftchannelmetrics_request_total": set(),
    "kafka_server_raftchannelmetrics_response_total": set(),
    "kafka_server_replicafetchermanager_maxlag": {"clientId"},
    "kafka_network_socketserver_networkprocessoravgidle_percent": set(),
    "kafka_network_requestmetrics_requestqueuetimems": REQUEST,
    "kafka_network_requestmetrics_localtimems": REQUEST,
    "kafka_network_requestmetrics_remotetimems": REQUEST,
    "kafka_network_requestmetrics_responsequeuetimems": REQUEST,
    "kafka_network_requestmetrics_responsesendtimems": REQUEST,
    "kafka_network_requestmetrics_totaltimems": REQUEST,
    "kafka_log_log_size": TP,
    "kafka_log_log_logstartoffset": TP,
    "kafka_log_log_logendoffset": TP,
    "kafka_log_logmanager_offlinelogdirectorycount": set(),
    "process_cpu_seconds_total": set(),
    "process_open_fds": set(),
    "process_resident_memory_bytes": set(),
    "process_start_time_seconds": set(),
}
NAMES_OF_CONFLUENT: dict[str, set[str]] = {
    "kafka_controller_controllerstats_uncleanleaderelectionspersec": set(),
    "kafka_network_requestmetrics_requestspersec": {"request"},
    "kafka_network_socketserver_networkprocessoravgidlepercent": set(),
    "kafka_server_brokertopicmetrics_bytesinpersec": {"topic"},
    "kafka_server_brokertopicmetrics_bytesoutpersec": {"topic"},
    "kafka_server_brokertopicmetrics_messagesinpersec": {"topic"},
    "kafka_server_brokertopicmetrics_totalfetchrequestspersec": {"topic"},
    "kafka_server_brokertopicmetrics_totalproducerequestspersec": {"topic"},
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate": set(),
    "kafka_server_raft_metrics_append_records_rate": set(),
    "kafka_server_raft_metrics_commit_latency_avg": set(),
    "kafka_server_raft_metrics_current_epoch": set(),
    "kafka_server_raft_metrics_current_leader": set(),
    "kafka_server_raft_metrics_election_latency_max": set(),
    "kafka_server_raft_metrics_fetch_records_rate": set(),
    "kafka_server_raft_metrics_high_watermark": set(),
    "kafka_server_replicamanager_isrexpandspersec": set(),
    "kafka_server_replicamanager_isrshrinkspersec": set(),
    "kafka_server_socketservermetrics_connection_count": {"listener"},
}
NOT_OURS = (
    "kafka_consumergroup_lag",  # kafka_exporter
    "kafka_topic_partition_current_offset",  # kafka_exporter
    "jvm_memory_used_bytes",
    "jvm_gc_collection_seconds_sum",
    "jvm_threads_current",
    "kubelet_volume_stats_available_bytes",
    "container_cpu_usage_seconds_total",
    "node_filesystem_avail_bytes",
)
LABELS = {
    "container",
    "env",
    "instance",
    "job",
    "kafka_cluster",
    "kubernetes_pod_name",
    "namespace",
    "strimzi_io_cluster",
    "strimzi_io_name",
}


class Prometheus:
    """A running Prometheus, queried over HTTP."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **arguments: str) -> Any:
        url = f"http://{self._address}{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=10) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success", answer
        return answer["data"]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=1):
                return True
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        alerts = self.get("/api/v1/alerts")["alerts"]
        return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}

    def wait_firing(self, *names: str) -> None:
        until(
            f"{names} fire, not only {self.firing()}", lambda: set(names) <= self.firing(), WAIT_S
        )

    def wait_clear(self, *names: str) -> None:
        until(f"{names} clear", lambda: not set(names) & self.firing(), WAIT_S)


def hurried(text: str) -> str:
    """Return the shipped text with seconds in place of minutes."""
    text = re.sub(r"(scrape|evaluation)_interval: \S+", r"\1_interval: 500ms", text)
    text = re.sub(r"for: \d+[sm]", "for: 1s", text)
    text = re.sub(r"\[\d+m\]", "[5s]", text)
    # A busy machine blocks loops as well, if not for that time.
    text = text.replace("loop_lag_worst_seconds[5s]) > 0.1", "loop_lag_worst_seconds[5s]) > 0.7")
    return text.replace("_lag_ms > 10000", "_lag_ms > 4000")


def copied(place: Path, cluster: KafkaCluster) -> Path:
    """Write a templated copy of the shipped files, and return the path of the configuration."""
    text = (SHIPPED / "prometheus.yml").read_text(encoding="utf-8")
    for kind, nodes in (("broker", cluster.brokers), ("controller", cluster.controllers)):
        targets = ", ".join(f'"{node.facts["http"]}"' for node in nodes)
        text = re.sub(rf'targets: \["{kind}-1.*\]', f"targets: [{targets}]", text)
    assert "broker-1" not in text and "controller-1" not in text
    path = place / "prometheus.yml"
    path.write_text(hurried(text), encoding="utf-8")
    for name in ("rules.yml", "confluent-names.yml"):
        rules = (SHIPPED / name).read_text(encoding="utf-8")
        (place / name).write_text(hurried(rules), encoding="utf-8")
    return path


class Traffic:
    """A producer and a consumer that run during the tests."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        common = {"bootstrap.servers": self._bootstrap, "log_level": 0}
        producer = Producer(common)
        consumer = Consumer({**common, "group.id": "watchers", "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        while not self._end.wait(0.05):
            with contextlib.suppress(BufferError):
                producer.produce(TOPIC, b"x" * 100)
            producer.poll(0)
            consumer.poll(0)
        producer.purge()
        producer.flush(1)
        consumer.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip(f"Prometheus is not installed ({MAY_BE_MISSING})")
    place = tmp_path_factory.mktemp("watched")
    configs = {
        "broker.session.timeout.ms": 3000,
        "offsets.topic.num.partitions": 3,
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": f"file://{place}/bucket",
        "remote.log.manager.task.interval.ms": 500,
    }
    with KafkaCluster.start(place / "nodes", brokers=3, configs=configs) as made:
        made.create_topic(TOPIC, partitions=30, replication_factor=3)
        made.create_topic(ALONE, partitions=3, replication_factor=1)
        tiered = {"remote.storage.enable": "true"}
        made.create_topic(TIERED, partitions=1, replication_factor=3, configs=tiered)
        yield made


@pytest.fixture(scope="module")
def prometheus(
    cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    place = tmp_path_factory.mktemp("prometheus")
    config = copied(place, cluster)
    address = f"127.0.0.1:{free_port()}"
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={place / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = Prometheus(address)
        until("Prometheus is ready", found.is_ready, WAIT_S)
        with Traffic(cluster.bootstrap_servers):
            yield found
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(place / "data", ignore_errors=True)


def test_promtool_finds_nothing_wrong() -> None:
    if shutil.which("promtool") is None:
        pytest.skip(f"Prometheus is not installed ({MAY_BE_MISSING})")
    for command in (("check", "config", "prometheus.yml"), ("check", "rules", "rules.yml")):
        done = subprocess.run(
            ["promtool", *command], cwd=SHIPPED, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    rules = REPOSITORY / "tests/e2e/alerts.yml"
    done = subprocess.run(
        ["promtool", "test", "rules", rules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_target_is_up_and_labelled(prometheus: Prometheus) -> None:
    until("six targets are up", lambda: len(prometheus.query("up == 1")) == 6, WAIT_S)
    for result in prometheus.query("up"):
        assert result["metric"].keys() >= LABELS, result
    jobs = [result["metric"]["job"] for result in prometheus.query("up")]
    assert sorted(jobs) == ["kafka-broker"] * 3 + ["kafka-controller"] * 3


def test_series_of_the_public_dashboards_are_there(prometheus: Prometheus) -> None:
    until("six targets are up", lambda: len(prometheus.query("up == 1")) == 6, WAIT_S)

    def lacking() -> list[str]:
        found = []
        for name, labels in (SERIES | NAMES_OF_CONFLUENT).items():
            results = prometheus.query(name)
            if not any(labels <= result["metric"].keys() for result in results):
                found.append(name)
        return found

    until(f"all series: {lacking()}", lambda: not lacking(), WAIT_S)
    assert not [name for name in NOT_OURS if prometheus.query(name)]


def test_every_panel_of_our_dashboards_shows_something(prometheus: Prometheus) -> None:
    expressions = [
        target["expr"].replace("$cluster", "kraftbox").replace("$__rate_interval", "5s")
        for path in sorted(DASHBOARDS.glob("*.json"))
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
        for target in panel.get("targets", ())
    ]
    assert len(expressions) > 50

    def empty() -> list[str]:
        return [e for e in expressions if not prometheus.query(e)]

    until(f"every panel: {empty()}", lambda: not empty(), WAIT_S)


def test_alerts_of_lost_brokers_and_of_leaders_on_one_side(
    cluster: KafkaCluster, prometheus: Prometheus
) -> None:
    until("six targets are up", lambda: len(prometheus.query("up == 1")) == 6, WAIT_S)
    cluster.wait_until_in_sync()
    lost = (
        "KafkaOfflinePartitionCount",
        "KafkaUnderMinISRPartitionCount",
        "KafkaUnderReplicatedPartitionCount",
        "KraftboxFencedBroker",
        "KraftboxUnderMinIsr",
        "OfflinePartitionCount",
        "OfflinePartitions",
        "ScrapeProblem",
        "UnderMinIsrPartitionCount",
        "UnderReplicatedPartitions",
        "service_down",
    )
    prometheus.wait_clear(*lost)
    _alter(cluster, "min.insync.replicas=2")
    cluster.node(2).stop()
    cluster.node(3).stop()
    prometheus.wait_firing(*lost)
    cluster.node(2).start()
    cluster.node(3).start()
    cluster.wait_until_in_sync()
    prometheus.wait_clear(*lost)
    # Broker 1 leads everything now, until preferred leaders are elected.
    prometheus.wait_firing("KraftboxLeaderSkew", "KafkaPreferredReplicaImbalance")
    _tool(
        cluster,
        "kafka-leader-election",
        *("--election-type", "preferred", "--all-topic-partitions"),
    )
    prometheus.wait_clear("KraftboxLeaderSkew", "KafkaPreferredReplicaImbalance")


def test_alerts_of_a_quorum_without_majority(cluster: KafkaCluster, prometheus: Prometheus) -> None:
    """F26: brokers continue with their last metadata, which grows old."""
    names = ("AbnormalControllerState", "ActiveControllerCount", "KafkaNoActiveController")
    until("six targets are up", lambda: len(prometheus.query("up == 1")) == 6, WAIT_S)
    prometheus.wait_clear(*names, "KraftboxMetadataLag")
    active = cluster.controller()
    other = next(node for node in cluster.controllers if node.id != active.id)
    active.pause()
    other.pause()
    try:
        prometheus.wait_firing(*names, "KraftboxMetadataLag")
    finally:
        active.resume()
        other.resume()
    prometheus.wait_clear(*names, "KraftboxMetadataLag")


def test_alert_of_a_loop_that_is_held_up(cluster: KafkaCluster, prometheus: Prometheus) -> None:
    until("six targets are up", lambda: len(prometheus.query("up == 1")) == 6, WAIT_S)
    broker = cluster.node(1)
    own = (
        'ALERTS{alertname="KraftboxLoopLag",alertstate="firing",'
        f'instance="{broker.facts["http"]}"}}'
    )
    deadline = time.monotonic() + WAIT_S
    while not prometheus.query(own):
        assert time.monotonic() < deadline, "KraftboxLoopLag does not fire"
        broker.pause()
        time.sleep(1.0)
        broker.resume()
        time.sleep(0.2)
    until("KraftboxLoopLag clears", lambda: not prometheus.query(own), WAIT_S)


def test_the_dashboards_are_those_of_their_source() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json, sys; sys.path.insert(0, 'deploy/grafana'); import make; "
            "print(json.dumps(make.documents()))",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for name, text in json.loads(done.stdout).items():
        assert (DASHBOARDS / name).read_text(encoding="utf-8") == text, name


def _tool(cluster: KafkaCluster, name: str, *arguments: str) -> None:
    running = [node for node in cluster.brokers if node.state == "running"]
    bootstrap = ",".join(node.address for node in running)
    subprocess.run(
        [sys.executable, "-m", "kraftbox", name, "--bootstrap-server", bootstrap, *arguments],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )


def _alter(cluster: KafkaCluster, setting: str) -> None:
    _tool(
        cluster,
        "kafka-configs",
        *("--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", setting),
    )
