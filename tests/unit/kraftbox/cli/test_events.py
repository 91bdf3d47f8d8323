"""`kraftbox events`: sentences, filters, times, and the merge of journal and metadata log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from audit.history import LogEvent
from audit.reading.journal import Deed
from audit.state.elections import LOSSY, ElectionKind
from controller.elections.cause import Cause
from kraftbox.cli import election_words
from kraftbox.cli.events import TimeLine
from kraftbox.cli.happenings import Filter, of_deed, of_event
from kraftbox.cli.main import main as cli
from kraftbox.cli.moments import clock, parse_moment
from kraftbox.launcher.journal import NAME
from testkit.records.metadata_logs import START_MS, LogBuilder

NOW = datetime(2026, 11, 28, 12, 3, 7, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("90s", NOW_MS - 90_000),
        ("1.5m", NOW_MS - 90_000),
        ("12:03", NOW_MS - 7_000),
        ("12:03:06.5", NOW_MS - 500),
        ("12:04", NOW_MS - 86_400_000 + 53_000),
        ("2026-11-28T12:03:00", NOW_MS - 7_000),
        ("2026-11-28T13:03:00+01:00", NOW_MS - 7_000),
        (str(NOW_MS), NOW_MS),
    ],
)
def test_time_of_an_option_is_read_in_utc(text: str, expected_ms: int) -> None:
    assert parse_moment(text, NOW) == expected_ms


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "5", "9" * 30 + "d", "12:60"])
def test_time_of_an_option_names_its_forms(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as 12:03, "):
        parse_moment(text, NOW)


def test_clock_has_milliseconds() -> None:
    assert clock(NOW_MS + 5) == "2026-11-28 12:03:07.005"


def test_words_cover_every_kind_and_cause() -> None:
    assert set(election_words.HOW) == {str(kind) for kind in ElectionKind}
    assert {str(kind) for kind in LOSSY} == election_words.MAY_LOSE
    assert {cause.value for cause in Cause} <= set(election_words._WHEN)
    assert election_words.elected("isr", "connection-lost", 2, 3) == (
        "from the ISR when the connection of broker 2 was lost"
    )
    assert election_words.elected("new", "newer", None, 3) == "as new (cause: newer)"


def said(event: str, node: int | None = None, **facts: Any) -> str:
    return of_deed(Deed(0, event, node, facts)).text


def test_journal_entries_are_sentences() -> None:
    assert said("kill", 2, by="kraftbox node kill 2") == "node 2 killed (kraftbox node kill 2)"
    assert said("exited", 2, code=-9, expected=True) == "node 2 ended: SIGKILL"
    assert said("exited", 2, code=-6, expected=False) == (
        "node 2 ended: SIGABRT, unexpectedly: see kraftbox logs"
    )
    assert said("cluster-stopping", by="kraftbox down") == "the cluster is stopping (kraftbox down)"
    rule = [1, 0, 1.0, 0.0, 0.0, 0, 0.0, 0.0]
    slow = [2, 3, 0.3, 200.0, 20.0, 0, 0.0, 0.0]
    assert said("links", rules=[rule, slow]) == (
        "link 1 -> clients cut; link 2 -> 3 30% lost, 200 +- 20 ms"
    )
    assert said("links", rules=[]) == "all links are whole"
    assert said("something-newer") == "something-newer"


def happening(
    event: str, topic: str | None = None, partition: int | None = None, /, **facts: Any
) -> Any:
    return of_event(LogEvent(3, START_MS, event, facts, topic, partition))


ELECTION = {"from_leader": 1, "to_leader": 2, "leader_epoch": 4, "passed_over": [3]}


def test_records_are_sentences() -> None:
    lossy = happening("election", "t", 0, kind="unclean", cause="operator-request", **ELECTION)
    assert lossy.text == (
        "t-0: broker 2 leads (leader epoch 4), elected from outside of ISR and ELR at an "
        "operator's request; records may be lost; broker 3 passed over: too little local log"
    )
    assert lossy.nodes == (1, 2)
    isr = happening("isr", "t", 0, before=[1, 2], after=[2, 3])
    assert isr.text == "t-0: ISR 2,3 (1 left, 3 joined)"
    lost = happening("leader", "t", 0, before=2, leader=-1, leader_epoch=5, why="lost")
    assert lost.text == "t-0: no leader (leader epoch 5); broker 2 led it"


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("topic", "retention.ms", "topic 1: retention.ms = 7 (before: 5)"),
        ("broker", "ssl.key.password", "broker 1: ssl.key.password = (hidden) (before: (hidden))"),
        (
            "broker",
            "of.later",
            "broker 1: of.later = (hidden) (before: (hidden))",
        ),
    ],
)
def test_secret_settings_are_hidden(kind: str, name: str, expected: str) -> None:
    facts = {"kind": kind, "resource": "1", "name": name, "before": "5", "after": "7"}
    assert happening("setting", **facts).text == expected


def test_filter_of_a_partition_keeps_the_causes() -> None:
    wanted = Filter(partition="t-0")
    isr = happening("isr", "t", 0, before=[1, 2], after=[2])
    other = happening("isr", "t", 1, before=[1, 2], after=[2])
    setting = {"kind": "topic", "name": "retention.ms", "before": None, "after": "5"}
    kill, kill_other = of_deed(Deed(0, "kill", 1, {})), of_deed(Deed(0, "kill", 9, {}))
    everything = [
        (isr, True),
        (other, False),
        (happening("setting", resource="t", **setting), True),
        (happening("setting", resource="u", **setting), False),
        (kill, True),
        (kill_other, False),
        (of_deed(Deed(0, "cluster-stopped", None, {})), True),
        (happening("quorum", leader=101, epoch=2), False),
    ]
    for one, kept in everything:
        assert wanted.matches(one, {1, 2}) is kept, one.text


ELECTED = "t-0: broker 2 leads (leader epoch 1), elected from the ISR when broker 1 was fenced"


@pytest.fixture
def directory(tmp_path: Path) -> tuple[Path, LogBuilder]:
    """Write a log in which broker 1 is fenced, and a journal with its kill just before that."""
    builder = LogBuilder().begin()
    builder.topic()
    builder.fence(1, builder.change(isr=[2, 3], leader=2))
    builder.write(tmp_path)
    entries = [
        {"time_ms": builder.now_ms - 1, "event": "kill", "node": 1, "by": "kraftbox chaos"},
        {"time_ms": builder.now_ms + 5_000, "event": "ready", "node": 1},
    ]
    (tmp_path / NAME).write_text("".join(json.dumps(one) + "\n" for one in entries))
    return tmp_path, builder


def test_events_merge_actions_and_records_by_time(
    directory: tuple[Path, LogBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, builder = directory
    since = str(builder.now_ms - 1)
    assert cli(["events", "--dir", str(folder), "--partition", "t-0", "--since", since]) == 0
    at = clock(builder.now_ms)
    assert capsys.readouterr().out.splitlines() == [
        f"{clock(builder.now_ms - 1)}  node 1 killed (kraftbox chaos)",
        f"{at}  {ELECTED}",
        f"{at}  t-0: ISR 2,3 (1 left)",
        f"{at}  broker 1 fenced: its connection or its session was lost",
        f"{clock(builder.now_ms + 5_000)}  node 1 is ready",
    ]
    assert cli(["events", "--dir", str(folder), "--node", "1", "--until", since, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["kind"] == "kill" and lines[-1]["nodes"] == [1]
    assert all(1 in line["nodes"] for line in lines)


def test_time_line_goes_on_with_both_files(directory: tuple[Path, LogBuilder]) -> None:
    folder, builder = directory
    line = TimeLine(folder, Filter())
    assert len(line.read()) > 5
    assert line.read_new() == []
    builder.add(builder.change(isr=[2]))
    (segment,) = folder.rglob(f"{0:020d}.log")
    segment.write_bytes(b"".join(builder.batches))
    with open(folder / NAME, "a") as file:
        file.write(json.dumps({"time_ms": 1, "event": "kill", "node": 3}) + "\n{half")
    assert [one.text for one in line.read_new()] == ["node 3 killed", "t-0: ISR 2 (3 left)"]


def test_directory_without_cluster_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["events", "--dir", str(tmp_path / "x")]) == 1
    assert capsys.readouterr().err == f"kraftbox: no cluster in {tmp_path / 'x'}\n"
    assert cli(["events", "--dir", str(tmp_path)]) == 1
    assert "no __cluster_metadata-0 directory at or below" in capsys.readouterr().err
