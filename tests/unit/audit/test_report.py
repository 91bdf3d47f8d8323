"""The report as page and as text: complete, self-contained, and safe for any name."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from audit.decoding.batches import Batch, split
from audit.findings.sink import FINDINGS_PER_CHECK_MAX
from audit.job import run_here
from audit.reading.inputs import read_inputs
from audit.reading.segments import walk
from audit.replay.statistics import SERIES_POINTS_MAX, Series
from audit.report.document import series
from audit.report.html import FIRST_ROWS, ROWS_MAX, as_html
from audit.report.svg import TimeAxis
from audit.report.text import as_text, moment
from audit.report.timeline import anchor, fault_lanes, leadership_lanes, time_axis
from bench.audit_log import Size, write_log
from kraftbox.documents.others import AuditReport
from protocol.batch.records import read_batch
from protocol.metadata import PartitionChangeRecord, TopicRecord
from testkit.records.metadata_logs import TOPIC_ID, LogBuilder, audited


@pytest.fixture
def result(tmp_path: Path) -> dict[str, Any]:
    builder = LogBuilder().begin()
    builder.topic()
    builder.fence(1, builder.change(isr=[2, 3], leader=2))
    builder.fence(2, builder.change(isr=[3], leader=3, eligible_leader_replicas=[2]))
    builder.fence(3, builder.change(isr=[], leader=-1, eligible_leader_replicas=[2, 3]))
    found = audited(builder.write(tmp_path))
    found["elections"][0]["topic"] = "<script>alert(1)</script>"
    return found


def test_the_page_is_well_formed_and_fetches_nothing(result: dict[str, Any]) -> None:
    page = as_html(result)
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)
    assert len(re.findall(r"<figure ", page)) == 5
    assert "<script" not in page and "&lt;script&gt;" in page
    assert not re.search(r"src=|href=\"(?!#)|url\((?!#)|@import|http", page)


def test_page_and_text_show_control_characters_of_names_as_escapes(result: dict[str, Any]) -> None:
    """A topic's name in a metadata log may be any text, and a report is read on a terminal."""
    evil = "t\x1b]52;c;cm0g\x07\x9b2J\u202e"

    def made_evil(value: Any) -> Any:
        if isinstance(value, dict):
            keep = ("kind", "cause", "severity", "check")
            return {k: v if k in keep else made_evil(v) for k, v in value.items()}
        if isinstance(value, list):
            return [made_evil(one) for one in value]
        return value + evil if isinstance(value, str) else value

    spoilt = made_evil(result)
    for text in ("\n".join(as_text(spoilt)), as_html(spoilt)):
        assert "t\\x1b]52;c;cm0g\\x07\\x9b2J\\u202e" in text
        assert text.replace("\n", "").isprintable()


def test_an_empty_result_has_a_page(tmp_path: Path) -> None:
    page = as_html(audited(LogBuilder().write(tmp_path)))
    assert "There was no election." in page and "every promise holds" in page


def test_the_text_names_what_happened(result: dict[str, Any]) -> None:
    text = "\n".join(as_text(result))
    assert "WARNING leaderless" in text and "1 -> 2 epoch 1 isr (broker-fenced)" in text
    assert text.endswith("every promise holds and nothing was lost, warnings: 1")


def test_times() -> None:
    assert moment(1_790_000_000_123) == "2026-09-21 14:13:20.123"
    assert moment(-1) == "-"
    axis = TimeAxis(1000, 1000)
    assert axis.x(1000) < axis.x(1500) < axis.x(2000) == axis.x(99_000)


def test_shards_of_an_interval_add_up() -> None:
    def numbers(interval: int, points: list[list[int]]) -> dict[str, Any]:
        return {"interval": interval, "series": points}

    added = series(
        [
            numbers(0, [[1, 3, 0, 0, 0], [5, 2, 1, 1, 0]]),
            numbers(0, [[1, 6, 0, 0, 0], [3, 5, 0, 0, 0]]),
            numbers(1, [[9, 9, 0, 0, 0]]),
        ]
    )
    assert added == [[1, 9, 0, 0, 0], [3, 8, 0, 0, 0], [5, 7, 1, 1, 0], [9, 9, 0, 0, 0]]


def test_the_fast_reader_reads_what_the_protocol_reads(tmp_path: Path) -> None:
    """The records have every shape, and the window is smaller than most batches."""
    write_log(tmp_path / "log", Size(20_000, 2, 500))
    paths = sorted((tmp_path / "log").iterdir())
    for path in paths:
        whole = list(walk(str(path)))
        small = list(walk(str(path), window_bytes=700))
        assert [f.position for f in small] == [f.position for f in whole]
        for found in small:
            assert isinstance(found, Batch) and found.crc_ok
            slow = read_batch(found.data, found.at, found.header)
            assert split(found) == [(r.offset, r.timestamp, r.key, r.value) for r in slow]


def test_a_generated_log_is_a_healthy_one(tmp_path: Path) -> None:
    write_log(tmp_path / "__cluster_metadata-0", Size(20_000, 2, 500))
    result = audited(tmp_path / "__cluster_metadata-0")
    assert result["summary"]["promises_hold"]
    assert set(result["summary"]["elections"]) == {"isr", "preferred"}


