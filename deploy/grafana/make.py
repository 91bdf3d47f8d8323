"""Generator of the Grafana dashboards in `dashboards/` from the panels listed here.

Run `python deploy/grafana/make.py` after a change; a test compares the files with this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""The variable of every dashboard for its data source; any Grafana and any source will do."""
INPUT = "DS_PROMETHEUS"
"""The data source input of a manual import. In a dashboard that is provisioned from a file, the
variable takes the first data source of its type instead."""
C = 'kafka_cluster="$cluster"'
COLUMNS = 3
WIDTH = 24 // COLUMNS
HEIGHT = 8


class Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Pairs of PromQL expression and legend."""
    kind: str = "timeseries"


def rate(series: str, by: str) -> str:
    return f"sum by ({by}) (rate({series}{{{C}}}[$__rate_interval]))"


def total(series: str, *, how: str = "sum") -> str:
    return f"{how}({series}{{{C}}})"


def each(series: str) -> str:
    return f"{series}{{{C}}}"


REQUESTS = ("Produce", "FetchConsumer", "FetchFollower")
_TOPICS = "kafka_server_brokertopicmetrics"
_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_RAFT = "kafka_server_raftmetrics"
_CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
_RECOVERY = "kraftbox_unclean_recovery"
_LOCAL_LOGS = "kraftbox_local_log"
_TIMES = "kafka_network_requestmetrics"
_TIER = "kraftbox_tier"
_GROUPS = "kafka_server_group_coordinator_metrics"


def topic_rate(series: str) -> str:
    """Return the rate by topic, without the series that sums up all topics."""
    return f'sum by (topic) (rate({_TOPICS}_{series}{{{C},topic!=""}}[$__rate_interval]))'


def all_rate(series: str) -> str:
    return f'sum by (instance) (rate({_TOPICS}_{series}{{{C},topic=""}}[$__rate_interval]))'


def topic_now(series: str) -> str:
    return f'sum by (topic) ({_TOPICS}_{series}{{{C},topic!=""}})'


def all_now(series: str) -> str:
    return f'sum by (instance) ({_TOPICS}_{series}{{{C},topic=""}})'


_STATE = each("kafka_server_kafkaserver_brokerstate")

OVERVIEW = (
    Panel("Brokers running", "none", ((f"sum({_STATE} == bool 3)", ""),), "stat"),
    Panel(
        "Active controllers", "none", ((total(f"{_CONTROLLER}_activecontrollercount"), ""),), "stat"
    ),
    Panel(
        "Partitions without leader",
        "none",
        ((total(f"{_CONTROLLER}_offlinepartitionscount", how="max"), ""),),
        "stat",
    ),
    Panel(
        "Under-replicated", "none", ((total(f"{_REPLICAS}_underreplicatedpartitions"), ""),), "stat"
    ),
    Panel(
        "Under min ISR", "none", ((total(f"{_REPLICAS}_underminisrpartitioncount"), ""),), "stat"
    ),
    Panel(
        "Fenced brokers",
        "none",
        ((total(f"{_CONTROLLER}_fencedbrokercount", how="max"), ""),),
        "stat",
    ),
    Panel("Bytes in", "Bps", ((all_rate("bytesin_total"), "{{instance}}"),)),
    Panel("Bytes out", "Bps", ((all_rate("bytesout_total"), "{{instance}}"),)),
    Panel("Records in", "cps", ((all_rate("messagesin_total"), "{{instance}}"),)),
    Panel("Leaders", "none", ((each(f"{_REPLICAS}_leadercount"), "{{instance}}"),)),
    Panel("Replicas", "none", ((each(f"{_REPLICAS}_partitioncount"), "{{instance}}"),)),
    Panel(
        "ISR changes",
        "cps",
        (
            (rate(f"{_REPLICAS}_isrshrinks_total", "instance"), "{{instance}} shrinks"),
            (rate(f"{_REPLICAS}_isrexpands_total", "instance"), "{{instance}} expands"),
        ),
    ),
    Panel(
        "Requests",
        "reqps",
        ((rate(f"{_TIMES}_requests_total", "request"), "{{request}}"),),
    ),
    Panel(
        "Errors in answers",
        "cps",
        ((rate(f"{_TIMES}_errors_total", "request, error"), "{{request}} {{error}}"),),
    ),
    Panel(
        "Time of requests, 95th percentile",
        "ms",
        tuple(
            (
                f"max by (instance) ({_TIMES}_totaltimems"
                f'{{{C},request="{request}",quantile="0.95"}})',
                f"{request} {{{{instance}}}}",
            )
            for request in REQUESTS
        ),
    ),
    Panel(
        "Connections",
        "none",
        (
            (
                f"sum by (instance) ({each(_CONNECTIONS)})",
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Event loop: late by",
        "s",
        ((each("kraftbox_loop_lag_worst_seconds"), "{{instance}}"),),
    ),
    Panel(
        "Event loop: part of its time idle",
        "percentunit",
        (
            (
                each("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Processor",
        "percentunit",
        ((rate("process_cpu_seconds_total", "instance"), "{{instance}}"),),
    ),
    Panel(
        "Memory",
        "bytes",
        ((each("process_resident_memory_bytes"), "{{instance}}"),),
    ),
    Panel("Open files", "none", ((each("process_open_fds"), "{{instance}}"),)),
)

QUORUM = (
    Panel(
        "Leader of the quorum", "none", ((total(f"{_RAFT}_current_leader", how="max"), ""),), "stat"
    ),
    Panel("Epoch", "none", ((total(f"{_RAFT}_current_epoch", how="max"), ""),), "stat"),
    Panel("Voters", "none", ((total(f"{_RAFT}_number_of_voters", how="max"), ""),), "stat"),
    Panel(
        "Role",
        "none",
        ((f"{each(f'{_RAFT}_current_state')} == 1", "{{instance}} {{current_state}}"),),
    ),
    Panel("High watermark", "none", ((each(f"{_RAFT}_high_watermark"), "{{instance}}"),)),
    Panel("Log end offset", "none", ((each(f"{_RAFT}_log_end_offset"), "{{instance}}"),)),
    Panel("Commit latency, mean", "ms", ((each(f"{_RAFT}_commit_latency_avg"), "{{instance}}"),)),
    Panel("Elections", "ms", ((each(f"{_RAFT}_election_latency_max"), "{{instance}}"),)),
    Panel(
        "Records appended",
        "cps",
        ((each(f"{_RAFT}_append_records_rate"), "{{instance}}"),),
    ),
    Panel(
        "Records fetched",
        "cps",
        ((each(f"{_RAFT}_fetch_records_rate"), "{{instance}}"),),
    ),
    Panel(
        "Age of what brokers know",
        "ms",
        ((each("kafka_server_brokermetadatametrics_last_applied_record_lag_ms"), "{{instance}}"),),
    ),
    Panel(
        "Age of what controllers know",
        "ms",
        ((each(f"{_CONTROLLER}_lastappliedrecordlagms"), "{{instance}}"),),
    ),
    Panel(
        "Controller: operations wait, 95th percentile",
        "ms",
        (
            (
                f'kafka_controller_controllereventmanager_eventqueuetimems{{{C},quantile="0.95"}}',
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Controller: operations take, 95th percentile",
        "ms",
        (
            (
                f"kafka_controller_controllereventmanager_eventqueueprocessingtimems{{{C},"
                'quantile="0.95"}',
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Topics and partitions",
        "none",
        (
            (total(f"{_CONTROLLER}_globaltopiccount", how="max"), "topics"),
            (total(f"{_CONTROLLER}_globalpartitioncount", how="max"), "partitions"),
        ),
    ),
    Panel(
        "Unclean elections",
        "none",
        (
            (
                total("kafka_controller_controllerstats_uncleanleaderelections_total", how="max"),
                "",
            ),
        ),
    ),
    Panel(
        "Elections by kind",
        "cps",
        ((rate("kraftbox_controller_elections_total", "kind"), "{{kind}}"),),
    ),
    Panel(
        "Partitions without leader, by what they wait for",
        "none",
        (
            (
                f"max by (waits_for) ({each('kraftbox_leaderless_partitions')})",
                "{{waits_for}}",
            ),
        ),
    ),
    Panel(
        "Unclean recoveries",
        "none",
        (
            (total(f"{_RECOVERY}_running", how="max"), "running"),
            (f"sum(increase({_RECOVERY}_finished_total{{{C}}}[1h]))", "finished in an hour"),
            (f"sum(increase({_RECOVERY}_given_up_total{{{C}}}[1h]))", "abandoned in an hour"),
        ),
    ),
    Panel(
        "Not led by the preferred replica",
        "none",
        ((total(f"{_CONTROLLER}_preferredreplicaimbalancecount", how="max"), ""),),
    ),
    Panel(
        "Local logs that are short (KIP-1303)",
        "none",
        (
            (total(f"{_LOCAL_LOGS}_ineligible_replicas", how="max"), "ineligible replicas"),
            (total(f"{_LOCAL_LOGS}_preferred_waiting", how="max"), "preferred leaders that wait"),
            (
                f"sum(increase({_LOCAL_LOGS}_elections_passed_over_total{{{C}}}[1h]))",
                "elections that passed one over in an hour",
            ),
        ),
    ),
    Panel(
        "Reports of local logs",
        "cps",
        ((rate(f"{_LOCAL_LOGS}_reports_total", "instance"), "{{instance}}"),),
    ),
    Panel(
        "Metadata errors",
        "none",
        ((each(f"{_CONTROLLER}_metadataerrorcount"), "{{instance}}"),),
    ),
)

TOPICS = (
    Panel("Records in", "cps", ((topic_rate("messagesin_total"), "{{topic}}"),)),
    Panel("Bytes in", "Bps", ((topic_rate("bytesin_total"), "{{topic}}"),)),
    Panel("Bytes out", "Bps", ((topic_rate("bytesout_total"), "{{topic}}"),)),
    Panel("Produce requests", "reqps", ((topic_rate("totalproducerequests_total"), "{{topic}}"),)),
    Panel("Fetch requests", "reqps", ((topic_rate("totalfetchrequests_total"), "{{topic}}"),)),
    Panel(
        "Failed requests",
        "reqps",
        (
            (topic_rate("failedproducerequests_total"), "{{topic}} produce"),
            (topic_rate("failedfetchrequests_total"), "{{topic}} fetch"),
        ),
    ),
    Panel(
        "Size of logs", "bytes", ((f"sum by (topic) ({each('kafka_log_log_size')})", "{{topic}}"),)
    ),
    Panel(
        "Partitions with replicas not in sync",
        "none",
        ((f"sum by (topic) ({each('kafka_cluster_partition_underreplicated')})", "{{topic}}"),),
    ),
    Panel(
        "Partitions at or under min ISR",
        "none",
        (
            (f"sum by (topic) ({each('kafka_cluster_partition_atminisr')})", "{{topic}} at"),
            (f"sum by (topic) ({each('kafka_cluster_partition_underminisr')})", "{{topic}} under"),
        ),
    ),
    Panel(
        "Fewest replicas that can lead without loss",
        "none",
        (
            (
                "min by (topic) (max by (topic, partition) "
                f"({each('kraftbox_partition_electable_replicas')}))",
                "{{topic}}",
            ),
        ),
    ),
)

TIER = (
    Panel("Copied to the tier", "Bps", ((all_rate("remotecopybytes_total"), "{{instance}}"),)),
    Panel("Read from the tier", "Bps", ((all_rate("remotefetchbytes_total"), "{{instance}}"),)),
    Panel(
        "Failed in the tier",
        "cps",
        (
            (all_rate("remotecopyerrors_total"), "{{instance}} copies"),
            (all_rate("remotefetcherrors_total"), "{{instance}} reads"),
            (all_rate("remotedeleteerrors_total"), "{{instance}} deletions"),
            (all_rate("buildremotelogauxstateerrors_total"), "{{instance}} followers that begin"),
        ),
    ),
    Panel("Still to be copied", "bytes", ((all_now("remotecopylagbytes"), "{{instance}}"),)),
    Panel("Still to be deleted", "bytes", ((all_now("remotedeletelagbytes"), "{{instance}}"),)),
    Panel(
        "Stuck: partitions that cannot be copied, deleted ones that are not removed",
        "none",
        (
            (each(f"{_TIER}_blocked_partitions"), "{{instance}} blocked"),
            (each(f"{_TIER}_partition_removals"), "{{instance}} to be removed"),
        ),
    ),
    Panel(
        "Passes over partitions at once",
        "none",
        (
            (
                rate(f"{_TIER}_passes_seconds_total", "instance, work"),
                "{{instance}} {{work}}",
            ),
        ),
    ),
    Panel(
        "Copies wait for their quota: part of the time",
        "percentunit",
        ((rate(f"{_TIER}_copy_throttle_seconds_total", "instance"), "{{instance}}"),),
    ),
    Panel(
        "Time to add up the remote segments",
        "ms",
        ((all_now("remotelogsizecomputationtime"), "{{instance}}"),),
    ),
)

TIER_TOPICS = (
    Panel("Size in the tier", "bytes", ((topic_now("remotelogsizebytes"), "{{topic}}"),)),
    Panel("Segments in the tier", "none", ((topic_now("remotelogmetadatacount"), "{{topic}}"),)),
    Panel("Still to be copied", "bytes", ((topic_now("remotecopylagbytes"), "{{topic}}"),)),
    Panel("Copied to the tier", "Bps", ((topic_rate("remotecopybytes_total"), "{{topic}}"),)),
    Panel(
        "Still to be deleted",
        "none",
        ((topic_now("remotedeletelagsegments"), "{{topic}} segments"),),
    ),
    Panel("Failed copies", "cps", ((topic_rate("remotecopyerrors_total"), "{{topic}}"),)),
)


GROUPS = (
    Panel(
        "Groups by state",
        "none",
        (
            (
                f"sum by (state) ({_GROUPS}_classic_group_count{{{C}}})",
                "{{state}}",
            ),
        ),
    ),
    Panel("Committed offsets", "none", ((each(f"{_GROUPS}_offset_count"), "{{instance}}"),)),
    Panel(
        "Changes of offsets",
        "cps",
        (
            (rate(f"{_GROUPS}_offset_commit_count", "instance"), "{{instance}} commits"),
            (rate(f"{_GROUPS}_offset_expiration_count", "instance"), "{{instance}} expirations"),
            (rate(f"{_GROUPS}_offset_deletion_count", "instance"), "{{instance}} deletions"),
        ),
    ),
    Panel(
        "Rebalances completed",
        "cps",
        ((rate(f"{_GROUPS}_group_completed_rebalance_count", "instance"), "{{instance}}"),),
    ),
)


class Row(NamedTuple):
    """Panels under a title; without a title they stand at the top."""

    title: str
    panels: tuple[Panel, ...]


DASHBOARDS = {
    "kraftbox-cluster": (
        "Kraftbox: cluster",
        (Row("", OVERVIEW), Row("Consumer groups", GROUPS), Row("Tiered storage", TIER)),
    ),
    "kraftbox-quorum": ("Kraftbox: metadata quorum", (Row("", QUORUM),)),
    "kraftbox-topics": (
        "Kraftbox: topics",
        (Row("", TOPICS), Row("Tiered storage", TIER_TOPICS)),
    ),
}


def dashboard(uid: str, title: str, rows: tuple[Row, ...]) -> dict[str, Any]:
    """Return the dashboard as the JSON document that Grafana imports."""
    return {
        "__inputs": [
            {
                "name": INPUT,
                "label": "Prometheus",
                "description": "Scrapes the nodes",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
        ],
        "uid": uid,
        "title": title,
        "tags": ["kafka", "kraftbox"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {"text": f"${{{INPUT}}}", "value": f"${{{INPUT}}}"},
                },
                {
                    "name": "cluster",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": "label_values(kafka_server_raftmetrics_current_epoch, kafka_cluster)",
                    "refresh": 1,
                },
            ]
        },
        "panels": _laid_out(rows),
    }


def _laid_out(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        if row.title:
            made.append({
                "id": len(made) + 1,
                "title": row.title,
                "type": "row",
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
                "panels": [],
            })  # fmt: skip
            top += 1
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, COLUMNS)
            at = {"x": column * WIDTH, "y": top + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            made.append(_panel(len(made) + 1, panel, at))
        top += -(-len(row.panels) // COLUMNS) * HEIGHT
    return made


def _panel(number: int, panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for at, (expr, legend) in enumerate(panel.queries)
        ],
    }


def documents() -> dict[str, str]:
    """Return the text of each dashboard file by file name."""
    return {
        f"{uid}.json": json.dumps(dashboard(uid, title, rows), indent=2) + "\n"
        for uid, (title, rows) in DASHBOARDS.items()
    }


if __name__ == "__main__":
    for name, text in documents().items():
        (HERE / name).write_text(text, encoding="utf-8")
