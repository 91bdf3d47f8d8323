"""The result as one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple

from audit.findings.finding import Severity
from audit.report import timeline
from audit.report.svg import (
    LEADER_COLOURS,
    Line,
    TimeAxis,
    bars,
    lanes,
    leader_style,
    legend,
    patterns,
    step_lines,
)
from audit.report.text import moment, old_leader, verdict, visible, why
from audit.state.elections import LOSSY

ROWS_MAX = 500
OPEN_MAX = 12
FIRST_ROWS = 5
NUMBERS = {"offset", "leader epoch", "from offset", "to offset", "epoch", "segments", "snapshots"}
KIND_STYLES = {
    "isr": "kind-isr",
    "preferred": "kind-preferred",
    "elr": "kind-elr",
    "last-known-leader": "kind-last",
    "unclean": "kind-unclean",
    "unclean-recovery": "kind-recovery",
    "designated": "kind-designated",
}

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfa; --ink: #22252a; --soft: #667;
  --grid: #e2e2dd; --card: #fff; --edge: #d9d9d2; --good: #2d8a4e;
  --bad: #c62f2f; --warn: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --paper: #17181b; --ink: #e4e4e0; --soft: #a0a2aa;
  --grid: #33353b; --card: #1f2125; --edge: #3a3c43; --good: #57b879; --bad: #ef6a62;
  --warn: #e0a83e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 24px; background: var(--paper);
  color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 8px; }
p { margin: 4px 0; } .soft, .note { color: var(--soft); }
.verdict { font-size: 17px; font-weight: 600; padding: 10px 14px; border-radius: 8px;
  border: 1px solid var(--edge); border-left: 6px solid var(--good); background: var(--card);
  margin: 14px 0; }
.verdict.broken { border-left-color: var(--bad); }
.verdict.lossy { border-left-color: var(--warn); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); gap: 10px; }
.tile { background: var(--card); border: 1px solid var(--edge); border-radius: 8px;
  padding: 8px 12px; } .tile b { display: block; font-size: 20px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--edge); border-radius: 8px;
  padding: 12px; overflow-x: auto; }
figure svg { width: 100%; min-width: 700px; height: auto; display: block; }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.label { text-anchor: end; } .tick { text-anchor: middle; fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--grid); stroke-width: 1; }
.line { fill: none; stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; } .key { white-space: nowrap; }
.key svg { width: 11px; height: 11px; margin-right: 5px; vertical-align: -1px; display: inline; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; } th { color: var(--soft); font-weight: 500; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.error { color: var(--bad); font-weight: 600; } .warning { color: var(--warn); font-weight: 600; }
td.name, td.number { white-space: nowrap; width: 1%; }
details pre { white-space: pre-wrap; word-break: break-word; font-size: 12px; margin: 4px 0; }
.scroll { overflow-x: auto; }
.none { fill: var(--bad); } .lossy { fill: var(--bad); stroke: var(--card); stroke-width: 1.5; }
.up { fill: #4b9e68; } .down { fill: url(#p-down); } .closing { fill: url(#p-closing); }
.folded { fill: #9aa4ae; } .fault { fill: url(#p-fault); }
.warned { fill: var(--warn); stroke: var(--card); stroke-width: 1.5; }
.over { stroke: #fff; stroke-opacity: .75; fill: #fff; fill-opacity: .75; stroke-width: 1.2; }
.over path { fill: none; } .defs { position: absolute; }
.axis { text-anchor: middle; fill: var(--soft); font-size: 11px; }
.inside { text-anchor: middle; font-size: 11px; font-weight: 600; fill: #fff; stroke: #0009;
  stroke-width: 2.5px; paint-order: stroke; pointer-events: none; }
:target { stroke: var(--ink); stroke-width: 4; } a { color: inherit; }
.group > summary { cursor: pointer; padding: 6px 0; } .group .count { font-weight: 600; }
.kind-isr { fill: #4a7fb5; } .kind-preferred { fill: #4b9e68; } .kind-elr { fill: #8a6bb8; }
.kind-last { fill: #d98a2b; } .kind-unclean { fill: #c62f2f; }
.kind-recovery { fill: #9c8a3c; } .kind-designated { fill: #c26b9a; }
.l-isr { stroke: #4a7fb5; fill: none; } .l-elr { stroke: #8a6bb8; fill: none;
  stroke-dasharray: 7 3; }
.l-under { stroke: #d98a2b; fill: none; } .l-none { stroke: #c62f2f; fill: none;
  stroke-dasharray: 7 3; }
.k-isr { fill: #4a7fb5; } .k-elr { fill: #8a6bb8; } .k-under { fill: #d98a2b; }
@media (max-width: 560px) { body { padding: 14px; } .tiles { grid-template-columns: 1fr 1fr; } }
@media print { :root { --paper: #fff; --ink: #000; --soft: #444; --grid: #ccc; --card: #fff;
  --edge: #999; --good: #2d8a4e; --bad: #c62f2f; --warn: #8a5a00; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 11px; } table { font-size: 11px; }
  figure svg { min-width: 0; }
  figure, .tile, tr { break-inside: avoid; } h2 { break-after: avoid; }
  figure, .scroll { overflow: visible; } .tiles { grid-template-columns: repeat(4, 1fr); }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
OTHER_FILLS = (("p-fault", "#5c6470"), ("p-down", "#7d848c"), ("p-closing", "#d9a441"))
PALETTE = (
    "#4a7fb5", "#d98a2b", "#4b9e68", "#8a6bb8", "#3fa3a8", "#c26b9a",
    "#9c8a3c", "#6f7fd1", "#5f8f86", "#6a9f3a", "#7a8794", "#a85fc4",
)  # fmt: skip


def _plain_on_paper() -> str:
    """Return styles without patterns for printing; brokers keep their IDs over the bars.

    Chromium would draw a pattern again for each bar, which takes minutes for 300 partitions.
    """
    plain = [(f"b{n}", colour) for n, colour in enumerate(PALETTE)]
    plain += [(name.removeprefix("p-"), colour) for name, colour in OTHER_FILLS]
    return "@media print { " + " ".join(f".{n} {{ fill: {c}; }}" for n, c in plain) + " }\n"


def as_html(result: Mapping[str, Any]) -> str:
    """Return the whole page as HTML."""
    axis = timeline.time_axis(result)
    facts = [one for one in result["findings"] if one["severity"] == Severity.INFO]
    broken = [one for one in result["findings"] if one["severity"] != Severity.INFO]
    parts = [
        _head(result),
        _findings("Findings", result, broken),
        _leadership(result, axis, broken),
        _sizes(result, axis),
        _elections_by_kind(result),
        _brokers(result, axis),
        _quorum(result, axis),
        _findings("Facts", result, facts),
        _elections(result),
        _copies(result),
    ]
    colours = "".join(f".b{n} {{ fill: url(#p{n}); }}\n" for n in range(len(PALETTE)))
    colours += _plain_on_paper()
    fills = patterns([*((f"p{n}", colour) for n, colour in enumerate(PALETTE)), *OTHER_FILLS])
    assert len(PALETTE) == LEADER_COLOURS
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Audit of {escape(_cluster(result))}</title><style>{STYLE}{colours}</style></head>"
        f"<body>{fills}<main>{''.join(parts)}</main></body></html>\n"
    )
    # The page may be printed to a terminal, so names are escaped as in the text.
    return "\n".join(map(visible, page.split("\n")))


def _cluster(result: Mapping[str, Any]) -> str:
    cluster = result["summary"]["cluster_id"]
    return f"cluster {cluster}" if cluster else "a cluster of unknown id"


_VERDICT_CLASSES = {
    "holds": "",
    "may-be-lost": " lossy",
    "broken": " broken",
    "not-judged": " broken",
}


def _head(result: Mapping[str, Any]) -> str:
    summary, quorum = result["summary"], result["quorum"]
    broken = _VERDICT_CLASSES.get(summary["verdict"], " broken")
    first, last = summary["first_timestamp_ms"], summary["last_timestamp_ms"]
    tiles = [
        ("records", f"{summary['records']:,}"),
        ("elections", f"{sum(summary['elections'].values()):,}"),
        ("topics", f"{summary['topics']:,}"),
        ("partitions", f"{summary['partitions']:,}"),
        ("without leader at the end", f"{summary['partitions_leaderless']:,}"),
        ("under min ISR at the end", f"{summary['partitions_under_min_isr']:,}"),
        ("without leader, sum of partitions", _duration(summary["leaderless_ms"])),
        ("under min ISR, sum of partitions", _duration(summary["under_min_isr_ms"])),
    ]
    shown = "".join(f'<div class="tile"><b>{value}</b>{name}</div>' for name, value in tiles)
    return (
        f"<h1>Audit of {escape(_cluster(result))}</h1>"
        f'<p class="soft">{moment(first)} to {moment(last)} UTC (here {local(first)} to '
        f"{local(last)}); offsets {summary['start_offset']:,} to "
        f"{summary['end_offset']:,} of {escape(quorum['audited'])}, "
        f"copies of the log compared: {len(quorum['logs'])}</p>"
        f'<p class="verdict{broken}">{escape(verdict(summary))}</p>'
        f'<div class="tiles">{shown}</div>'
    )


def _duration(milliseconds: int) -> str:
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _figure(title: str, drawing: str, more: str = "") -> str:
    return f'<h2>{escape(title)}</h2><figure tabindex="0">{drawing}</figure>{more}'


def _nothing(title: str, why: str) -> str:
    return f'<h2>{escape(title)}</h2><p class="note">{escape(why)}</p>'


def _leadership(
    result: Mapping[str, Any], axis: TimeAxis, broken: Sequence[Mapping[str, Any]]
) -> str:
    """Return faults and findings above the leaders: causes and effects on one axis."""
    title = "Who led which partition"
    led, left_out = timeline.leadership_lanes(result, axis)
    drawn = [one for group in _groups(broken).values() for one in group.shown]
    above = [*timeline.fault_lanes(result, axis), *timeline.finding_lanes(drawn)]
    rows = [*above, *led]
    if not rows:
        return _nothing(title, "The log has no partitions.")
    seen = timeline.leaders_seen(rows)
    brokers = sorted(int(b) for b in result["summary"]["leaders"] if int(b) >= 0)
    brokers = sorted({*brokers, *(b["id"] for b in result["brokers"])})
    entries = [(leader_style(b), f"broker {b}") for b in brokers if leader_style(b) in seen]
    entries += [("none", "no leader")] if "none" in seen else []
    entries += [("folded", "an internal topic, all led")] if "folded" in seen else []
    entries += [("fault", "fault")] if "fault" in seen else []
    if any(lane.marks for lane in led):
        entries.append(("lossy", "diamond: election that may have lost records"))
    more = legend(entries)
    if left_out:
        more += f'<p class="note">{left_out:,} partitions with fewer changes are not shown.</p>'
    cut = result["elections_left_out"] + result["leadership_left_out"]
    if cut:
        more += (
            f'<p class="note">{cut:,} changes of leaders are left out of this report, so lanes '
            "have gaps; the table <code>leadership</code> has all.</p>"
        )
    return _figure(title, lanes(axis, rows, title), more)


def _sizes(result: Mapping[str, Any], axis: TimeAxis) -> str:
    title = "In-sync and eligible leader replicas"
    points = result["series"]
    if not points:
        return _nothing(title, "The log has no partitions.")
    names = ("ISR members", "ELR members")
    sizes = [
        Line(name, style, [(p[0], p[at]) for p in points])
        for at, (name, style) in enumerate(zip(names, ("l-isr", "l-elr"), strict=True), start=1)
    ]
    troubles = [
        Line("partitions under min ISR", "l-under", [(p[0], p[3]) for p in points]),
        Line("partitions without leader", "l-none", [(p[0], p[4]) for p in points]),
    ]
    upper = step_lines(axis, sizes, "ISR and ELR members over time", "replicas")
    lower = step_lines(axis, troubles, "partitions in trouble over time", "partitions", 90)
    keys = [
        ("k-isr", "ISR members, all partitions"),
        ("k-elr", "ELR members"),
        ("k-under", "partitions under min ISR"),
        ("none", "partitions without leader"),
    ]
    return _figure(title, upper + lower, legend(keys))


def _elections_by_kind(result: Mapping[str, Any]) -> str:
    title = "Elections by kind"
    counts = result["summary"]["elections"]
    if not counts:
        return _nothing(title, "There was no election.")
    rows = [(kind, counts.get(kind, 0), style) for kind, style in KIND_STYLES.items()]
    causes = ", ".join(f"{cause} {n:,}" for cause, n in result["summary"]["causes"].items())
    return _figure(
        title, bars(rows, title, "elections"), f'<p class="note">By cause: {escape(causes)}.</p>'
    )


def _brokers(result: Mapping[str, Any], axis: TimeAxis) -> str:
    title = "Brokers up and down"
    rows = timeline.broker_lanes(result, axis)
    if not rows:
        return _nothing(title, "No broker is registered in the log.")
    keys = [("up", "up"), ("closing", "controlled shutdown"), ("down", "fenced")]
    return _figure(title, lanes(axis, rows, title), legend(keys))


def _quorum(result: Mapping[str, Any], axis: TimeAxis) -> str:
    title = "Who led the quorum"
    rows = timeline.quorum_lanes(result, axis)
    if not rows:
        return _nothing(title, "The log has no change of the quorum's leader.")
    return _figure(title, lanes(axis, rows, title))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(
        f'<th class="number">{escape(c)}</th>' if c in NUMBERS else f"<th>{escape(c)}</th>"
        for c in columns
    )
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return (
        f'<div class="scroll" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def _cell(value: object, style: str = "") -> str:
    return f'<td class="{style}">{escape(str(value))}</td>' if style else f"<td>{value}</td>"


def _text(value: object) -> str:
    return f"<td>{escape(str(value))}</td>"


def _findings(title: str, result: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> str:
    """Return findings by check, each with its count; times link to their marks in the picture."""
    if not findings:
        return _nothing(title, "None.")
    groups = _groups(findings)
    last_of = {one["check"]: one["severity"] for one in result["findings"]}
    left_out = result["summary"]["findings_left_out"]
    columns = ("offset", "time (UTC)", "what", "log")
    out = [f"<h2>{title}</h2>"]
    for (severity, check), (found, shown) in groups.items():
        # Unlisted findings of a check with warnings are informational.
        unlisted = left_out.get(check, 0) if last_of[check] == severity else 0
        # A group of warnings or a few findings are open; many informational ones are folded.
        is_open = " open" if severity != Severity.INFO or len(findings) <= OPEN_MAX else ""
        rows = [_finding(number, one) for number, one in shown]
        more = _more_rows(columns, rows[FIRST_ROWS:]) + _left_out(found, len(shown))
        if unlisted:
            more += (
                f'<p class="note">{unlisted:,} more of {escape(check)} were counted, '
                "not listed.</p>"
            )
        count = found + unlisted
        out.append(
            f'<details class="group"{is_open}><summary><span class="{severity}">{severity}</span> '
            f'{escape(check)} <span class="count">{count:,}</span></summary>'
            f"{_table(columns, rows[:FIRST_ROWS])}{more}</details>"
        )
    return "".join(out)


class _Group(NamedTuple):
    """The findings of a check with one severity: their number, and those in the page, numbered."""

    total: int
    shown: Sequence[tuple[int, Mapping[str, Any]]]


def _groups(findings: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], _Group]:
    """Group findings by severity and check; the first of each group are always in the page."""
    found: dict[tuple[str, str], list[tuple[int, Mapping[str, Any]]]] = {}
    for number, one in enumerate(findings):
        found.setdefault((one["severity"], one["check"]), []).append((number, one))
    groups = {}
    room = ROWS_MAX
    for key, numbered in found.items():
        shown = numbered[: max(FIRST_ROWS, room)]
        room -= len(shown)
        groups[key] = _Group(len(numbered), shown)
    return groups


def _more_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return folded rows: hundreds of findings would hide the picture below them."""
    if not rows:
        return ""
    return f"<details><summary>{len(rows):,} more</summary>{_table(columns, rows)}</details>"


