"""A story as one HTML page with lanes: nodes, quorum, partitions, replicas, faults, clients.

It loads no other file: pictures are inline SVG in the style of the audit's report, and without
scripts they show the whole run. An embedded script zooms: to a clicked row of the story or mark of
a lane, with the buttons, and by dragging. The page opens at a broken promise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from audit.report.html import OTHER_FILLS, PALETTE, STYLE
from audit.report.svg import (
    LABEL_WIDTH,
    RIGHT_MARGIN,
    ROW_HEIGHT,
    WIDTH,
    Lane,
    Mark,
    Span,
    TimeAxis,
    lanes,
    leader_style,
    legend,
    patterns,
    picture,
)
from simulation.messages import Message
from simulation.story import Answered, Entry, FaultSpan, Story

TICKS_HEIGHT = 24
NEAR_MS = 1500
"""Milliseconds before a broken promise that are first visible."""
MARK_STYLES = {
    "election": "m-election",
    "lossy": "lossy",
    "broken": "lossy",
    "isr": "m-isr",
    "elr": "m-elr",
    "truncation": "m-cut",
    "controller": "m-election",
    "broker": "m-isr",
    "epoch": "m-isr",
    "replicas": "m-elr",
}
"""Kinds of entries that are drawn as points; the others are only in the table."""
ELECTIONS = ("election", "lossy")
"""Points, although a state begins there, too."""
ANSWER_STYLES = {"ok": "kind-isr", "?": "closing"}
FAULT_STYLES = {True: "fault", False: "fault-off", None: "fault"}
OWN_STYLE = """
.paused { fill: #8d8f98; } .role-follower { fill: #b9c4cf; } .role-candidate { fill: #d9a441; }
.role-prospective { fill: #e6c98a; } .role-unattached, .role-resigned { fill: #cf9a95; }
.role-observer { fill: #d5d9dd; } .role-voted { fill: #d9a441; }
.role-offline, .role-deleted { fill: #cf5b52; }
.fault { fill: #7d3c98; } .fault-off { fill: #c9b3d4; }
.m-election, .m-isr, .m-elr, .m-cut { stroke: var(--card); stroke-width: 1; }
.m-election { fill: var(--ink); } .m-isr { fill: #2f7ed8; } .m-elr { fill: #8a6bb8; }
.m-cut { fill: #e0562a; }
.message { stroke: var(--ink); stroke-width: 1; opacity: .45; }
.message.lost { stroke: var(--bad); }
.message:hover { stroke-width: 3; opacity: 1; }
#lanes { position: sticky; top: 0; z-index: 1; max-height: 62vh; overflow: auto; }
#axis { position: sticky; top: 0; z-index: 1; background: var(--card); }
#rows path, #rows rect, tr[data-t] { cursor: pointer; }
.cursor { stroke: var(--bad); stroke-width: 1.5; }
tr.here { background: color-mix(in srgb, var(--warn) 25%, transparent); }
td.at { white-space: nowrap; font-variant-numeric: tabular-nums; text-align: right; }
.tools { margin: 8px 0; display: flex; gap: 6px; flex-wrap: wrap; align-items: center; }
"""
SCRIPT = """
const svg = document.querySelector('#rows svg'), LEFT = %(left)d, RIGHT = %(right)d;
const BEGIN = %(begin)d, END = %(end)d, NS = 'http://www.w3.org/2000/svg';
const share = (RIGHT - LEFT) / (END - BEGIN);
const toMs = x => BEGIN + (x - LEFT) / share;
const height = svg.viewBox.baseVal.height;
const ticks = document.querySelector('#axis svg');
const bars = [...svg.querySelectorAll('rect')].map(el => {
  const x = +el.getAttribute('x');
  return {el, begin: toMs(x), end: toMs(x + +el.getAttribute('width'))};
});
svg.querySelectorAll('text.inside').forEach(el => el.remove());
const names = bars.filter(one => one.el.getAttribute('class').startsWith('fault')).map(one => {
  const el = document.createElementNS(NS, 'text'), text = one.el.textContent;
  el.setAttribute('class', 'inside');
  el.setAttribute('y', +one.el.getAttribute('y') + 11);
  one.el.after(el);
  return {el, bar: one, text: text.slice(text.indexOf(': ') + 2)};
});
const points = [...svg.querySelectorAll('path')].map(el => {
  const x = +el.getAttribute('d').slice(1).split(' ')[0];
  return {el, x, at: toMs(x)};
});
const messages = [...svg.querySelectorAll('.message')].map(el => {
  return {el, sent: toMs(+el.getAttribute('x1')), arrived: toMs(+el.getAttribute('x2'))};
});
const rows = [...document.querySelectorAll('tr[data-t]')];
const axis = document.createElementNS(NS, 'g');
document.querySelectorAll('#lanes .grid').forEach(el => el.remove());
svg.insertBefore(axis, svg.firstChild);
let view = [BEGIN, END], here = null;
function add(parent, name, values, text) {
  const el = document.createElementNS(NS, name);
  for (const key in values) el.setAttribute(key, values[key]);
  if (text) el.textContent = text;
  parent.appendChild(el);
}
function draw() {
  const [from, to] = view, scale = (RIGHT - LEFT) / (to - from);
  const toX = ms => LEFT + (ms - from) * scale;
  for (const one of bars) {
    const left = Math.max(LEFT, toX(one.begin)), right = Math.min(RIGHT, toX(one.end));
    one.el.style.display = right < LEFT || left > RIGHT ? 'none' : '';
    one.el.setAttribute('x', left);
    one.el.setAttribute('width', Math.max(1, right - left));
  }
  for (const one of names) {
    const left = Math.max(LEFT, toX(one.bar.begin)), right = Math.min(RIGHT, toX(one.bar.end));
    const room = Math.floor((right - left - 6) / 6.5);
    const cut = one.text.length > room ? one.text.slice(0, room - 1) + '…' : one.text;
    one.el.textContent = room < 4 ? '' : cut;
    one.el.setAttribute('x', (left + right) / 2);
  }
  for (const one of points) {
    const x = toX(one.at);
    one.el.style.display = x < LEFT || x > RIGHT ? 'none' : '';
    one.el.setAttribute('transform', `translate(${x - one.x} 0)`);
  }
  for (const one of messages) {
    const sent = toX(one.sent), arrived = toX(one.arrived);
    one.el.style.display = sent < LEFT || arrived > RIGHT ? 'none' : '';
    one.el.setAttribute('x1', sent);
    one.el.setAttribute('x2', arrived);
  }
  axis.replaceChildren();
  ticks.querySelectorAll('.tick').forEach(el => el.remove());
  const rough = (to - from) / 8, ten = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map(n => n * ten).find(n => n >= rough);
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const x = toX(at);
    add(axis, 'line', {class: 'grid', x1: x, y1: 0, x2: x, y2: height});
    add(ticks, 'text', {class: 'tick', x, y: 16}, +(at / 1000).toFixed(6) + ' s');
  }
  svg.querySelectorAll('.cursor').forEach(el => el.remove());
  if (here !== null && here >= from && here <= to) {
    const x = toX(here);
    add(svg, 'line', {class: 'cursor', x1: x, y1: 0, x2: x, y2: height});
  }
}
function look(from, to) {
  const length = Math.max(2, Math.min(to - from, END - BEGIN));
  const begin = Math.max(BEGIN, Math.min(from, END - length));
  view = [begin, begin + length];
  draw();
}
function select(row, span) {
  rows.forEach(one => one.classList.toggle('here', one === row));
  here = +row.dataset.t;
  look(here - span / 2, here + span / 2);
}
function zoom(factor) {
  const middle = here !== null && here >= view[0] && here <= view[1]
    ? here : (view[0] + view[1]) / 2;
  look(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor);
}
rows.forEach(row => row.addEventListener('click', () => {
  select(row, Math.min(view[1] - view[0], 2000));
}));
function msAt(event) {
  const box = svg.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
  return view[0] + (x - LEFT) / (RIGHT - LEFT) * (view[1] - view[0]);
}
let grabbed = null, moved = false;
svg.addEventListener('pointerdown', event => {
  grabbed = {at: msAt(event), view};
  moved = false;
  event.preventDefault();
});
window.addEventListener('pointermove', event => {
  if (!grabbed) return;
  const by = grabbed.at - msAt(event);
  if (Math.abs(by) > (view[1] - view[0]) / 300) { moved = true; look(view[0] + by, view[1] + by); }
});
window.addEventListener('pointerup', () => { grabbed = null; });
svg.addEventListener('click', event => {
  if (moved || !rows.length) return;
  const at = msAt(event), far = row => Math.abs(+row.dataset.t - at);
  const shown = rows.filter(row => !row.hidden);
  const row = (shown.length ? shown : rows).reduce((a, b) => far(b) < far(a) ? b : a);
  select(row, view[1] - view[0]);
  row.scrollIntoView({block: 'center'});
});
const on = (id, what) => document.getElementById(id).addEventListener('click', what);
on('whole', () => look(BEGIN, END));
on('in', () => zoom(0.5));
on('out', () => zoom(2));
on('back', () => look(view[0] - (view[1] - view[0]) / 2, view[1] - (view[1] - view[0]) / 2));
on('on', () => look(view[0] + (view[1] - view[0]) / 2, view[1] + (view[1] - view[0]) / 2));
document.getElementById('filter').addEventListener('input', event => {
  const word = event.target.value.toLowerCase();
  rows.forEach(row => { row.hidden = !row.textContent.toLowerCase().includes(word); });
});
const broken = document.querySelector('tr.broken');
function toBroken() { select(broken, %(near)d * 2); broken.scrollIntoView({block: 'center'}); }
if (broken) { on('first', toBroken); select(broken, %(near)d * 2); } else draw();
"""


def page(story: Story, about: Sequence[str], replay: str) -> str:
    """Return the whole page. `about` describes the cluster, `replay` is the command that plays it
    again."""
    entries = story.tell()
    axis = _axis(story, entries)
    rows = rows_of(story, axis)
    drawn = lanes(axis, rows, story.title)
    drawn = drawn.replace("</svg>", "".join(arrows(story.messages, rows, axis)) + "</svg>")
    ticks = picture(TICKS_HEIGHT, axis.ticks(), "virtual seconds")
    script = SCRIPT % {
        "left": LABEL_WIDTH,
        "right": WIDTH - RIGHT_MARGIN,
        "begin": axis.begin_ms,
        "end": axis.end_ms,
        "near": NEAR_MS,
    }
    colours = "".join(f".b{n} {{ fill: {c}; }}\n" for n, c in enumerate(PALETTE))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(story.title)}</title>"
        f"<style>{STYLE}{colours}{OWN_STYLE}</style></head><body>{patterns(OTHER_FILLS)}"
        f"{_head(story, about, replay)}"
        f'<figure id="lanes"><div id="axis">{ticks}</div><div id="rows">{drawn}</div></figure>'
        f"{_legend(story.nodes)}{_table(entries)}<script>{script}</script></body></html>\n"
    )


def _axis(story: Story, entries: Sequence[Entry]) -> ExactAxis:
    first = entries[0].at_s if entries else 0.0
    return ExactAxis(int(first * 1000), int(story.ends_s * 1000) + 1)


class ExactAxis(TimeAxis):
    """As the audit's axis, without rounding, since a script enlarges the coordinates.

    It shows virtual seconds. Their text is a picture of its own, which stays in view.
    """

    def x(self, at_ms: float) -> float:
        share = (at_ms - self.begin_ms) / (self.end_ms - self.begin_ms)
        plot = WIDTH - LABEL_WIDTH - RIGHT_MARGIN
        return round(LABEL_WIDTH + min(max(share, 0.0), 1.0) * plot, 5)

    def draw(self, height: float) -> str:
        """Return grid lines over `height`."""
        return "".join(
            f'<line class="grid" x1="{self.x(at)}" y1="0" x2="{self.x(at)}" y2="{height}"/>'
            for at in self._at_ms()
        )

    def ticks(self) -> str:
        """Return the times of the grid lines."""
        return "".join(
            f'<text class="tick" x="{self.x(at)}" y="16">{at / 1000:g} s</text>'
            for at in self._at_ms()
        )

    def _at_ms(self) -> Iterator[int]:
        rough = (self.end_ms - self.begin_ms) / 8
        ten: int = 10 ** max(0, len(str(int(rough))) - 1)
        step = next(n * ten for n in (1, 2, 5, 10) if n * ten >= rough)
        return iter(range(-(-self.begin_ms // step) * step, self.end_ms + 1, step))


def _head(story: Story, about: Sequence[str], replay: str) -> str:
    lines = "".join(f'<p class="soft">{escape(one)}</p>' for one in about)
    facts = f"<details><summary>The cluster and its settings</summary>{lines}</details>"
    if story.broken is None:
        verdict = f'<p class="verdict">Every promise held: {escape(effects(story))}.</p>'
    else:
        verdict = (
            f'<p class="verdict broken">At {story.ends_s:.6f} s broke: {escape(story.broken)}</p>'
        )
    first = "" if story.broken is None else '<button id="first">the broken promise</button>'
    return (
        f"<h1>{escape(story.title)}</h1>{verdict}{facts}"
        f"<p>Play it again: <code>{escape(replay)}</code></p>"
        f'<p class="tools">{first}<button id="whole">the whole run</button>'
        '<button id="in">in</button><button id="out">out</button>'
        '<button id="back">earlier</button><button id="on">later</button>'
        '<span class="soft">Click a row or a mark to zoom to it, drag to move. '
        "Times are virtual seconds since the first boot.</span></p>"
    )


def effects(story: Story) -> str:
    """Return how many of the faults took effect."""
    took = sum(one.effect is True for one in story.faults)
    return f"{took} of {max(story.faults_drawn, len(story.faults))} faults took effect"


def _legend(nodes: Iterable[int]) -> str:
    return (
        legend((leader_style(one), f"node {one}") for one in nodes)
        + legend(
            [
                ("up", "up"),
                ("closing", "boots, or no answer"),
                ("paused", "stands still"),
                ("down", "off, or refused"),
                ("role-follower", "follows"),
                ("role-candidate", "stands for election"),
                ("none", "no leader"),
                ("kind-isr", "answered"),
                ("fault", "fault"),
                ("fault-off", "fault without effect"),
                ("m-election", "election"),
                ("m-isr", "ISR"),
                ("m-elr", "ELR"),
                ("m-cut", "truncation"),
                ("lossy", "lossy election, or broken promise"),
            ]
        )
        + (
            '<p class="soft">A lane of a partition, or of the quorum, has the colour of the '
            "leading node. A line between nodes is a rare request: a vote, an ISR change, a "
            "registration, a query of logs. A red line never arrived.</p>"
        )
    )


def _table(entries: Iterable[Entry]) -> str:
    rows = "".join(
        f'<tr data-t="{one.at_s * 1000:.3f}"{_row_class(one)}>'
        f'<td class="at">{one.at_s:.6f} s</td><td class="at">{one.number or ""}</td>'
        f'<td class="name">{escape(one.lane)}</td><td>{escape(one.text)}</td></tr>'
        for one in entries
    )
    return (
        '<h2>The story</h2><p>Only rows with <input id="filter" placeholder="t0-1, fault, ISR">'
        ' <span class="soft">The second column is for <code>--until</code>.</span></p>'
        "<table><thead><tr><th>when</th><th>event</th><th>where</th><th>what</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _row_class(one: Entry) -> str:
    return ' class="broken error"' if one.kind == "broken" else ""


# --- lanes ----------------------------------------------------------------------------------------


def rows_of(story: Story, axis: TimeAxis) -> list[Lane]:
    """Return the lanes in this order: the broken promise, faults, active controller, nodes,
    partitions with their replicas, clients."""
    states: dict[str, list[Span]] = {}
    marks: dict[str, list[Mark]] = {}
    open_at: dict[str, tuple[int, str, str]] = {}
    broken = [one for one in story.tell() if one.kind == "broken"]
    for one in [*story.entries, *broken]:
        at_ms = int(one.at_s * 1000)
        spans = states.setdefault(one.lane, [])
        if one.style is not None:
            _close(spans, open_at.pop(one.lane, None), at_ms)
            if one.style:
                open_at[one.lane] = (at_ms, one.style, one.text)
        style = MARK_STYLES.get(one.kind)
        if style is not None and (one.style is None or one.kind in ELECTIONS):
            marks.setdefault(one.lane, []).append(Mark(at_ms, style, one.text))
    for lane, begun in open_at.items():
        _close(states[lane], begun, axis.end_ms)
    rows = [
        Lane(lane, spans, marks.get(lane, ()))
        for lane, spans in states.items()
        if spans or lane in marks
    ]
    rows += fault_lanes(story.faults, axis)
    rows += _answer_lanes(story.answers)
    return sorted(rows, key=lambda one: _place(one.label))


def _close(spans: list[Span], begun: tuple[int, str, str] | None, at_ms: int) -> None:
    if begun is not None:
        begin_ms, style, text = begun
        spans.append(Span(begin_ms, at_ms, style, f"{begin_ms / 1000:.3f} s: {text}"))


def arrows(messages: Iterable[Message], rows: Sequence[Lane], axis: ExactAxis) -> Iterator[str]:
    """Yield a line between the lanes of two nodes for each message; one that never arrived ends
    half way."""
    middles = {row.label: (number + 0.5) * ROW_HEIGHT for number, row in enumerate(rows)}
    for one in messages:
        if one.source not in middles or one.target not in middles:
            continue
        begin, end = middles[one.source], middles[one.target]
        style, took, arrived_s = "message", "never arrives", one.sent_s
        if one.arrived_s is None:
            style, end = "message lost", (begin + end) / 2
        else:
            arrived_s = one.arrived_s
            took = f"takes {(arrived_s - one.sent_s) * 1000:.1f} ms"
        yield (
            f'<line class="{style}" x1="{axis.x(one.sent_s * 1000)}" y1="{begin}" '
            f'x2="{axis.x(arrived_s * 1000)}" y2="{end}">'
            f"<title>{one.sent_s:.6f} s: {one.name} from {one.source} to {one.target}, {took}"
            "</title></line>"
        )


def fault_lanes(faults: Iterable[FaultSpan], axis: TimeAxis) -> list[Lane]:
    """Return the lanes of faults: each is in the first lane that is free when it begins."""
    found: list[list[Span]] = []
    for one in faults:
        begin_ms = int(one.begin_s * 1000)
        end_ms = axis.end_ms if one.end_s is None else int(one.end_s * 1000)
        effect = "" if one.effect is not False else ", without effect"
        title = f"{one.name}: {one.text}{effect}"
        span = Span(begin_ms, end_ms, FAULT_STYLES[one.effect], title, one.text)
        free = next((lane for lane in found if lane[-1].end_ms <= begin_ms), None)
        if free is None:
            found.append([span])
        else:
            free.append(span)
    return [Lane(f"faults {number}", spans) for number, spans in enumerate(found, 1)]


def _answer_lanes(answers: Iterable[Answered]) -> list[Lane]:
    """Return one lane for each client; the connections of a pipeline (`NAME/NUMBER`) share one."""
    by_client: dict[str, list[Span]] = {}
    for one in answers:
        style = ANSWER_STYLES.get(one.answer, ANSWER_STYLES.get(one.answer[:1], "down"))
        title = f"{one.what} {one.partition}: {one.answer}, {one.times} times"
        span = Span(int(one.begin_s * 1000), int(one.end_s * 1000), style, title)
        by_client.setdefault(re.sub(r"/\d+$", "", one.client), []).append(span)
    return [Lane(f"client {name}", spans) for name, spans in by_client.items()]


def _place(label: str) -> tuple[int, str]:
    order = ("promises", "faults", "controller", "quorum", "node", "brokers")
    for number, name in enumerate(order):
        if label.split(" ")[0].split("-")[0] == name:
            return number, label
    return (len(order) + 1 if label.startswith("client ") else len(order)), label
