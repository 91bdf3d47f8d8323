"""The pure parts of `bench.leader_moves` and its picture: parsed tool output, counts, the table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from bench.leader_moves import (
    CASES,
    CONSUMER,
    HINTS,
    KAFKA,
    LIBRDKAFKA,
    MOVES,
    NO_HINTS,
    Asked,
    Clients,
    Row,
    Times,
    _plain,
    asked_of,
    rotated,
    table,
)
from bench.pictures import BINS, histograms_of
from bench.report import names_among

NOTHING = Times({}, 0.0)

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


def row(
    name: str, number: int, slow_ms: float, metadata: float | None = 6.0, case: str = MOVES
) -> Row:
    """Return a row of 999 sends of a millisecond, and a slow one."""
    sends = Times({"10": 999, str(int(slow_ms * 10)): 1}, slow_ms)
    reads = Times({"400": 10}, 40.0) if case == CONSUMER else NOTHING
    return Row(case, name, number, 500, 0, 7.0, metadata, sends, reads, slow_ms, slow_ms)


def test_percentiles_and_limits_of_counts() -> None:
    times = Times.of({"counts": {"10": 90, "200": 9, "201": 1}, "longest_us": 20_050})
    assert [times.percentile(share) for share in (0.5, 0.9, 0.99, 0.999)] == [1.0, 1.0, 20.0, 20.1]
    assert (times.number, times.above(20.0), times.longest_ms) == (100, 1, 20.05)
    assert (NOTHING.percentile(0.5), NOTHING.above(0.0)) == (0.0, 0)


def test_every_partition_is_led_by_its_second_replica_after_a_rotation() -> None:
    begun = {0: (1, 2, 3), 1: (3, 1, 2)}
    assert rotated(begun) == {0: (2, 3, 1), 1: (1, 2, 3)}
    assert rotated(rotated(rotated(begun))) == begun


def test_refused_produces_and_metadata_requests_of_all_brokers_are_counted() -> None:
    assert asked_of(SCRAPES) == Asked(refused=7.0, metadata=6.0)
    assert asked_of([]) == Asked(0.0, 0.0)


def test_the_load_is_that_of_the_proposal_at_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.leader_moves.kafka_class_path", lambda *_: "jars")
    clients = Clients.__new__(Clients)
    clients._classes = Path("classes")
    command = clients.command(CONSUMER, "host:1", 500, 20)
    assert command[0] == "java" and "Moves" in command
    for part in ("bootstrap=host:1", "size=1000", "rate=500", "warmup=10", "seconds=20"):
        assert part in command
    assert "consume=true" in command
    assert "bench.librdkafka_moves" in clients.command(LIBRDKAFKA, "host:1", 500, 20)


def test_the_table_has_medians_and_spreads() -> None:
    rows = [row(NO_HINTS, 1, 400.0), row(HINTS, 1, 10.0), row(HINTS, 2, 30.0), row(HINTS, 3, 20.0)]
    text = table([*rows, row(KAFKA, 1, 90.0, case=CONSUMER)])
    assert text.splitlines()[0] == f"| | {HINTS} | {NO_HINTS} | {KAFKA} |"
    assert "| moves: longest send ms | 20.00 (10.00 to 30.00) | 400 | - |" in text
    assert "| moves: sends above 80 ms | 0.00 | 1.00 | - |" in text
    assert "| consumer: longest until read ms | - | - | 40.00 |" in text
    assert "| - |" in table([row(HINTS, 1, 10.0, metadata=None)])


def test_cases_are_known() -> None:
    assert names_among(CASES)("moves,killed") == ["moves", "killed"]
    with pytest.raises(argparse.ArgumentTypeError, match="'moved'"):
        names_among(CASES)("moves,moved")


def test_the_histogram_adds_up_all_rounds_of_a_case() -> None:
    rows = [row(HINTS, n, ms) for n, ms in enumerate((10.0, 30.0, 30.0))]
    rows.append(row(HINTS, 1, 5_000.0, case=CONSUMER))
    kept = json.loads(json.dumps([_plain(one)._asdict() for one in rows]))
    (one,) = histograms_of(kept)
    assert one.name == HINTS and sum(one.counts) == 3000
    at = {round(bound, 1): count for bound, count in zip(BINS, one.counts, strict=True) if count}
    assert list(at.values()) == [2997, 1, 2]
    assert list(at)[:2] == [1.0, 10.0]
