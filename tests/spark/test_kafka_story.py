"""The recorded life of a Kafka 4.3.1 cluster: elections, findings and records compared with
Kafka's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audit.job import Result
from tests.spark.story import check_elections, check_findings, check_rows

FIRST = "node-101"


def test_every_election_is_found_with_its_kind(
    audited_story: tuple[Result, Path], truth: dict[str, Any]
) -> None:
    result = audited_story[0].data
    check_elections(result, truth)
    kinds = set(result["summary"]["elections"])
    assert kinds == {"isr", "preferred", "elr", "last-known-leader", "unclean"}


def test_nothing_is_found_that_did_not_happen(
    audited_story: tuple[Result, Path], truth: dict[str, Any]
) -> None:
    check_findings(audited_story[0].data, truth)


def test_why_leaders_changed(audited_story: tuple[Result, Path]) -> None:
    """The cause, which a metadata record lacks, follows from the events of brokers."""
    causes = {(e["kind"], e["cause"]) for e in audited_story[0].elections}
    assert causes == {
        ("isr", "reassignment"),
        ("isr", "controlled-shutdown"),
        ("isr", "broker-fenced"),
        ("elr", "broker-unfenced"),
        ("last-known-leader", "broker-unfenced"),
        ("preferred", "preferred"),
        ("unclean", "unknown"),
    }


def test_brokers_and_reassignments(audited_story: tuple[Result, Path]) -> None:
    result = audited_story[0].data
    assert [b["id"] for b in result["brokers"]] == [1, 2, 3]
    events = {e["event"] for b in result["brokers"] for e in b["events"]}
    assert {"registered", "unfenced", "lost", "stopped", "controlled-shutdown"} <= events
    steps = [one["step"] for one in result["reassignments"]]
    assert steps[0] == "began" and steps[-1] == "ended"


def test_every_record_is_what_kafkas_tool_reads(
    spark: Any, story: Path, truth: dict[str, Any]
) -> None:
    frame = (
        spark.read.format("kraftlog")
        .option("snapshots", "true")
        .load(str(story / FIRST))
        .orderBy("file", "offset")
    )
    assert check_rows(frame.collect(), truth) > 200


def test_the_tables(spark: Any, audited_story: tuple[Result, Path]) -> None:
    result, tables = audited_story
    history = spark.read.parquet(str(tables / "partition_history"))
    elected = history.where("election_kind is not null").count()
    assert elected == sum(result.data["summary"]["elections"].values())
    leadership = spark.read.parquet(str(tables / "leadership"))
    open_ended = leadership.where("until_offset is null")
    assert open_ended.count() == result.data["summary"]["partitions"]
    overlapping = leadership.where("until_offset <= from_offset")
    assert overlapping.count() == 0
    for name in ("elections", "brokers", "quorum", "settings", "reassignments", "findings"):
        assert spark.read.parquet(str(tables / name)).count() > 0, name
