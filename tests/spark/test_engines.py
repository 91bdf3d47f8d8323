"""An audit in one process and by Spark: the same document, to the byte, and the same page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit import job
from audit.planning import intervals
from audit.reading.inputs import read_inputs
from audit.report.html import as_html
from audit.report.text import as_text
from kraftbox.chaos.history import Fault
from testkit.records.incident_logs import write_incident
from testkit.records.metadata_logs import START_MS, TOPIC_ID, LogBuilder
from testkit.records.replicas import Brokers, batch, send, value

WIDTH = 2
"""Processors of the fixture's session."""


def lives(builder: LogBuilder, turns: int = 3) -> LogBuilder:
    """Let brokers leave and return, so that their leaderships move."""
    change = builder.change
    for _ in range(turns):
        builder.fence(1, change(isr=[2, 3], leader=2))
        builder.unfence(1, change(isr=[2, 3, 1]))
        builder.add(change(leader=1))
    return builder


def begun() -> LogBuilder:
    builder = LogBuilder().begin()
    builder.topic()
    return lives(builder)


def kafka(folder: Path, story: Path) -> list[Path]:
    """Return the logs of three controllers of Apache Kafka 4.3.1."""
    return [story]


def with_snapshots(folder: Path, story: Path) -> list[Path]:
    builder = begun()
    for _ in range(4):
        builder.snapshot()
        lives(builder)
    return [builder.write(folder)]


def broken_promises(folder: Path, story: Path) -> list[Path]:
    """Write more broken promises of one kind than a task lists."""
    builder = begun()
    for _ in range(1_050):
        builder.fence(3)
        builder.add(builder.fenced_record(3, fenced=-1), replays=False)
    return [builder.write(folder)]


def torn_and_flipped(folder: Path, story: Path) -> list[Path]:
    log = begun().write(folder)
    segment = log / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data[:-7])
    return [log]


def copies_that_differ(folder: Path, story: Path) -> list[Path]:
    """Write two nodes' logs that are equal up to a batch that differs."""
    other = begun()
    first = begun()
    first.add(first.change(isr=[1, 2]))
    other.add(other.change(isr=[1, 3]), after_ms=5)
    lives(first)
    return [first.write(folder, 101), other.write(folder, 102)]


def clients_and_replicas(folder: Path, story: Path) -> list[Path]:
    """Write broken promises to clients that lived through two faults."""
    begun().write(folder)
    brokers = Brokers(folder, TOPIC_ID)
    brokers.logs[3][4] = batch(4, 0, value(77))
    brokers.sends.append(send(5, 5))
    brokers.faults = [
        Fault("kill-leader", [node], (START_MS + node * 1000) * 1000, (START_MS + 9000) * 1000)
        for node in (2, 1)
    ]
    brokers.write()
    return [folder]


def a_bad_day(folder: Path, story: Path) -> list[Path]:
    """Write unclean elections, ELR, a new quorum leader, and partitions without a leader."""
    write_incident(folder, 30)
    return [folder]


def nothing_yet(folder: Path, story: Path) -> list[Path]:
    """Write a cluster without a topic."""
    return [LogBuilder().begin().write(folder)]


def cut_at_a_snapshot(folder: Path, story: Path) -> list[Path]:
    """Write a log whose beginning before a snapshot is deleted, as after a week."""
    builder = begun()
    builder.snapshot()
    before, offset = len(builder.batches), builder.offset
    lives(builder)
    log = builder.write(folder, batches=builder.batches[before:])
    (log / f"{0:020d}.log").rename(log / f"{offset:020d}.log")
    return [log]


@pytest.mark.parametrize(
    ("written", "tables"),
    [
        (kafka, True),
        (with_snapshots, True),
        (with_snapshots, False),
        (broken_promises, False),
        (torn_and_flipped, False),
        (copies_that_differ, False),
        (clients_and_replicas, False),
        (a_bad_day, False),
        (nothing_yet, False),
        (cut_at_a_snapshot, False),
    ],
)
def test_one_document(
    spark: Any,
    story: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: Callable[[Path, Path], list[Path]],
    tables: bool,
) -> None:
    monkeypatch.setattr(intervals, "SHARD_BYTES_MIN", 64)  # split the log into shards
    paths = written(tmp_path, story)
    inputs = read_inputs(paths, history=tmp_path.glob("*.kbxh"))
    by_spark = job.run(inputs, spark, tables=tmp_path / "tables" if tables else None)
    here = job.run_here(inputs, width=WIDTH)
    assert json.dumps(here.data) == json.dumps(by_spark.data)
    assert as_html(here.data) == as_html(by_spark.data)
    assert list(as_text(here.data)) == list(as_text(by_spark.data))
    if written is cut_at_a_snapshot:
        assert here.data["summary"]["start_offset"] > 0
    if written is clients_and_replicas:
        assert [nodes for _, nodes, *_ in here.data["faults"]] == [[1], [2]]
        assert {one["check"] for one in here.data["findings"]} >= {
            "acknowledged-lost",
            "replicas-equal",
        }
