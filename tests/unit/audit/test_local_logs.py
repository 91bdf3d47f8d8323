"""Local logs in the history, and replicas passed over for them in elections (KIP-1303)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit.planning.intervals import plan_intervals
from audit.reading.logs import read_listing
from audit.report.html import as_html
from audit.report.text import as_text
from audit.spark.kraftaudit import KraftAuditReader, WorkPartition, encode_plan
from audit.state.local_logs import SIZE_BYTES, SPAN_MS
from audit.tasks.work import WorkOptions
from metalog.image.local_log import LocalLogStats, LocalLogTable
from metalog.image.snapshot import local_log_entries
from protocol.metadata import ConfigRecord, PartitionChangeRecord, PartitionRecord
from testkit.records.metadata_logs import START_MS, LogBuilder, audited, broken

ENOUGH, SHORT = LocalLogStats(START_MS, 5_000), LocalLogStats(START_MS, 10)


def threshold(value: str, name: str = SIZE_BYTES, topic: str | None = "t") -> ConfigRecord:
    kind, resource = (4, "") if topic is None else (2, topic)
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


class Story:
    """Topic t with replicas 2, 1, 3, whose stats come with the change that elects."""

    def __init__(self, *settings: ConfigRecord) -> None:
        self.builder = LogBuilder().begin()
        if settings:
            self.builder.add(*settings)
        self.builder.topic((2, 1, 3), leader=3)

    def entries(self, kind: Any, known: dict[int, LocalLogStats]) -> list[Any]:
        table = LocalLogTable.of(
            ((one, self.builder.epoch_of(one)), *stats, START_MS + 7)
            for one, stats in known.items()
        )
        return local_log_entries(kind, table)

    def change(self, known: dict[int, LocalLogStats] | None, **fields: Any) -> Any:
        told = None if known is None else self.entries(PartitionChangeRecord, known)
        return self.builder.change(local_logs=told, **fields)

    def report(self, known: dict[int, LocalLogStats]) -> None:
        self.builder.add(self.change(known, isr=[2, 1, 3]))

    def result(self, folder: Path) -> dict[str, Any]:
        return audited(self.builder.write(folder))

    def passed(self, folder: Path) -> list[list[int]]:
        result = self.result(folder)
        assert set(broken(result)) <= {"lossy-election"}
        return [list(one["passed_over"]) for one in result["elections"]]


def elect(story: Story, leader: int = 1, isr: tuple[int, ...] = (2, 1)) -> None:
    """Fence leader 3 and elect another one."""
    story.builder.fence(3, story.change(None, isr=list(isr), leader=leader))


KNOWN = {1: ENOUGH, 2: SHORT, 3: ENOUGH}


@pytest.mark.parametrize(
    ("settings", "known", "passed"),
    [
        ([threshold("100")], KNOWN, [2]),
        ([threshold("100", topic=None)], KNOWN, [2]),
        ([threshold("5", topic=None), threshold("100")], KNOWN, [2]),
        ([threshold("100", topic=None), threshold("-1")], KNOWN, []),
        ([threshold("999999", SPAN_MS)], {1: LocalLogStats(0, 1), 2: ENOUGH}, [2]),
        ([threshold("1", SPAN_MS)], KNOWN, []),
        ([], KNOWN, []),
        ([threshold("0")], KNOWN, []),
        ([threshold("100")], {1: ENOUGH}, []),
        ([threshold("100")], {2: LocalLogStats(-1, 0)}, [2]),
        ([threshold("100")], {1: SHORT, 2: SHORT, 3: ENOUGH}, []),
    ],
    ids=[
        *("topic", "cluster", "topic-over-cluster", "off-for-the-topic", "by-time", "old-enough"),
        *("off", "zero-is-off", "unknown", "empty", "the-leader-is-short-too"),
    ],
)
def test_election_lists_members_passed_over_for_their_local_logs(
    tmp_path: Path, settings: list[ConfigRecord], known: dict[int, LocalLogStats], passed: list[int]
) -> None:
    story = Story(*settings)
    story.report(known)
    elect(story)
    assert story.passed(tmp_path) == [passed]


def test_passed_over_excludes_replicas_that_could_not_lead(tmp_path: Path) -> None:
    """A replica is outside the ISR, fenced (also in the same batch), or shutting down."""
    story = Story(threshold("100"))
    story.report(KNOWN)
    elect(story, isr=(1,))
    assert story.passed(tmp_path / "isr") == [[]]

    story = Story(threshold("100"))
    story.report(KNOWN)
    stopping = story.builder.fenced_record(2, 0)
    stopping.in_controlled_shutdown = 1
    story.builder.add(stopping, story.change(None, isr=[2, 1, 3], leader=1))
    assert story.passed(tmp_path / "stopping") == [[]]

    story = Story(threshold("100"))
    story.report(KNOWN)
    both = (story.builder.fenced_record(2), story.builder.fenced_record(3))
    story.builder.add(story.change(None, isr=[2, 1], leader=1), *both)
    assert [list(e["passed_over"]) for e in story.result(tmp_path)["elections"]] == [[]]


def test_passed_over_ignores_stats_of_an_earlier_broker_epoch(tmp_path: Path) -> None:
    story = Story(threshold("100"))
    story.report(KNOWN)
    story.builder.fence(2, story.change(None, isr=[1, 3]))
    story.builder.register(2)
    story.builder.unfence(2)
    story.builder.add(story.change(None, isr=[2, 1, 3]))
    elect(story)
    assert story.passed(tmp_path) == [[]]


def test_rewritten_partition_record_replaces_the_local_logs(tmp_path: Path) -> None:
    story = Story(threshold("100"))
    story.report(KNOWN)
    told = story.entries(PartitionRecord, {2: ENOUGH, 3: SHORT})
    anew = story.builder.partition((2, 1, 3), leader=3, partition_epoch=2, local_logs=told)
    story.builder.add(anew)
    elect(story)
    assert [list(e["passed_over"]) for e in story.result(tmp_path)["elections"]] == [[]]


def test_a_preferred_election_passes_over_too(tmp_path: Path) -> None:
    story = Story(threshold("100"))
    story.report(KNOWN)
    story.builder.add(story.change(None, leader=1, election_kind=2, election_cause="preferred"))
    story.builder.add(story.change(None, leader=2, election_kind=7, election_cause="operator"))
    assert story.passed(tmp_path) == [[2], []]


def test_local_logs_are_kept_across_a_snapshot(tmp_path: Path) -> None:
    """The log behind a snapshot begins with its content, and the snapshot equals the replay."""
    story = Story(threshold("100"))
    story.report(KNOWN)
    story.builder.snapshot()
    elect(story)
    assert story.passed(tmp_path) == [[2]]


def rows(story: Story, folder: Path) -> list[dict[str, Any]]:
    """Return rows in the format of the Spark job's task."""
    plan = plan_intervals(read_listing(story.builder.write(folder)))
    reader = KraftAuditReader({"plan": encode_plan(plan, WorkOptions(history=True))})
    batches = (batch for one in plan for batch in reader.read(WorkPartition(one)))
    found = [row for batch in batches for row in batch.to_pylist()]
    return [row for row in found if row["kind"] == "history"]


