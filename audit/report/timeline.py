"""Lanes of leaders, brokers and the quorum for the pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from audit.report.svg import Lane, Mark, Span, TimeAxis, leader_style
from audit.state.elections import LOSSY

LANES_MAX = 40
NO_LEADER = -1
Key: TypeAlias = tuple[str, int]


def time_axis(result: Mapping[str, Any]) -> TimeAxis:
    summary = result["summary"]
    return TimeAxis(summary["first_timestamp_ms"], summary["last_timestamp_ms"])


def leadership_lanes(result: Mapping[str, Any], axis: TimeAxis) -> tuple[list[Lane], int]:
    """Who led each partition when, those with most changes, and how many partitions are left out.

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
    busiest = sorted(moves, key=lambda key: (key not in marks, -len(moves[key]), key))
    chosen = sorted(busiest[:LANES_MAX])
    rows = [
        Lane(f"{topic}-{index}", _leaders(moves[topic, index], axis), marks.get((topic, index), ()))
        for topic, index in chosen
    ]
    return rows, len(moves) - len(chosen)


def _leaders(moves: list[tuple[int, int, int, str]], axis: TimeAxis) -> list[Span]:
    spans = []
    ordered = sorted(moves)
    ends = [at_ms for _, at_ms, _, _ in ordered[1:]] + [axis.end_ms]
    for (_, at_ms, leader, text), end_ms in zip(ordered, ends, strict=True):
        if leader == -2:
            continue
        begin = max(at_ms, axis.begin_ms)
        if leader == NO_LEADER:
            spans.append(Span(begin, end_ms, "none", f"no leader: {text}"))
        else:
            spans.append(
                Span(begin, end_ms, leader_style(leader), f"broker {leader} leads: {text}")
            )
    return spans


def broker_lanes(result: Mapping[str, Any], axis: TimeAxis) -> list[Lane]:
    """Up, fenced, shutting down, gone."""
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
    """One lane per node that led the quorum."""
    leaders: Sequence[Mapping[str, Any]] = result["quorum"]["leaders"]
    ends = [one["timestamp_ms"] for one in leaders[1:]] + [axis.end_ms]
    by_node: dict[int, list[Span]] = {}
    for one, end_ms in zip(leaders, ends, strict=True):
        title = f"node {one['leader']} leads epoch {one['epoch']} from offset {one['offset']}"
        span = Span(one["timestamp_ms"], end_ms, leader_style(one["leader"]), title)
        by_node.setdefault(one["leader"], []).append(span)
    return [Lane(f"node {node}", spans) for node, spans in sorted(by_node.items())]


def leaders_seen(lanes: Iterable[Lane]) -> set[str]:
    """The colour classes that lanes use."""
    return {span.style for lane in lanes for span in lane.spans}
