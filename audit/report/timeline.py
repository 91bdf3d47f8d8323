"""Lanes of leaders, brokers and the quorum for the pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from audit.findings.finding import Severity
from audit.report.svg import Lane, Mark, Span, TimeAxis, leader_style
from audit.state.elections import LOSSY

LANES_MAX = 40
NO_LEADER = -1
Key: TypeAlias = tuple[str, int]


def time_axis(result: Mapping[str, Any]) -> TimeAxis:
    summary = result["summary"]
    return TimeAxis(summary["first_timestamp_ms"], summary["last_timestamp_ms"])


def leadership_lanes(result: Mapping[str, Any], axis: TimeAxis) -> tuple[list[Lane], int]:
    """Return lanes of the leaders, for the partitions with most changes, and the number left out.

    A diamond is an election that may have lost records.
    """
    moves: dict[Key, list[tuple[int, int, int, str]]] = {}
    for offset, at_ms, topic, partition, _, leader, epoch, why in result["leadership"]:
        gone = why == "deleted"
        entry = (offset, at_ms, -2 if gone else leader, f"epoch {epoch}, {why}")
        moves.setdefault((topic, partition), []).append(entry)
    marks: dict[Key, list[Mark]] = {}
    for one in result["elections"]:
        key = (one["topic"], one["partition"])
        text = f"{one['kind']} ({one['cause']}), epoch {one['leader_epoch']}"
        moves.setdefault(key, []).append(
            (one["offset"], one["timestamp_ms"], one["to_leader"], text)
        )
        if one["kind"] in LOSSY:
            title = f"{one['kind']} election of broker {one['to_leader']}: {one['cause']}"
            marks.setdefault(key, []).append(Mark(one["timestamp_ms"], "lossy", title))
    theirs = [key for key in moves if not is_internal(key[0])]
    busiest = sorted(theirs, key=lambda key: (key not in marks, -len(moves[key]), key))
    chosen = sorted(busiest[:LANES_MAX])
    rows = [
        Lane(f"{topic}-{index}", _leaders(moves[topic, index], axis), marks.get((topic, index), ()))
        for topic, index in chosen
    ]
    for topic in sorted({key[0] for key in moves if is_internal(key[0])}):
        keys = [key for key in moves if key[0] == topic]
        label = f"{topic}, all {len(keys)}"
        own = [mark for key in sorted(keys) for mark in marks.get(key, ())]
        rows.append(Lane(label, _folded([_leaders(moves[key], axis) for key in keys]), own))
    return rows, len(theirs) - len(chosen)


def is_internal(topic: str) -> bool:
    """Return whether a topic is internal, such as __consumer_offsets."""
    return topic.startswith("__")


def _folded(partitions: Sequence[Sequence[Span]]) -> list[Span]:
    """Return one lane of many partitions: the numbers with and without a leader over time."""
    steps: dict[int, list[int]] = {}
    for spans in partitions:
        for span in spans:
            for at_ms, sign in ((span.begin_ms, 1), (span.end_ms, -1)):
                step = steps.setdefault(at_ms, [0, 0])
                step[span.style == "none"] += sign
    out: list[Span] = []
    led = without = 0
    times = sorted(steps)
    for at_ms, end_ms in zip(times, times[1:], strict=False):
        led += steps[at_ms][0]
        without += steps[at_ms][1]
        if not led and not without:
            continue
        style = "none" if without else "folded"
        title = f"{without} of {led + without} without leader" if without else f"{led} led"
        text = f"{without} without" if without else ""
        if out and (out[-1].end_ms, out[-1].style, out[-1].title) == (at_ms, style, title):
            out[-1] = out[-1]._replace(end_ms=end_ms)
        else:
            out.append(Span(at_ms, end_ms, style, title, text))
    return out


def fault_lanes(result: Mapping[str, Any], axis: TimeAxis) -> list[Lane]:
    """Return lanes of the faults in the client history: one, and more for overlapping faults."""
    rows: list[list[Span]] = []
    for kind, nodes, begin_ms, end_ms, detail in result.get("faults", ()):
        if end_ms < axis.begin_ms or begin_ms > axis.end_ms:
            continue
        whose = ", ".join(map(str, nodes)) or "the cluster"
        title = f"{kind} of {whose}: {(end_ms - begin_ms) / 1000:.1f} s"
        begin, end = max(begin_ms, axis.begin_ms), min(end_ms, axis.end_ms)
        text = f"{kind} {','.join(map(str, nodes))}".strip()
        span = Span(begin, end, "fault", f"{title}, {detail}" if detail else title, text)
        free = (row for row in rows if row[-1].end_ms <= begin)
        row = next(free, None)
        if row is None:
            rows.append(row := [])
        row.append(span)
    return [Lane("faults", row) for row in rows]


def finding_lanes(findings: Iterable[tuple[int, Mapping[str, Any]]]) -> list[Lane]:
    """Return one lane per check, with a diamond for each finding that has a time.

    `anchor` gives the name of a finding's diamond.
    """
    by_check: dict[str, list[Mark]] = {}
    for number, one in findings:
        if one["timestamp_ms"] >= 0:
            style = "lossy" if one["severity"] == Severity.ERROR else "warned"
            mark = Mark(one["timestamp_ms"], style, one["message"], anchor(number))
            by_check.setdefault(one["check"], []).append(mark)
    return [Lane(check, (), marks) for check, marks in sorted(by_check.items())]


def anchor(number: int) -> str:
    """Return the name of a finding's mark in the picture."""
    return f"at-{number}"


