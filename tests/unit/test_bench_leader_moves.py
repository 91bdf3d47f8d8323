"""The pure parts of `bench.leader_moves` and its picture: what the tool said, counts, the table."""

from __future__ import annotations

import pytest

from bench.leader_moves import (
    HINTS,
    NO_HINTS,
    Asked,
    Row,
    Sends,
    asked_of,
    producer_command,
    rotated,
    sends_of,
    table,
)
from bench.pictures import Bars, bars_of

OUTPUT = """\
1000 records sent, 999.0 records/sec (0.95 MB/sec), 9.1 ms avg latency, 300.0 ms max latency.
3000 records sent, 997.5 records/sec (0.95 MB/sec), 8.20 ms avg latency, 300.00 ms max latency, \
5 ms 50th, 6 ms 95th, 7 ms 99th, 290 ms 99.9th.
2000 steady state records sent, 998.5 records/sec (0.95 MB/sec), 7.10 ms avg latency, \
88.00 ms max latency, 4 ms 50th, 9 ms 95th, 21 ms 99th, 77 ms 99.9th.
"""

SCRAPES = [
    """\
# TYPE kafka_network_requestmetrics_errors_total counter
kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_LEADER_OR_FOLLOWER"} 4.0
kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"} 900.0
kafka_network_requestmetrics_errors_total{request="Fetch",error="NOT_LEADER_OR_FOLLOWER"} 70.0
kafka_network_requestmetrics_requests_total{request="Metadata",version="13"} 5.0
kafka_network_requestmetrics_requests_total{request="Produce",version="13"} 800.0
""",
    """\
kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_LEADER_OR_FOLLOWER"} 3.0
kafka_network_requestmetrics_requests_total{request="Metadata",version="12"} 1.0
""",
]


def row(name: str, number: int, p999_ms: float, metadata: float | None = 6.0) -> Row:
    return Row(name, number, 500, 999.0, 4.0, 9.0, 21.0, p999_ms, 88.0, 7.0, metadata)


def test_the_summary_that_counts_is_that_without_the_warm_up() -> None:
    assert sends_of(OUTPUT) == Sends(998.5, 88.0, 4.0, 9.0, 21.0, 77.0)
    with pytest.raises(ValueError, match="no broker"):
        sends_of("no broker was there")


def test_every_partition_is_led_by_its_second_replica_after_a_rotation() -> None:
    begun = {0: (1, 2, 3), 1: (3, 1, 2)}
    assert rotated(begun) == {0: (2, 3, 1), 1: (1, 2, 3)}
    assert rotated(rotated(rotated(begun))) == begun


def test_refused_produces_and_metadata_requests_of_all_brokers_are_counted() -> None:
    assert asked_of(SCRAPES) == Asked(refused=7.0, metadata=6.0)
    assert asked_of([]) == Asked(0.0, 0.0)


def test_the_load_is_that_of_the_proposal_at_a_rate() -> None:
    command = " ".join(producer_command("host:1", 500, 20))
    for part in ("acks=all", "linger.ms=0", "batch.size=16384", "--record-size 1000"):
        assert part in command
    assert "--throughput 500" in command and "--num-records 15000" in command
    assert "--warmup-records 5000" in command


def test_the_table_has_medians_and_spreads() -> None:
    rows = [row(NO_HINTS, 1, 400.0), row(HINTS, 1, 10.0), row(HINTS, 2, 30.0), row(HINTS, 3, 20.0)]
    text = table(rows)
    assert text.splitlines()[0] == f"| | {HINTS} | {NO_HINTS} |"
    assert "| p99.9 ms | 20.00 (10.00 to 30.00) | 400 |" in text
    assert "| - |" in table([row(HINTS, 1, 10.0, metadata=None)])


def test_the_bars_are_medians_with_their_spread() -> None:
    rows = [row(HINTS, n, ms)._asdict() for n, ms in enumerate((10.0, 30.0, 20.0))]
    assert bars_of(rows) == [
        Bars(HINTS, [4.0, 9.0, 21.0, 20.0, 88.0], [4.0, 9.0, 21.0, 10.0, 88.0], [4, 9, 21, 30, 88])
    ]
