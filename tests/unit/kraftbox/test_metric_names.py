"""The series that dashboards and alerts for Kafka use: present, labelled, and changing.

Names are those of Strimzi's JMX rules. A series that changes only with a second broker, or after a
failure, is listed apart with its value on one healthy node. A series that a node of this kind does
not have is listed with the reason, and must be absent.
"""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from broker.replication.partition.leadership import become_follower
from testkit.memory.metric_traffic import (
    BATCH,
    BEGIN,
    DOCUMENT,
    END,
    TOPIC,
    Scrape,
    connect,
    create_topic,
    observe,
    scrape,
    table,
)
from testkit.memory.node import running_node
from testkit.memory.turns import until

T = {"topic": TOPIC}
P = {"topic": TOPIC, "partition": "0"}
CLIENTS = {"listener": "PLAINTEXT", "networkProcessor": "0"}
LIMITED = {"user": "", "clientId": "metrics"}
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

RISES: tuple[tuple[str, dict[str, str]], ...] = (
    ("kafka_log_log_size", P),
    ("kafka_log_log_logendoffset", P),
    ("kafka_server_brokertopicmetrics_bytesin_total", T),
    ("kafka_server_brokertopicmetrics_bytesin_total", {}),
    ("kafka_server_brokertopicmetrics_bytesout_total", T),
    ("kafka_server_brokertopicmetrics_bytesout_total", {}),
    ("kafka_server_brokertopicmetrics_messagesin_total", T),
    ("kafka_server_brokertopicmetrics_messagesin_total", {}),
    ("kafka_server_brokertopicmetrics_totalproducerequests_total", T),
    ("kafka_server_brokertopicmetrics_totalproducerequests_total", {}),
    ("kafka_server_brokertopicmetrics_totalfetchrequests_total", T),
    ("kafka_server_brokertopicmetrics_totalfetchrequests_total", {}),
    ("kafka_server_brokertopicmetrics_failedproducerequests_total", T),
    ("kafka_server_brokertopicmetrics_failedfetchrequests_total", T),
    ("kafka_server_brokertopicmetrics_bytesrejected_total", T),
    ("kafka_server_replicamanager_partitioncount", {}),
    ("kafka_server_replicamanager_leadercount", {}),
    ("kafka_server_replicamanager_atminisrpartitioncount", {}),
    ("kafka_server_delayedoperationpurgatory_purgatorysize", {"delayedOperation": "Fetch"}),
    ("kafka_server_fetchsessioncache_numincrementalfetchsessions", {}),
    ("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", {}),
    ("kafka_server_raftmetrics_high_watermark", {}),
    ("kafka_server_raftmetrics_log_end_offset", {}),
    ("kafka_server_raftmetrics_append_records_rate", {}),
    ("kafka_server_brokermetadatametrics_last_applied_record_offset", {}),
    ("kafka_server_brokermetadatametrics_last_applied_record_timestamp", {}),
    ("kafka_controller_kafkacontroller_globaltopiccount", {}),
    ("kafka_controller_kafkacontroller_globalpartitioncount", {}),
    ("kafka_controller_kafkacontroller_lastappliedrecordoffset", {}),
    ("kafka_controller_kafkacontroller_lastappliedrecordtimestamp", {}),
    ("kafka_controller_kafkacontroller_lastcommittedrecordoffset", {}),
    ("kafka_controller_controllereventmanager_eventqueuetimems_count", {}),
    ("kafka_controller_controllereventmanager_eventqueueprocessingtimems_count", {}),
    ("kafka_server_socket_server_metrics_incoming_byte_total", CLIENTS),
    ("kafka_server_socket_server_metrics_outgoing_byte_total", CLIENTS),
    ("kafka_coordinator_group_groupmetadatamanager_numgroups", {}),
    ("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", {}),
    ("kafka_coordinator_group_groupmetadatamanager_numoffsets", {}),
    ("kafka_server_group_coordinator_metrics_group_count", {"protocol": "classic"}),
    ("kafka_server_group_coordinator_metrics_classic_group_count", {"state": "Stable"}),
    ("kafka_server_group_coordinator_metrics_offset_count", {}),
    ("kafka_network_requestmetrics_requests_total", {"request": "Produce", "version": "13"}),
    ("kafka_network_requestmetrics_requests_total", {"request": "FetchConsumer", "version": "18"}),
    (
        "kafka_network_requestmetrics_errors_total",
        {"request": "Produce", "error": "CORRUPT_MESSAGE"},
    ),
    (
        "kafka_network_requestmetrics_errors_total",
        {"request": "Fetch", "error": "OFFSET_OUT_OF_RANGE"},
    ),
    *(
        (f"kafka_network_requestmetrics_{phase}timems_count", {"request": request})
        for phase in (
            "requestqueue",
            "local",
            "remote",
            "responsequeue",
            "responsesend",
            "total",
        )
        for request in ("Produce", "Fetch", "FetchConsumer", "JoinGroup")
    ),
    ("kraftbox_loop_cpu_seconds_total", {}),
    ("kafka_log_logflushstats_logflushrateandtimems_count", {}),
    ("kafka_server_quota_byte_rate", {"resource": "Produce", **LIMITED}),
    ("kafka_server_quota_byte_rate", {"resource": "Fetch", **LIMITED}),
    ("kafka_server_quota_request_time", {"resource": "Request", **LIMITED}),
    ("process_cpu_seconds_total", {}),
)

