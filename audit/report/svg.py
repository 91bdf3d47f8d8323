"""Pictures as inline SVG: a time axis, lanes of coloured spans, lines, bars.

A picture loads no files and runs no scripts, so a report opens in any browser, offline and years
later. Colours are CSS classes, so that the page defines them for light and dark screens. Every mark
has a `<title>`, which browsers show as a tooltip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

WIDTH = 1100
LABEL_WIDTH = 190
RIGHT_MARGIN = 16
ROW_HEIGHT = 20
AXIS_HEIGHT = 42
LEADER_COLOURS = 12
"""Classes b0 to b11; higher broker IDs repeat them."""
_STEPS_MS = (
    1, 10, 100, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 10_800_000,
    43_200_000, 86_400_000, 604_800_000, 2_592_000_000,
)  # fmt: skip


class Span(NamedTuple):
    """A coloured part of a lane; `text` is drawn in it if there is room."""

    begin_ms: int
    end_ms: int
    style: str
    title: str
    text: str = ""


class Mark(NamedTuple):
    """A point of a lane, drawn as a diamond; `name` is the target of links."""

    at_ms: int
    style: str
    title: str
    name: str = ""


class Lane(NamedTuple):
    label: str
    spans: Sequence[Span]
    marks: Sequence[Mark] = ()


class Line(NamedTuple):
    """A step line: (time, value)."""

    label: str
    style: str
    points: Sequence[tuple[int, int]]


class TimeAxis:
    """Maps time to x. A span without length is drawn as one second."""

    def __init__(self, begin_ms: int, end_ms: int) -> None:
        self.begin_ms = begin_ms
        self.end_ms = max(end_ms, begin_ms + 1000)

    def x(self, at_ms: int) -> float:
        share = (at_ms - self.begin_ms) / (self.end_ms - self.begin_ms)
        plot = WIDTH - LABEL_WIDTH - RIGHT_MARGIN
        return round(LABEL_WIDTH + min(max(share, 0.0), 1.0) * plot, 1)

    def draw(self, height: float) -> str:
        """Return grid lines over `height`, and their times below."""
        length = self.end_ms - self.begin_ms
        step = next((s for s in _STEPS_MS if length / s <= 10), length)
        form = "%H:%M:%S" if step >= 1000 else "%H:%M:%S.%f"
        if step >= 86_400_000:
            form = "%Y-%m-%d"
        out = []
        at = -(-self.begin_ms // step) * step
        while at <= self.end_ms:
            x = self.x(at)
            text = datetime.fromtimestamp(at / 1000, UTC).strftime(form)
            text = text[:-3] if form.endswith("%f") else text
            out.append(f'<line class="grid" x1="{x}" y1="0" x2="{x}" y2="{height}"/>')
            out.append(f'<text class="tick" x="{x}" y="{height + 16}">{text}</text>')
            at += step
        middle = (LABEL_WIDTH + WIDTH - RIGHT_MARGIN) / 2
        unit = "date" if step >= 86_400_000 else "time of day"
        out.append(f'<text class="axis" x="{middle}" y="{height + 34}">{unit}, UTC</text>')
        return "".join(out)


def leader_style(broker_id: int) -> str:
    """Return the colour class of a broker."""
    return f"b{broker_id % LEADER_COLOURS}"


def picture(height: float, body: str, title: str) -> str:
    """Return an SVG element that fits the page's width."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )


def lanes(axis: TimeAxis, rows: Sequence[Lane], title: str) -> str:
    """Return one row per lane, over a common time axis."""
    height = len(rows) * ROW_HEIGHT
    out = [axis.draw(height)]
    for number, lane in enumerate(rows):
        top = number * ROW_HEIGHT
        label = lane.label if len(lane.label) <= 28 else lane.label[:12] + "…" + lane.label[-15:]
        out.append(
            f'<text class="label" x="{LABEL_WIDTH - 8}" y="{top + 14}">{escape(label)}'
            f"<title>{escape(lane.label)}</title></text>"
        )
        out += [_span(axis, span, top) for span in lane.spans]
        out += [_mark(axis, mark, top) for mark in lane.marks]
    return picture(height + AXIS_HEIGHT, "".join(out), title)


def _span(axis: TimeAxis, span: Span, top: float) -> str:
    left, right = axis.x(span.begin_ms), axis.x(span.end_ms)
    text = ""
    if span.text and right - left > 10 + 7 * len(span.text):
        text = (
            f'<text class="inside" x="{(left + right) / 2:.1f}" y="{top + 14}">'
            f"{escape(span.text)}</text>"
        )
    return (
        f'<rect class="{span.style}" x="{left}" y="{top + 3}" width="{max(right - left, 1):.1f}" '
        f'height="{ROW_HEIGHT - 6}"><title>{escape(span.title)}</title></rect>{text}'
    )