def _finding(number: int, one: Mapping[str, Any]) -> list[str]:
    where = "" if one["offset"] < 0 else f"{one['offset']:,}"
    records = ""
    if one["before"] is not None or one["after"] is not None:
        pair = "\n".join(f"{side}: {json.dumps(one[side])}" for side in ("before", "after"))
        records = f"<details><summary>before and after</summary><pre>{escape(pair)}</pre></details>"
    at = moment(one["timestamp_ms"])
    if one["timestamp_ms"] >= 0 and one["severity"] != Severity.INFO:
        at = f'<a href="#{timeline.anchor(number)}">{at}</a>'
    return [
        _cell(where, "number"),
        f'<td class="name" title="{local(one["timestamp_ms"])}">{at}</td>',
        f"<td>{escape(one['message'])}{records}</td>",
        _text(one["log"]),
    ]


def local(timestamp_ms: int) -> str:
    """Return the time in the zone of the report's machine; empty without a time."""
    if timestamp_ms < 0:
        return ""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().strftime("%F %T %Z")


def _elections(result: Mapping[str, Any]) -> str:
    elections = result["elections"]
    if not elections:
        return ""
    rows = [
        [
            _cell(f"{one['offset']:,}", "number"),
            _cell(moment(one["timestamp_ms"]), "name"),
            _text(f"{one['topic']}-{one['partition']}"),
            _cell(one["kind"], "error" if one["kind"] in LOSSY else "kind"),
            _text(old_leader(one)),
            _text(one["to_leader"]),
            _cell(one["leader_epoch"], "number"),
            _text(why(one)),
        ]
        for one in elections[:ROWS_MAX]
    ]
    columns = ("offset", "time (UTC)", "partition", "kind", "from", "to", "leader epoch", "cause")
    more = _left_out(sum(result["summary"]["elections"].values()), ROWS_MAX)
    return f"<h2>Elections</h2>{_table(columns, rows)}{more}"


def _left_out(count: int, shown: int) -> str:
    if count <= shown:
        return ""
    return f'<p class="note">{count - shown:,} more are in the tables and the JSON report.</p>'


def _copies(result: Mapping[str, Any]) -> str:
    rows = [
        [
            _text(log["log"]),
            _text(log["path"]),
            _cell(f"{log['start_offset']:,}", "number"),
            _cell(f"{log['end_offset']:,}", "number"),
            _cell(log["epoch"], "number"),
            _cell(log["segments"], "number"),
            _cell(log["snapshots"], "number"),
        ]
        for log in result["quorum"]["logs"]
    ]
    columns = ("log", "path", "from offset", "to offset", "epoch", "segments", "snapshots")
    return f"<h2>Copies of the log</h2>{_table(columns, rows)}"
