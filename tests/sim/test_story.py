"""Stories, pages and views of a run for people, which do not change the run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pytest

from audit.report.svg import Lane, TimeAxis
from broker.replication.partition import high_watermark
from broker.replication.partition.effects import NOTHING, Effects
from broker.replication.partition.high_watermark import (
    high_watermark_moved,
)
from broker.replication.partition.partition import Partition
from protocol.api_keys import ApiKey
from simulation import command
from simulation.command import Options
from simulation.event import Event
from simulation.judges.client_history import Saw
from simulation.messages import Messages
from simulation.page import ExactAxis, arrows, fault_lanes, page, rows_of
from simulation.schedule import Schedule, draw_schedule
from simulation.shapes.shape import (
    BadShape,
    ClientShape,
    DiskShape,
    LinkShape,
    NodeShape,
    Shape,
    TopicShape,
)
from simulation.story import Answered, Entry, FaultSpan, Story, grouped
from simulation.swarm import run
from simulation.ticker import Ticker
from simulation.views import Moment

pytestmark = pytest.mark.sim

SEED = 1


def three_brokers(*events: Event, quiet_from_ms: int) -> Schedule:
    """Return a fully specified schedule, which stays the same whatever seeds draw."""
    roles = [("controller",)] * 3 + [("broker",)] * 3
    shape = Shape(
        nodes=tuple(NodeShape(number, one) for number, one in enumerate(roles, 1)),
        topics=(TopicShape("t0", 1, 3, {"min.insync.replicas": "2"}),),
        settings={
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "200",
            "controller.quorum.fetch.timeout.ms": "1000",
            "controller.quorum.election.timeout.ms": "500",
        },
        link=LinkShape(),
        disk=DiskShape(),
        clients=(ClientShape("acks all", "acks all", 60.0),),
        faults={},
    )
    return Schedule(SEED, shape, events, quiet_from_ms)


KILLED = three_brokers(
    Event("e0", 500, "kill", "leader of t0-0", {"for_ms": 6000}),
    Event("e1", 600, "pause", "active controller", {"for_ms": 1500}),
    quiet_from_ms=7000,
)
CALM = three_brokers(quiet_from_ms=500)


def _shows_all_it_has(partition: Partition) -> Effects:
    log = partition.log
    if log.log_end_offset <= log.high_watermark:
        return NOTHING
    log.update_high_watermark(log.log_end_offset)
    return high_watermark_moved(partition, log.log_end_offset)


@contextmanager
def shows_all_it_has() -> Iterator[None]:
    """Let a leader not wait for its followers."""
    with mock.patch.object(high_watermark, "maybe_advance_high_watermark", _shows_all_it_has):
        yield


# --- the story of a run ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed() -> Story:
    outcome, story = command.told(KILLED)
    assert outcome.broken is None, outcome.broken
    assert outcome.trace == run(KILLED).trace, "looking on has changed the run"
    return story


def texts(story: Story, kind: str, lane: str = "") -> list[str]:
    return [one.text for one in story.tell() if one.kind == kind and one.lane.startswith(lane)]


def victim_of(story: Story) -> int:
    """Return the broker that is killed."""
    found = re.search(r"node-(\d)", texts(story, "fault")[0])
    assert found is not None
    return int(found[1])


def test_story_has_the_fault_with_target_and_effect(killed: Story) -> None:
    told = texts(killed, "fault")
    assert re.match(r"e0: kill on leader of t0-0, node-[456], for 6 s$", told[0])
    assert "e0: over" in told


def test_story_has_ends_and_boots_of_the_victim(killed: Story) -> None:
    victim = f"node-{victim_of(killed)}"
    assert texts(killed, "life", victim) == [
        "life 1 boots",
        "life 1 is ready",
        "life 1 ends: kill",
        "life 2 boots",
        "life 2 is ready",
    ]


def test_story_has_a_pause(killed: Story) -> None:
    told = [text for text in texts(killed, "life") if "stands" in text or "goes on" in text]
    assert told == ["life 1 stands still", "life 1 goes on"]


def test_story_has_the_election_with_kind_cause_and_epochs(killed: Story) -> None:
    told = texts(killed, "election", "t0-0")
    victim = victim_of(killed)
    assert re.match(rf"broker {victim} leads, epochs 0/0$", told[0])
    assert re.match(r"broker [456] leads by ISR election \([a-z-]+\), epochs 1/\d+$", told[1])
    assert any(re.match(r"ISR \[\d, \d\], was \[", one) for one in texts(killed, "isr", "t0-0"))


def test_story_has_a_fenced_broker_and_its_return(killed: Story) -> None:
    victim = victim_of(killed)
    told = texts(killed, "broker")
    assert f"broker {victim} is fenced" in told
    assert sum(f"broker {victim} registers" in one for one in told) == 2


def test_story_has_the_active_controller(killed: Story) -> None:
    told = texts(killed, "controller")
    assert re.match(r"node [123] is the active controller, epoch 1$", told[0])
    assert "leader in epoch 1" in " ".join(texts(killed, "quorum"))


def test_high_watermarks_are_thin(killed: Story) -> None:
    times = [one.at_s for one in killed.tell() if one.kind == "watermark"]
    assert times and all(b - a >= 1.0 for a, b in zip(times, times[1:], strict=False))


def test_numbers_and_times_only_grow(killed: Story) -> None:
    entries = killed.entries
    assert [one.at_s for one in entries] == sorted(one.at_s for one in entries)
    assert [one.number for one in entries] == sorted(one.number for one in entries)


# --- a promise that breaks ------------------------------------------------------------------------


def test_a_broken_promise_ends_the_story_and_the_page_opens_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    with shows_all_it_has():
        assert command.main(Options(seed=SEED, show=True, out=path)) == 1
    told = capsys.readouterr().out.splitlines()
    assert f"page: {path}" in told and told[-1].startswith("trace ")
    story = [line for line in told if re.match(r" +\d+\.\d{3} s ", line)]
    assert "BROKEN P12" in story[-1]
    text = path.read_text()
    assert text.count('class="broken error"') == 1
    assert "P12: node-" in text and f"kraftbox sim --seed {SEED}" in text


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {key}={value}" for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_of_a_run_is_self_contained_and_well_formed(killed: Story) -> None:
    text = page(killed, ["<&>"], "kraftbox sim --seed 1 --faults 'a<b'")
    parser = _Loads()
    parser.feed(text)
    assert (parser.found, parser.open) == ([], [])
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "&lt;&amp;&gt;" in text and "a&lt;b" in text


def test_the_page_has_a_lane_for_each_node_partition_replica_fault_and_client(
    killed: Story,
) -> None:
    labels = [one.label for one in rows_of(killed, TimeAxis(0, int(killed.ends_s * 1000)))]
    expected = {
        *(f"node-{number}" for number in range(1, 7)),
        *(f"quorum {number}" for number in range(1, 4)),
        *(f"t0-0 on {number}" for number in range(4, 7)),
        *("t0-0", "faults 1", "faults 2", "controller", "client acks all"),
    }
    assert expected <= set(labels)
    assert labels.index("faults 1") < labels.index("node-1") < labels.index("t0-0")
    assert labels[-1].startswith("client ")


def by_hand() -> Story:
    """Return a story with every style of state, two faults, and a pipeline of three connections."""
    story = Story("x", ends_s=9.0, nodes=[1, 2, 13])
    styles = ("closing", "up", "paused", "down")
    story.entries = [
        Entry(1.0 + number, number, "node-1", "life", style, style)
        for number, style in enumerate(styles)
    ]
    story.faults = [
        FaultSpan("e0", "kill on node 1", 1.0, 1, 8.0, effect=True),
        FaultSpan("e1", "pause on node 2", 2.0, 2, 3.0, effect=False),
    ]
    story.answers = [
        Answered(f"plain pipeline 0/{number}", "send", "t0-0", answer, number, number + 1, 1, 0)
        for number, answer in enumerate(("ok", "? lost", "refused"))
    ]
    return story


def test_page_defines_each_fill_that_it_uses() -> None:
    """Dead and booting nodes were drawn as nothing: their patterns were not in the page."""
    text = page(by_hand(), [], "")
    used = set(re.findall(r"url\(#([^)]+)\)", text))
    assert {"p-down", "p-closing"} <= used <= set(re.findall(r'id="([^"]+)"', text))


def test_page_has_one_lane_for_the_connections_of_a_pipeline() -> None:
    lanes = [one for one in rows_of(by_hand(), ExactAxis(0, 9000)) if "client" in one.label]
    assert [one.label for one in lanes] == ["client plain pipeline 0"]
    assert len(lanes[0].spans) == 3


def test_page_has_times_above_the_lanes_and_names_of_faults_in_their_bars() -> None:
    text = page(by_hand(), [], "")
    axis, _, rows = text.partition('<div id="rows">')
    assert re.findall(r'class="tick"[^>]*>([^<]+)<', axis)[:3] == ["2 s", "4 s", "6 s"]
    assert 'class="tick"' not in rows.partition("</svg>")[0] and 'class="grid"' in rows
    assert re.search(r'class="inside"[^>]*>kill on node 1<', rows)


def test_page_names_the_colour_of_each_node_and_folds_the_settings() -> None:
    text = page(by_hand(), ["settings: a=b"], "")
    keys = re.findall(r'<rect class="(b\d+)"[^>]*/></svg>([^<]+)<', text)
    assert keys == [("b1", "node 1"), ("b2", "node 2"), ("b1", "node 13")]
    assert "Every promise held: 1 of 2 faults took effect." in text
    assert text.index('class="verdict"') < text.index("<details>") < text.index("settings: a=b")
    assert text.index("settings: a=b") < text.index("</details>")


def test_progress_line_has_virtual_time_and_faults() -> None:
    schedule = three_brokers(quiet_from_ms=300)
    lines: list[str] = []

    class Reading(Ticker):
        def finish(self, broken: object) -> None:
            lines.append(self.line())

    outcome = run(schedule, watchers=[Reading])
    assert lines == [f"seed {SEED}: {outcome.virtual_s:.1f} virtual seconds, 0 of 0 faults"]


def test_rare_requests_are_drawn_between_nodes(killed: Story) -> None:
    names = {one.name for one in killed.messages}
    assert {"VOTE", "BROKER_REGISTRATION", "ALTER_PARTITION"} <= names
    assert all(one.arrived_s is None or one.arrived_s > one.sent_s for one in killed.messages)
    text = page(killed, [], "")
    assert text.count('class="message') == len(killed.messages)


def test_a_message_that_never_arrives_ends_half_way() -> None:
    now_s = [1.0]
    messages = Messages(lambda: now_s[0])
    vote = bytes([0, 0, 0, 6, 0, ApiKey.VOTE, 0, 0, 0, 1])
    fetch = bytes([0, 0, 0, 6, 0, ApiKey.FETCH, 0, 0, 0, 1])
    messages.sent("node-1", "node-2", fetch + vote)
    messages.sent("node-1", "node-3", vote)
    messages.sent("client", "node-3", vote)
    now_s[0] = 2.0
    messages.arrived("node-1", "node-2", fetch)
    there, lost = messages.found
    assert (there.target, there.arrived_s, lost.arrived_s) == ("node-2", 2.0, None)
    rows = [Lane(f"node-{number}", [], ()) for number in (1, 2, 3)]
    told = list(arrows(messages.found, rows, ExactAxis(0, 4000)))
    assert 'class="message"' in told[0] and 'y1="10.0"' in told[0] and 'y2="30.0"' in told[0]
    assert 'class="message lost"' in told[1] and 'y2="30.0"' in told[1]


def test_states_of_a_lane_follow_each_other_to_the_end() -> None:
    story = Story("x", ends_s=9.0)
    story.entries = [
        Entry(1.0, 1, "node-1", "life", "boots", "closing"),
        Entry(2.5, 2, "node-1", "life", "ready", "up"),
        Entry(3.0, 3, "t0-0", "isr", "ISR [1]"),
        Entry(4.0, 4, "t0-0 on 1", "replica", "leads", "b1"),
        Entry(5.0, 5, "t0-0 on 1", "replica", "process ended", ""),
    ]
    lanes = {one.label: one for one in rows_of(story, TimeAxis(0, 9000))}
    assert [one[:3] for one in lanes["node-1"].spans] == [
        (1000, 2500, "closing"),
        (2500, 9000, "up"),
    ]
    assert [one[:3] for one in lanes["t0-0 on 1"].spans] == [(4000, 5000, "b1")]
    assert [(one.at_ms, one.style) for one in lanes["t0-0"].marks] == [(3000, "m-isr")]


def test_faults_at_the_same_time_have_lanes_of_their_own() -> None:
    def fault(begin_s: float, end_s: float | None, effect: bool | None = True) -> FaultSpan:
        return FaultSpan("e", "kill", begin_s, 0, end_s, effect)

    faults = [fault(1, 3), fault(2, 5), fault(3, 4, False), fault(6, None, None)]
    lanes = fault_lanes(faults, TimeAxis(0, 9000))
    assert [[(s.begin_ms, s.end_ms, s.style) for s in one.spans] for one in lanes] == [
        [(1000, 3000, "fault"), (3000, 4000, "fault-off"), (6000, 9000, "fault")],
        [(2000, 5000, "fault")],
    ]


def test_equal_answers_in_a_row_are_one() -> None:
    def saw(number: int, answer: str, partition: str = "t0-0") -> Saw:
        return Saw(f"p:{number}", "send", partition, number, number + 0.5, answer, number)

    history = [
        saw(1, "ok"),
        saw(2, "ok", "t0-1"),
        saw(3, "ok"),
        saw(4, "? no answer"),
        saw(5, "ok"),
    ]
    found = [(one.client, one.partition, one.answer, one.times) for one in grouped(history)]
    assert found == [
        ("p", "t0-0", "ok", 2),
        ("p", "t0-1", "ok", 1),
        ("p", "t0-0", "? no answer", 1),
        ("p", "t0-0", "ok", 1),
    ]
    assert grouped(history)[0][4:] == (1, 3.5, 2, 3)


# --- the view at a moment -------------------------------------------------------------------------


def test_a_moment_is_a_time_a_number_an_event_or_the_broken_promise() -> None:
    drawn = draw_schedule(SEED)
    assert Moment.parse("12.5s", drawn) == Moment(at_s=12.5)
    assert Moment.parse("0s", drawn) == Moment(at_s=0.0)
    assert Moment.parse("48211", drawn) == Moment(number=48211)
    assert Moment.parse("e0", drawn) == Moment(event="e0")
    assert Moment.parse("broken", drawn) == Moment()


@pytest.mark.parametrize("wrong", ["", "x", "-1", "1.5", "1e3s", "e4711", "12 s", "s"])
def test_another_moment_is_refused_with_what_is_allowed(wrong: str) -> None:
    with pytest.raises(BadShape, match=r"--until .*12\.5s.*e0 to \w\d+.*broken"):
        Moment.parse(wrong, draw_schedule(SEED))


def views(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, until: str, partition: str | None = None
) -> list[str]:
    path = tmp_path / "calm.json"
    if not path.exists():
        path.write_text(json.dumps(CALM.to_json()))
    assert command.main(Options(schedule=str(path), until=until, partition=partition)) == 0
    return capsys.readouterr().out.splitlines()


def test_every_nodes_view_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = views(capsys, tmp_path, "2s")
    assert re.match(r"at 2\.\d+ s, event \d+ of the trace", told[0])
    table = {line[:16].rstrip(): line[16:].split("  ") for line in told[-13:]}
    cells = {name: [one.strip() for one in values if one.strip()] for name, values in table.items()}
    assert sorted(cells["role"]) == ["follower", "follower", "leader"]
    assert cells["ISR"] == ["[4, 5, 6]"] * 3
    leader = cells["role"].index("leader")
    assert cells["leader"] == [str(leader + 4)] * 3
    marks = [int(one) for one in cells["high watermark"]]
    ends = [int(one) for one in cells["log end"]]
    assert max(marks) == marks[leader] <= ends[leader] == max(ends)
    assert any(line.startswith("quorum") and "node-3" in line for line in told)


def test_the_number_of_an_event_is_where_it_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (700, 701, 1000):
        (first, *_) = views(capsys, tmp_path, str(number), partition="t0-0")
        found = re.search(r"event (\d+)", first)
        assert found is not None and number <= int(found[1]) < number + 40


def test_moment_after_the_end_shows_the_last_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = views(capsys, tmp_path, "broken")
    assert told[0].startswith("the run ended before a broken promise")
    assert any("committed up to" in line for line in told)


def test_until_broken_shows_the_state_at_the_broken_promise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shows_all_it_has():
        assert command.main(Options(seed=SEED, until="broken")) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-1].startswith("BROKEN P12: node-") and "ended before" not in told[0]


def test_partition_created_in_the_run_can_be_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(Options(seed=6, until="1s", partition="__consumer_offsets-0")) == 0
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith("__consumer_offsets-0: committed up to") for line in told)


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, named in (
        (Options(seed=1, show=True, until="1s"), "--show and --until"),
        (Options(seed=1, show=True, as_json=True), "--json"),
        (Options(until="1s"), "--until needs --seed"),
        (Options(seed=1, runs=3, show=True), "--show plays one run"),
        (Options(seed=1, partition="t0-0"), "--partition"),
        (Options(seed=1, until="1s", partition="t9-0"), "'t9-0'; allowed are k0-0, t0-0"),
        (Options(seed=1, show=True, out=Path("/nowhere/x")), "/nowhere/x"),
    ):
        assert command.main(wrong) == 2
        assert named in capsys.readouterr().err