# Values on one healthy node. Those marked * need a second broker to change, the others a failure.
# Values above 0 are tested in tests/unit/broker/replication/test_replication_metrics.py (brokers),
# tests/unit/controller/writer/test_stats.py and tests/unit/metalog/quorum/test_stats.py.
STANDS: tuple[tuple[str, dict[str, str], float], ...] = (
    ("kafka_cluster_partition_underminisr", P, 0),  # *
    ("kafka_cluster_partition_atminisr", P, 1),  # *
    ("kafka_cluster_partition_underreplicated", P, 0),  # *
    ("kafka_cluster_partition_replicascount", P, 1),  # *
    ("kafka_cluster_partition_insyncreplicascount", P, 1),  # *
    ("kafka_cluster_partition_laststableoffsetlag", P, 0),  # transactions
    ("kafka_controller_kafkacontroller_activecontrollercount", {}, 1),
    ("kafka_controller_kafkacontroller_activebrokercount", {}, 1),
    ("kafka_controller_kafkacontroller_fencedbrokercount", {}, 0),
    ("kafka_controller_kafkacontroller_offlinepartitionscount", {}, 0),
    ("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", {}, 0),  # *
    ("kafka_controller_kafkacontroller_metadataerrorcount", {}, 0),
    ("kafka_controller_kafkacontroller_lastappliedrecordlagms", {}, 0),  # the active one has none
    ("kafka_controller_controllerstats_uncleanleaderelections_total", {}, 0),  # *
    ("kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total", {}, 0),  # *
    ("kraftbox_partition_electable_replicas", P, 1),  # *
    *(
        ("kraftbox_controller_elections_total", {"kind": kind}, 0)
        for kind in ("elr", "last-known-leader", "unclean", "unclean-recovery", "designated")
    ),
    ("kafka_server_replicamanager_underreplicatedpartitions", {}, 0),  # *
    ("kafka_server_replicamanager_underminisrpartitioncount", {}, 0),  # *
    ("kafka_server_replicamanager_offlinereplicacount", {}, 0),
    ("kafka_server_replicamanager_isrshrinks_total", {}, 0),  # *
    ("kafka_server_replicamanager_isrexpands_total", {}, 0),  # *
    ("kafka_server_replicafetchermanager_maxlag", {"clientId": "Replica"}, 0),
    ("kafka_server_brokertopicmetrics_replicationbytesout_total", {}, 0),  # *
    ("kafka_log_logmanager_offlinelogdirectorycount", {}, 0),
    ("kafka_log_logmanager_logdirectoryoffline", {"logDirectory": "/data"}, 0),
    ("kafka_log_log_logstartoffset", P, 0),
    ("kafka_log_log_numlogsegments", P, 1),
    ("kafka_server_kafkaserver_brokerstate", {}, 3),
    ("kafka_server_raftmetrics_current_leader", {}, 1),
    ("kafka_server_raftmetrics_current_epoch", {}, 1),
    ("kafka_server_raftmetrics_current_state", {"current_state": "leader"}, 1),
    ("kafka_server_raftmetrics_fetch_records_rate", {}, 0),  # a leader fetches nothing
    ("kafka_server_raftmetrics_election_latency_max", {}, 0),  # a sole voter elects itself
    ("kafka_server_socket_server_metrics_connection_count", CLIENTS, 3),
    ("kafka_server_delayedoperationpurgatory_purgatorysize", {"delayedOperation": "Produce"}, 0),
)

