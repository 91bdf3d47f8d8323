"""The history of a metadata log: events in order, and those of records that are appended later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.history import LogEvent, LogHistory
from protocol.metadata import ConfigRecord
from testkit.records.metadata_logs import LogBuilder, audited


def events(log: Path) -> list[LogEvent]:
    found: list[LogEvent] = []
    LogHistory([log], found.append).read()
    return found


def shown(found: list[LogEvent], *kinds: str) -> list[tuple[Any, ...]]:
    return [(one.kind, dict(one.facts)) for one in found if one.kind in kinds]


@pytest.fixture
def builder() -> LogBuilder:
    builder = LogBuilder().begin()
    builder.topic()
    builder.fence(1, builder.change(isr=[2, 3], leader=2))
    return builder


def test_history_has_elections_sets_and_brokers_in_order(
    builder: LogBuilder, tmp_path: Path
) -> None:
    builder.fence(3, builder.change(isr=[2], eligible_leader_replicas=[3]))
    found = events(builder.write(tmp_path))
    assert [one.offset for one in found] == sorted(one.offset for one in found)
    election = {"kind": "isr", "cause": "broker-fenced", "from_leader": 1, "to_leader": 2}
    assert shown(found, "election", "isr", "elr") == [
        ("election", {**election, "leader_epoch": 1, "passed_over": []}),
        ("isr", {"before": [1, 2, 3], "after": [2, 3]}),
        ("isr", {"before": [2, 3], "after": [2]}),
        ("elr", {"before": [], "after": [3]}),
    ]
    fenced = [one for one in found if one.kind == "broker" and one.facts["event"] == "lost"]
    assert [one.facts["broker"] for one in fenced] == [1, 3]
    (created,) = [one for one in found if one.kind == "leader"]
    assert (created.topic, created.partition, created.facts["why"]) == ("t", 0, "created")


def test_history_has_the_elections_of_the_audit(builder: LogBuilder, tmp_path: Path) -> None:
    """Both replay the same log: kinds and causes must not differ."""
    builder.snapshot()
    builder.unfence(1, builder.change(isr=[2, 3, 1]))
    builder.add(builder.change(leader=1))
    log = builder.write(tmp_path)
    elections = [one for one in events(log) if one.kind == "election"]
    assert [{**one.facts, "offset": one.offset} for one in elections] == [
        {
            **{name: one[name] for name in ("offset", "kind", "cause", "from_leader")},
            **{name: one[name] for name in ("to_leader", "leader_epoch")},
            "passed_over": list(one["passed_over"]),
        }
        for one in audited(log)["elections"]
    ]
    assert len(elections) == 2


def test_appended_records_are_passed_on_once(builder: LogBuilder, tmp_path: Path) -> None:
    log = builder.write(tmp_path)
    found: list[LogEvent] = []
    history = LogHistory([tmp_path], found.append)
    history.read()
    history.read_new()
    count = len(found)
    builder.add(builder.change(isr=[2]))
    (log / f"{0:020d}.log").write_bytes(b"".join(builder.batches))
    history.read_new()
    history.read_new()
    assert shown(found[count:], "isr") == [("isr", {"before": [2, 3], "after": [2]})]
    assert len(found) == count + 1


def test_batch_that_is_being_written_is_left_for_later(builder: LogBuilder, tmp_path: Path) -> None:
    builder.add(builder.change(isr=[2]))
    log = builder.write(tmp_path)
    segment = log / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-5])
    found: list[LogEvent] = []
    history = LogHistory([log], found.append)
    history.read()
    assert len(shown(found, "isr")) == 1
    segment.write_bytes(whole)
    history.read_new()
    assert shown(found, "isr")[1:] == [("isr", {"before": [2, 3], "after": [2]})]


def test_settings_are_events(builder: LogBuilder, tmp_path: Path) -> None:
    record = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5")
    builder.add(record)
    (*_, last) = shown(events(builder.write(tmp_path)), "setting")
    assert last[1] == {
        **{"kind": "topic", "resource": "t", "name": "retention.ms"},
        **{"before": None, "after": "5"},
    }