def test_elections_in_a_burst_are_all_listed(tmp_path: Path) -> None:
    """One interval has more than its share of the bound; all together are within it."""
    builder = LogBuilder().begin()
    builder.topic()
    for _ in range(4):
        builder.snapshot()
        builder.add(builder.change(isr=[1, 2, 3]))
    for leader in (2, 3, 1) * 10:
        builder.add(builder.change(leader=leader))
    log = builder.write(tmp_path)
    assert len(run_here(read_inputs([log]), elections_max=30).elections) == 30
    few = run_here(read_inputs([log]), elections_max=10)
    assert 0 < len(few.elections) <= 10
    assert few.data["elections_left_out"] == 30 - len(few.elections)
    assert few.data["summary"]["elections"] == {"isr": 20, "preferred": 10}


def test_a_long_series_is_thinned_evenly() -> None:
    made = Series()
    for at in range(100_000):
        made.isr = at % 7
        made.point(at)
    assert SERIES_POINTS_MAX / 2 <= len(made.points) <= 2 * SERIES_POINTS_MAX
    times = [point[0] for point in made.points]
    assert times == sorted(times) and times[-1] == 99_999
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) <= 2 * 100_000 / SERIES_POINTS_MAX


def test_html_report_notes_elections_that_were_left_out(result: dict[str, Any]) -> None:
    assert "lanes have gaps" not in as_html(result)
    assert "3 changes of leaders are left out" in as_html({**result, "elections_left_out": 3})


def test_findings_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    builder = LogBuilder().begin()
    builder.topic()
    change = builder.change(isr=[1])
    change.partition_id = 7
    builder.add(*[change] * (FINDINGS_PER_CHECK_MAX + 5), replays=False)
    result = audited(builder.write(tmp_path))
    assert result["summary"]["findings_by_check"]["record-orphan"] == FINDINGS_PER_CHECK_MAX
    assert result["summary"]["findings_left_out"] == {"record-orphan": 5}
    assert "  and 5 more of record-orphan, counted and not listed" in as_text(result)
    assert "5 more of record-orphan" in as_html(result)


def test_a_warning_is_not_lost_behind_a_thousand_facts(tmp_path: Path) -> None:
    """A period without leader is informational; partitions without one at the end are the
    warning."""
    partitions = FINDINGS_PER_CHECK_MAX + 5
    builder = LogBuilder().begin()
    builder.add(
        TopicRecord(name="t", topic_id=TOPIC_ID),
        *(builder.partition(partition_id=index) for index in range(partitions)),
    )
    gone = [
        PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=index, isr=[], leader=-1)
        for index in range(partitions)
    ]
    builder.add(*gone)
    builder.add(builder.change(isr=[1]))
    result = audited(builder.write(tmp_path))
    (warning,) = [f for f in result["findings"] if f["severity"] == "warning"]
    assert warning["message"] == f"{partitions} partitions have no leader where the log ends"
    assert warning["timestamp_ms"] == result["summary"]["last_timestamp_ms"]
    assert result["summary"]["findings_left_out"]["leaderless"] == 6
    page = as_html(result)
    assert f'<a href="#{anchor(0)}">' in page
    assert 'leaderless <span class="count">1</span>' in page
    assert f'leaderless <span class="count">{partitions:,}</span>' in page


def test_findings_come_first_with_what_was_before_and_after(tmp_path: Path) -> None:
    builder = LogBuilder().begin()
    builder.topic()
    offset = builder.fence(3)
    result = audited(builder.write(tmp_path))
    lines = list(as_text(result))
    at = lines.index(
        f"  ERROR fenced-in-isr at offset {offset}: fenced broker 3 is in the ISR [1, 2, 3] of t-0"
    )
    assert lines[at + 1] == '    before: {"fenced": [3]}'
    assert lines[at + 2].startswith('    after: {"leader": 1, "leader_epoch": 0')
    page = as_html(result)
    assert page.index("fenced broker 3 is in the ISR") < page.index("<figure ")
    assert "before: {&quot;fenced&quot;: [3]}" in page


