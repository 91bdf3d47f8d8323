"""Lines of the live view, for a screen of any size. Pure.

The sections share the height: each gets a line in turn until all rows are shown or no line is left.
So a cluster with many topics does not push the events off the screen. On a narrow screen the last
columns are left out; 60 columns show everything important. Colour never carries information that
the text does not contain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rich.text import Text

from kraftbox.cli.live.facts import NodeRow, Partition, Seen, is_internal, named
from runtime.printable import escape

GOOD, WARNING, BAD, DIM = "green", "yellow", "bold red", "dim"
_STATES = {
    "running": GOOD,
    "fenced": WARNING,
    "starting": WARNING,
    "stopping": WARNING,
    "paused": WARNING,
    "cut off": WARNING,
    "killed": BAD,
    "failed": BAD,
}
_GAP = "  "


class Cell(NamedTuple):
    text: str
    style: str = ""


def _text(text: str = "", style: str = "") -> Text:
    """Return an escaped line: clients choose the names and errors in it."""
    return Text(escape(text), style)


def _assembled(*parts: tuple[str, str] | str) -> Text:
    """Return a line assembled from parts, each with or without a style."""
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((escape(text), style) for text, style in pairs))


class Section(NamedTuple):
    """A table: its head, its rows, and the indexes of its numeric columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: frozenset[int] = frozenset()