# Present, at or above zero; the value depends on the machine.
SHOWN: tuple[str, ...] = (
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_network_socketserver_memorypoolused",
    "kafka_network_socketserver_memorypoolavailable",
    "kafka_log_logflushstats_logflushrateandtimems_count",
    "kraftbox_request_memory_waiting",
    "kraftbox_request_memory_waits_total",
    "kraftbox_request_memory_cut_off_total",
    "kraftbox_mutation_quota_throttled_total",
    "kafka_server_raftmetrics_commit_latency_avg",
    "kafka_server_raftmetrics_commit_latency_max",
    "kafka_server_raftmetrics_election_latency_avg",
    "kafka_server_brokermetadatametrics_last_applied_record_lag_ms",
    "kraftbox_loop_lag_seconds",
    "kraftbox_loop_lag_worst_cpu_seconds",
    "kraftbox_loop_lag_worst_seconds",
)
ON_LINUX: tuple[str, ...] = (
    "kafka_server_controllerserver_linux_disk_rchar",
    "kafka_server_kafkaserver_linux_disk_cancelled_write_bytes",
    "kafka_server_kafkaserver_linux_disk_rchar",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_syscr",
    "kafka_server_kafkaserver_linux_disk_syscw",
    "kafka_server_kafkaserver_linux_disk_wchar",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
)

TIER_WORK = ("copy", "delete", "fetch")
DOES_NOT_APPLY: dict[str, str] = {
    "kafka_consumergroup_lag": "kafka_exporter's: it asks through the protocol, of us as of Kafka",
    "kafka_consumergroup_current_offset": "kafka_exporter's",
    "kafka_topic_partition_current_offset": "kafka_exporter's",
    "kafka_topic_partition_oldest_offset": "kafka_exporter's",
    "kafka_topic_partition_under_replicated_partition": "kafka_exporter's",
    "kafka_topic_partitions": "kafka_exporter's",
    **dict.fromkeys(
        (
            *(f"kafka_server_brokertopicmetrics_remote{work}errors_total" for work in TIER_WORK),
            "kafka_server_brokertopicmetrics_remotecopylagbytes",
            "kafka_server_brokertopicmetrics_remotedeletelagsegments",
            "kraftbox_tier_blocked_partitions",
        ),
        "tiered storage's, where that is on (tests/unit/broker/tiering/test_metrics.py)",
    ),
    "kafka_log_log_tiersize": "Confluent's tiered storage; Apache Kafka has no such series",
    "kafka_server_raftchannelmetrics_incoming_byte_total": "a sole voter talks to nobody",
    "kafka_server_raftchannelmetrics_outgoing_byte_total": "a sole voter talks to nobody",
    "kafka_server_raftchannelmetrics_request_total": "a sole voter talks to nobody",
    "kafka_server_raftchannelmetrics_response_total": "a sole voter talks to nobody",
    "kafka_network_requestchannel_requestqueuesize": "a request is served when it is read",
    "jvm_memory_used_bytes": "no JVM, and none is faked",
    "jvm_gc_collection_seconds_sum": "no JVM",
    "jvm_threads_current": "no JVM",
}


@pytest.fixture(scope="module")
def scrapes() -> tuple[Scrape, Scrape]:
    return asyncio.run(observe())


def test_traffic_metrics_rise_with_traffic(scrapes: tuple[Scrape, Scrape]) -> None:
    before, after = scrapes
    for name, labels in RISES:
        was = before.values.get((name, frozenset(labels.items())), 0.0)
        assert after.value(name, **labels) > was, name


def test_healthy_single_node_has_expected_metric_values(scrapes: tuple[Scrape, Scrape]) -> None:
    for name, labels, expected in STANDS:
        assert scrapes[1].value(name, **labels) == expected, name


def test_machine_metrics_are_in_range(scrapes: tuple[Scrape, Scrape]) -> None:
    for name in SHOWN:
        assert scrapes[1].value(name) >= 0.0, name
    for name in SHOWN[:2]:
        assert scrapes[1].value(name) <= 1.0, name


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux has this")
def test_process_metrics_of_linux_are_exported(scrapes: tuple[Scrape, Scrape]) -> None:
    for name in ON_LINUX:
        assert scrapes[1].value(name) >= 0.0, name


def test_inapplicable_metrics_are_absent(scrapes: tuple[Scrape, Scrape]) -> None:
    shown = {name for name, _ in scrapes[1].values}
    assert not shown & DOES_NOT_APPLY.keys()


def test_every_alert_uses_exported_series(scrapes: tuple[Scrape, Scrape]) -> None:
    """An alert on a series that no node exports never fires."""
    rules = Path(__file__).parents[3] / "deploy" / "prometheus" / "rules.yml"
    asked = set()
    for part in rules.read_text(encoding="utf-8").split("expr:")[1:]:
        expression = re.split(r"\n +(?:for|labels|annotations):", part)[0]
        asked |= set(re.findall(r"\b(?:kafka|kraftbox)_[a-z0-9_]+_[a-z0-9_]+", expression))
    assert len(asked) >= 15
    assert asked - {name for name, _ in scrapes[1].values} <= DOES_NOT_APPLY.keys()