def many(result: dict[str, Any], topic: str, partitions: int) -> list[list[Any]]:
    """Return rows of `leadership`: each partition of a topic gets leader 1, the last loses it."""
    first, last = result["summary"]["first_timestamp_ms"], result["summary"]["last_timestamp_ms"]
    rows = [[0, first, topic, index, -1, 1, 0, "created"] for index in range(partitions)]
    return [*rows, [9, (first + last) // 2, topic, partitions - 1, 1, -1, 1, "fenced"]]


def test_topics_of_users_have_lanes_and_internal_ones_one_each(result: dict[str, Any]) -> None:
    result["leadership"] = [
        *many(result, "__consumer_offsets", 50),
        *many(result, "__transaction_state", 3),
        *many(result, "orders", 2),
    ]
    lanes, left_out = leadership_lanes(result, time_axis(result))
    labels = [lane.label for lane in lanes]
    assert labels[-2:] == ["__consumer_offsets, all 50", "__transaction_state, all 3"]
    assert labels[:-2] == ["<script>alert(1)</script>-0", "orders-0", "orders-1", "t-0"]
    assert left_out == 0
    folded = [(span.style, span.title) for span in lanes[-2].spans]
    assert folded == [("folded", "50 led"), ("none", "1 of 50 without leader")]
    assert lanes[-2].spans[0].end_ms == lanes[-2].spans[1].begin_ms


def test_faults_of_a_client_history_are_the_first_lane(result: dict[str, Any]) -> None:
    first = result["summary"]["first_timestamp_ms"]
    faults = [
        ["kill", [1], first, first + 1500, "SIGKILL"],
        ["cut-off", [], first - 9, first - 5, ""],
    ]
    page = as_html({**result, "faults": faults})
    assert "kill of 1: 1.5 s, SIGKILL" in page and "cut-off" not in page
    assert page.index(">faults<") < page.index("broker 1 leads")
    assert ">faults<" not in as_html(result)


def test_faults_that_overlap_have_lanes_of_their_own(result: dict[str, Any]) -> None:
    first = result["summary"]["first_timestamp_ms"]
    faults = [
        ["kill", [node], first + begin, first + end, ""]
        for node, begin, end in ((1, 0, 1000), (2, 500, 2000), (3, 1000, 1500), (4, 1200, 1900))
    ]
    rows = fault_lanes({**result, "faults": faults}, time_axis(result))
    texts = [[span.text for span in lane.spans] for lane in rows]
    assert texts == [["kill 1", "kill 3"], ["kill 2"], ["kill 4"]]


def test_many_findings_are_folded_behind_the_first(result: dict[str, Any]) -> None:
    """Hundreds of them would otherwise separate the verdict from the picture."""
    one = next(f for f in result["findings"] if f["severity"] == "warning")
    result["findings"] = [one] * 40
    page = as_html(result)
    group = page[page.index('<details class="group"') : page.index("<figure ")]
    open_part, summary, folded = group.partition("<summary>35 more</summary>")
    assert summary and group.count("have no leader where") == 40
    assert open_part.count("have no leader where") == FIRST_ROWS
    assert folded.count("have no leader where") == 35


def test_the_first_findings_of_each_check_are_shown_and_drawn(result: dict[str, Any]) -> None:
    """This holds however many findings another check has before."""
    one = next(f for f in result["findings"] if f["severity"] == "warning")
    result["findings"] = [{**one, "check": "lossy-election"}] * (ROWS_MAX + 9) + [one]
    page = as_html(result)
    name = anchor(ROWS_MAX + 9)
    assert page.count(f'<a href="#{name}">') == page.count(f'id="{name}"') == 1
    assert "9 more are in the tables" in page


def test_findings_are_grouped_with_counts_and_lead_into_the_picture(
    result: dict[str, Any],
) -> None:
    result["findings"][0]["timestamp_ms"] = result["summary"]["last_timestamp_ms"]
    page = as_html(result)
    groups = re.findall(
        r'<summary><span class="(\w+)">\w+</span> ([\w-]+) <span class="count">(\d+)</span>', page
    )
    assert ("warning", "leaderless", "1") in groups
    assert sum(int(count) for _, _, count in groups) == len(result["findings"])
    leads = re.findall(r'<a href="#([^"]+)"', page)
    assert leads and all(page.count(f'id="{name}"') == 1 for name in leads)


def test_fills_that_are_used_are_there_and_red_is_for_what_is_lost(result: dict[str, Any]) -> None:
    page = as_html(result)
    used = set(re.findall(r"fill: url\(#([\w-]+)\)", page))
    assert used and all(f'<pattern id="{name}"' in page for name in used)
    reds = {
        line
        for line in re.findall(r"\.([\w-]+) \{[^}]*#c62f2f", page)
        if not line.startswith(("kind-unclean", "l-none"))
    }
    assert reds == set()


def test_a_printer_gets_a_plain_fill_for_every_pattern(result: dict[str, Any]) -> None:
    """Chromium took minutes to print the patterns of a page with 300 partitions."""
    page = as_html(result)
    screen = set(re.findall(r"\.(\w+) \{ fill: url\(", page))
    paper = page.rpartition("@media print")[2].partition("</style>")[0]
    assert screen and set(re.findall(r"\.(\w+) \{ fill: #", paper)) == screen
    assert page.rindex("@media print") > page.rindex("fill: url(#")


def test_the_published_schema_is_that_of_a_report(tmp_path: Path) -> None:
    """`kraftbox schema audit-report` has all keys and no others, also for an empty history."""
    busy = LogBuilder().begin()
    busy.topic()
    busy.fence(1, busy.change(isr=[2, 3], leader=2))
    for name, builder in (("busy", busy), ("empty", LogBuilder())):
        report = run_here(read_inputs([builder.write(tmp_path / name)])).data
        AuditReport.model_validate(json.loads(json.dumps(report)))
        assert set(report) == set(AuditReport.model_fields)