def test_history_rows_contain_the_local_logs_known_then(tmp_path: Path) -> None:
    story = Story(threshold("100"))
    story.report({1: LocalLogStats(-1, 200), 2: SHORT, 3: LocalLogStats(START_MS, -1)})
    elect(story)
    created, reported, elected = rows(story, tmp_path)
    assert (created["local_logs"], created["passed_over"]) == ([], [])
    assert (reported["election_reason"], reported["election_kind"]) == (None, None)
    assert (elected["election_kind"], elected["election_reason"]) == ("isr", "local-log")
    assert elected["passed_over"] == [2]
    span = elected["timestamp_ms"] - START_MS
    *known, of_the_old_leader = elected["local_logs"]
    assert (of_the_old_leader["size_bytes"], of_the_old_leader["enough"]) == (None, True)
    assert known == [
        {
            "broker": 1,
            "broker_epoch": story.builder.epoch_of(1),
            "span_ms": None,
            "size_bytes": 200,
            "reported_ms": START_MS + 7,
            "enough": True,
            "verdict": "is large enough",
        },
        {
            "broker": 2,
            "broker_epoch": story.builder.epoch_of(2),
            "span_ms": span,
            "size_bytes": 10,
            "reported_ms": START_MS + 7,
            "enough": False,
            "verdict": "is too small",
        },
    ]


def test_reports_name_the_members_passed_over(tmp_path: Path) -> None:
    story = Story(threshold("100"))
    story.report(KNOWN)
    elect(story)
    result = story.result(tmp_path)
    said = "broker-fenced; 2 passed over, local log"
    assert said in as_html(result)
    assert json.loads(json.dumps(result))["elections"][0]["passed_over"] == [2]
    assert any(said in line for line in as_text(result))