def test_amounts(scrapes: tuple[Scrape, Scrape]) -> None:
    _, after = scrapes
    topics = "kafka_server_brokertopicmetrics_"
    assert after.value(topics + "bytesin_total", topic=TOPIC) == len(BATCH)
    assert after.value(topics + "bytesout_total", topic=TOPIC) == len(BATCH)
    assert after.value(topics + "bytesrejected_total", topic=TOPIC) == len(BATCH)
    assert after.value(topics + "messagesin_total", topic=TOPIC) == 2
    assert after.value(topics + "totalproducerequests_total", topic=TOPIC) == 2
    assert after.value(topics + "failedproducerequests_total", topic=TOPIC) == 1
    assert after.value(topics + "failedfetchrequests_total", topic=TOPIC) == 1


def test_quantiles_of_each_phase(scrapes: tuple[Scrape, Scrape]) -> None:
    _, after = scrapes
    for phase in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total"):
        name = f"kafka_network_requestmetrics_{phase}timems"
        values = [after.value(name, request="FetchConsumer", quantile=q) for q in QUANTILES]
        assert values == sorted(values), phase
    remote = "kafka_network_requestmetrics_remotetimems"
    assert after.value(remote, request="FetchConsumer", quantile="0.999") > 16
    total = "kafka_network_requestmetrics_totaltimems"
    assert after.value(total + "_sum", request="FetchConsumer") >= 20


def test_the_exposition_is_valid(scrapes: tuple[Scrape, Scrape]) -> None:
    for row in scrapes[1].rows.values():
        assert row.text, f"{row.name} has no help"
        assert row.kind in ("counter", "gauge", "summary"), row
        if row.name.startswith("kraftbox_"):
            assert row.name.endswith("_total") == (row.kind == "counter"), row
    for (name, _), value in scrapes[1].values.items():
        assert not math.isinf(value), name


def test_the_document_lists_what_there_is(scrapes: tuple[Scrape, Scrape]) -> None:
    _, _, rest = DOCUMENT.read_text().partition(BEGIN)
    documented = rest.partition(END)[0]
    assert documented == table(scrapes[1].rows.values()), (
        "write it anew with python -m testkit.memory.metric_traffic"
    )


@pytest.mark.parametrize("which", ["all", "leader", "none"])
async def test_partition_series_follow_the_setting(which: str) -> None:
    async with running_node(settings={"kraftbox.metrics.partitions": which}) as node:
        client = await connect(node)
        await create_topic(client, TOPIC)
        assert node.broker is not None
        followed = node.broker.replicas.find(TOPIC, 1)
        effects = become_follower(
            followed,
            leader_id=2,
            leader_epoch=followed.leader_epoch + 1,
            partition_epoch=followed.partition_epoch + 1,
            replicas=(1, 2),
            isr=(2,),
        )
        node.broker.replicas.carry_out(followed, effects)
        seen = {
            dict(labels)["partition"]
            for name, labels in scrape(node).values
            if name == "kafka_log_log_size"
        }
        assert seen == {"all": {"0", "1"}, "leader": {"0"}, "none": set()}[which]
        await client.close()


async def test_open_metrics_of_a_node_is_read_by_a_strict_parser() -> None:
    async with running_node() as node:
        client = await connect(node)
        await create_topic(client, TOPIC)
        shown = b"".join(node.metrics.exposition(open_metrics=True)).decode()
        families = list(text_string_to_metric_families(shown))
        assert len(families) > 100
        plain = b"".join(node.metrics.exposition()).decode()
        names = {line.partition(" ")[0].partition("{")[0] for line in plain.splitlines()}
        told = {sample.name for family in families for sample in family.samples}
        assert told == {name for name in names if not name.startswith("#")}
        await client.close()


async def test_a_scrape_of_many_partitions_pauses() -> None:
    async with running_node() as node:
        client = await connect(node)
        await create_topic(client, TOPIC, partitions=1200)
        assert node.broker is not None
        replicas = node.broker.replicas
        await until(lambda: sum(1 for _ in replicas) == 1200)
        pieces = list(node.metrics.exposition(process=False))
        # The partitions are walked twice in parts, and the controller counts them once.
        assert pieces.count(b"") >= 6
        assert max(piece.count(b"\n") for piece in pieces) <= 250
        await client.close()