def lines(seen: Seen, where: str, now: datetime, width: int, height: int) -> list[Text]:
    """Return at most `height` lines of `width` columns.

    `where` names the cluster; `now` is the wall clock at `seen.at_ms`.
    """
    top = [*_headlines(seen, where, now)]
    sections = [one for one in _sections(seen) if one.rows]
    events = [_event(seen, one.at_ms, one.text, one.is_bad, now) for one in seen.events]
    # Each section has a head and follows an empty line.
    room = height - len(top) - 2 * len(sections) - 2 * bool(events)
    *of_sections, of_events = shares([*(len(one.rows) for one in sections), len(events)], room)
    found = top
    for section, share in zip(sections, of_sections, strict=True):
        if share > 0:
            found += [_text(), *_table(section, share, width)]
    if of_events > 0:
        found += [_text(), _text("LAST EVENTS", "bold"), *reversed(events[-of_events:])]
    for line in found:
        line.truncate(width, overflow="ellipsis")
    return found[: max(height, 0)]


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Distribute `room` lines: one to each in turn, until all have what they want or none is
    left.
    """
    given = [0] * len(wanted)
    while room > 0:
        hungry = [at for at, want in enumerate(wanted) if given[at] < want]
        if not hungry:
            break
        for at in hungry[:room]:
            given[at] += 1
        room -= len(hungry[:room])
    return given


# --- the headlines ----------------------------------------------------------------------------


def _headlines(seen: Seen, where: str, now: datetime) -> list[Text]:
    silent = [
        f"{row.node_id} ({_seconds(row.silent_ms)})"
        for row in seen.nodes
        if row.silent_ms is not None
    ]
    found = [
        _assembled(
            (f"{now:%H:%M:%S %Z}".rstrip(), "bold"),
            f"  data at most {_seconds(seen.age_ms)} old  ",
            (where, DIM),
        )
    ]
    if seen.supervisor_silent_ms is not None:
        why = f": {seen.supervisor_error}" if seen.supervisor_error else ""
        text = f"no answer from the supervisor for {_seconds(seen.supervisor_silent_ms)}{why}"
        found.append(_text(text, BAD))
    found.append(_states(seen.nodes))
    if silent:
        found.append(_text(f"not answering: {', '.join(silent)}", BAD))
    found += [
        _text(f"node {row.node_id} failed: {row.error}", BAD)
        for row in seen.nodes
        if row.state == "failed" and row.error
    ]
    if seen.quorum is None:
        found.append(_text("quorum: no answer from a leader", BAD))
    else:
        quorum = seen.quorum
        found.append(
            _text(
                f"quorum: leader {quorum.leader}, epoch {quorum.epoch}, "
                f"high watermark {quorum.high_watermark}"
            )
        )
    found.append(_partitions(seen))
    return found


def _states(nodes: Sequence[NodeRow]) -> Text:
    """Return the number of nodes per state, with the IDs of those that are not running."""
    counts = Counter(row.state or "unknown" for row in nodes)
    text = _text(f"nodes {len(nodes)}: ")
    for number, (state, count) in enumerate(counts.items()):
        ids = [str(row.node_id) for row in nodes if (row.state or "unknown") == state]
        which = "" if state == "running" else f" ({','.join(ids)})"
        text.append(f"{', ' if number else ''}{count} ")
        text.append(f"{state}{which}", _STATES.get(state, WARNING))
    return text


def _partitions(seen: Seen) -> Text:
    if seen.partitions is None:
        return _text("partitions: no answer from a broker", BAD)
    those = seen.partitions
    leaderless = sum(one.leader < 0 for one in those)
    lacking = sum(not one.is_whole for one in those)
    eligible = sum(bool(one.elr) for one in those)
    more = " (first page; more exist)" if seen.is_cut else ""
    text = _text(f"partitions {len(those)}{more}: ")
    text.append(f"{leaderless} without leader", BAD if leaderless else "")
    text.append(", ")
    text.append(f"{lacking} lack replicas", WARNING if lacking else "")
    text.append(f", {eligible} with ELR")
    return text


# --- the sections -----------------------------------------------------------------------------


def _sections(seen: Seen) -> list[Section]:
    troubled = [one for one in seen.partitions or () if not one.is_whole]
    troubled.sort(key=lambda one: (one.leader >= 0, is_internal(one.topic), one.name))
    return [
        Section(
            (
                *("NODE", "ROLES", "STATE", "AGE", "LEADS", "IN SYNC"),
                *("REC/S", "BEHIND", "RACK", "ADDRESS"),
            ),
            [_node(row) for row in seen.nodes],
            frozenset({0, 4, 5, 6, 7}),
        ),
        Section(
            ("LACKING", "LEADER", "ISR", "ELR", "REPLICAS"),
            [_troubled(one) for one in troubled],
        ),
        Section(
            ("GROUP", "STATE", "LAG"),
            [
                (
                    Cell(row.name),
                    Cell(row.state, "" if row.lag is not None else WARNING),
                    Cell(
                        "-"
                        if row.lag is None
                        else f"{row.lag:,}" + (f" + {row.unknown} unknown" if row.unknown else "")
                    ),
                )
                for row in seen.groups
            ],
        ),
        Section(
            ("TOPIC", "PARTITIONS", "NO LEADER", "LACKING", "REC/S"),
            [
                (
                    Cell(row.name),
                    Cell(str(row.partitions)),
                    Cell(str(row.leaderless), BAD if row.leaderless else ""),
                    Cell(str(row.lacking), WARNING if row.lacking else ""),
                    Cell(_rate(row.per_s)),
                )
                for row in seen.topics
            ],
            frozenset({1, 2, 3, 4}),
        ),
    ]


def _node(row: NodeRow) -> list[Cell]:
    if row.silent_ms is not None:
        # The headline states that the node is silent.
        age = Cell(f"{_seconds(row.silent_ms)} !", BAD)
    else:
        age = Cell("-" if row.age_ms is None else _seconds(row.age_ms))
    roles = "both" if "," in row.roles else row.roles
    in_sync = "-" if row.in_sync is None else f"{row.in_sync}/{row.replicas}"
    lacking = row.in_sync is not None and row.in_sync != row.replicas
    return [
        Cell(str(row.node_id)),
        Cell(roles + (" *" if row.is_active else "")),
        Cell(row.state or "unknown", _STATES.get(row.state or "", WARNING)),
        age,
        Cell(_count(row.leads)),
        Cell(in_sync, WARNING if lacking else ""),
        Cell(_rate(row.per_s)),
        Cell(_count(row.behind)),
        Cell(row.rack or "-"),
        Cell(row.address),
    ]


def _troubled(one: Partition) -> list[Cell]:
    leader = Cell("none", BAD) if one.leader < 0 else Cell(str(one.leader))
    return [
        Cell(one.name),
        leader,
        Cell(_ids(one.isr), WARNING),
        Cell(_ids(one.elr)),
        Cell(_ids(one.replicas)),
    ]


def _table(section: Section, share: int, width: int) -> list[Text]:
    """Return the head and `share` rows; if rows are left out, the last line counts them."""
    shown = list(section.rows[:share])
    left_out = (
        [row[0].text for row in section.rows[share - 1 :]] if share < len(section.rows) else []
    )
    if left_out:
        shown = shown[:-1]
    rows = [[Cell(text, "bold") for text in section.head], *shown]
    cells = [[cell._replace(text=escape(cell.text)) for cell in row] for row in rows]
    widths = [max(len(row[at].text) for row in cells) for at in range(len(section.head))]
    columns = fitting(widths, width)
    made = []
    for row in cells:
        line = _text()
        for place, at in enumerate(columns):
            cell = row[at]
            text = cell.text.rjust(widths[at]) if at in section.numbers else cell.text
            line.append(_GAP if place else "")
            line.append(text, cell.style)
            line.append(" " * (widths[at] - len(text)))
        made.append(line)
    if left_out:
        made.append(_text(f"and {len(left_out)} more: {named(left_out)}", DIM))
    return made


def fitting(widths: Sequence[int], width: int) -> list[int]:
    """Return the columns that fit into `width`, from the first; the first is always included."""
    found: list[int] = []
    used = 0
    for at, one in enumerate(widths):
        used += one + (len(_GAP) if at else 0)
        if at and used > width:
            break
        found.append(at)
    return found


def _event(seen: Seen, at_ms: float, text: str, is_bad: bool, now: datetime) -> Text:
    at = datetime.fromtimestamp(now.timestamp() - (seen.at_ms - at_ms) / 1000, now.tzinfo)
    return _assembled((f"{at:%H:%M:%S} ", DIM), (text, BAD if is_bad else ""))


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.1f} s" if ms < 10_000 else f"{ms / 1000:.0f} s"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:,.0f}"


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"