def _mark(axis: TimeAxis, mark: Mark, top: float) -> str:
    x, y, size = axis.x(mark.at_ms), top + ROW_HEIGHT / 2, 6
    name = f' id="{escape(mark.name)}"' if mark.name else ""
    return (
        f'<path class="{mark.style}"{name} d="M{x} {y - size}L{x + size} {y}L{x} {y + size}'
        f'L{x - size} {y}Z"><title>{escape(mark.title)}</title></path>'
    )


def step_lines(
    axis: TimeAxis, lines: Sequence[Line], title: str, unit: str, height: float = 170
) -> str:
    """Return step lines over a common scale, which begins at zero and counts `unit`."""
    top = max((value for line in lines for _, value in line.points), default=0) or 2
    top += top % 2  # the tick at half the height is a whole number
    out = [axis.draw(height)]
    for share in (0.0, 0.5, 1.0):
        y = round(height - share * (height - 10), 1)
        out.append(
            f'<line class="grid" x1="{LABEL_WIDTH}" y1="{y}" x2="{WIDTH - RIGHT_MARGIN}" '
            f'y2="{y}"/><text class="label" x="{LABEL_WIDTH - 8}" y="{y + 4}">'
            f"{top * share:g}</text>"
        )
    out.append(
        f'<text class="axis" transform="translate(60 {height / 2:g}) rotate(-90)">{unit}</text>'
    )
    for line in lines:
        out.append(
            f'<path class="line {line.style}" d="{_steps(axis, line, top, height)}">'
            f"<title>{escape(line.label)}</title></path>"
        )
    return picture(height + AXIS_HEIGHT, "".join(out), title)


def _steps(axis: TimeAxis, line: Line, top: int, height: float) -> str:
    out: list[str] = []
    for at_ms, value in line.points:
        x, y = axis.x(at_ms), round(height - value / top * (height - 10), 1)
        out.append(f"H{x}V{y}" if out else f"M{x} {y}")
    if line.points:
        out.append(f"H{axis.x(axis.end_ms)}")
    return "".join(out)


def bars(rows: Sequence[tuple[str, int, str]], title: str, unit: str) -> str:
    """Horizontal bars, which count `unit`: label, count, style."""
    top = max((count for _, count, _ in rows), default=0) or 1
    plot = WIDTH - LABEL_WIDTH - RIGHT_MARGIN - 80
    out = []
    for number, (label, count, style) in enumerate(rows):
        y = number * (ROW_HEIGHT + 4)
        width = count / top * plot
        out.append(
            f'<text class="label" x="{LABEL_WIDTH - 8}" y="{y + 15}">{escape(label)}</text>'
            f'<rect class="{style}" x="{LABEL_WIDTH}" y="{y + 2}" width="{max(width, 1):.1f}" '
            f'height="{ROW_HEIGHT - 3}"/>'
            f'<text class="value" x="{LABEL_WIDTH + width + 8:.1f}" y="{y + 15}">{count:,}</text>'
        )
    height = len(rows) * (ROW_HEIGHT + 4)
    out.append(f'<text class="axis" x="{LABEL_WIDTH + plot / 2}" y="{height + 14}">{unit}</text>')
    return picture(height + 22, "".join(out), title)


PATTERNS = (
    "",
    '<path d="M0 8L8 0M-2 2L2 -2M6 10L10 6"/>',
    '<circle cx="4" cy="4" r="1.3"/>',
    '<path d="M4 0V8"/>',
    '<path d="M0 0L8 8M-2 6L2 10M6 -2L10 2"/>',
    '<path d="M0 4H8"/>',
)
"""Patterns over the colours, so that two are distinguishable without colours or a screen."""


def patterns(colours: Sequence[tuple[str, str]]) -> str:
    """Return fills for the page, by name and colour; neighbours differ in their patterns.

    `fill: url(#NAME)` uses one.
    """
    made = "".join(
        f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" fill="{colour}"/>'
        f'<g class="over">{PATTERNS[number % len(PATTERNS)]}</g></pattern>'
        for number, (name, colour) in enumerate(colours)
    )
    return f'<svg class="defs" width="0" height="0" aria-hidden="true"><defs>{made}</defs></svg>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Return coloured squares with their meaning: (style, text)."""
    items = "".join(
        f'<span class="key"><svg viewBox="0 0 10 10"><rect class="{style}" width="10" '
        f'height="10"/></svg>{escape(text)}</span>'
        for style, text in entries
    )
    return f'<p class="legend">{items}</p>'