def _leaders(moves: list[tuple[int, int, int, str]], axis: TimeAxis) -> list[Span]:
    spans = []
    ordered = sorted(moves)
    ends = [at_ms for _, at_ms, _, _ in ordered[1:]] + [axis.end_ms]
    for (_, at_ms, leader, text), end_ms in zip(ordered, ends, strict=True):
        if leader == -2:
            continue
        begin = max(at_ms, axis.begin_ms)
        if leader == NO_LEADER:
            spans.append(Span(begin, end_ms, "none", f"no leader: {text}", "none"))
        else:
            title = f"broker {leader} leads: {text}"
            spans.append(Span(begin, end_ms, leader_style(leader), title, str(leader)))
    return spans


def broker_lanes(result: Mapping[str, Any], axis: TimeAxis) -> list[Lane]:
    """Return one lane per broker: up, fenced, shutting down, gone."""
    rows = []
    for broker in result["brokers"]:
        spans = []
        events = broker["events"]
        ends = [event["timestamp_ms"] for event in events[1:]] + [axis.end_ms]
        down_as = "fenced"
        for event, end_ms in zip(events, ends, strict=True):
            what = event["event"]
            style = "down" if event["fenced"] else "up"
            if what == "controlled-shutdown" and not event["fenced"]:
                style = "closing"
            if what == "unregistered":
                continue
            down_as = what if what in ("lost", "stopped") else down_as
            title = f"{what} (epoch {event['epoch']}, offset {event['offset']})"
            spans.append(Span(max(event["timestamp_ms"], axis.begin_ms), end_ms, style, title))
        rack = f" ({broker['rack']})" if broker["rack"] else ""
        rows.append(Lane(f"broker {broker['id']}{rack}", spans))
    return rows


def quorum_lanes(result: Mapping[str, Any], axis: TimeAxis) -> list[Lane]:
    """Return one lane per node that led the quorum."""
    leaders: Sequence[Mapping[str, Any]] = result["quorum"]["leaders"]
    if not leaders:
        return []  # a log that begins at a snapshot
    ends = [*(one["timestamp_ms"] for one in leaders[1:]), axis.end_ms]
    by_node: dict[int, list[Span]] = {}
    for one, end_ms in zip(leaders, ends, strict=True):
        title = f"node {one['leader']} leads epoch {one['epoch']} from offset {one['offset']}"
        style, text = leader_style(one["leader"]), f"epoch {one['epoch']}"
        span = Span(one["timestamp_ms"], end_ms, style, title, text)
        by_node.setdefault(one["leader"], []).append(span)
    return [Lane(f"node {node}", spans) for node, spans in sorted(by_node.items())]


def leaders_seen(lanes: Iterable[Lane]) -> set[str]:
    """Return the colour classes that lanes use."""
    return {span.style for lane in lanes for span in lane.spans}
