"""`kraftbox status`, `top`: processes, quorum, brokers and partitions of a cluster."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kraftbox.cli.cluster_view import ANSWER_MS, snapshot
from kraftbox.cli.clusters import not_running
from kraftbox.cli.nodes import DIR_DEFAULT, DirOption
from kraftbox.cli.output import CommandFailed, JsonFlag, say, say_json, table
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from runtime.printable import escape

WATCH_MS = 1_000
WIDE = 100
"""Columns of a terminal from which all columns are shown."""


def status(
    directory: DirOption = DIR_DEFAULT,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help=(
                "Update the output as the cluster changes: full-screen like "
                "`kraftbox top`, on a pipe every second."
            ),
        ),
    ] = False,
    topics: Annotated[
        bool, typer.Option("--topics", help="Print a line for each topic too.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.01,
            help="Seconds to wait for answers; less if all nodes have answered.",
        ),
    ] = ANSWER_MS / 1000,
    as_json: JsonFlag = False,
) -> None:
    """Show a local cluster: processes, quorum, leaders, ISR, under-replicated partitions.

    It requests the state from all nodes in parallel, except for those that are down, paused or cut
    off.
    """
    place = ClusterPlace(directory)

    def seen() -> dict[str, Any]:
        return snapshot(place, timeout * 1000)

    if watch and not as_json and sys.stdout.isatty():
        top(directory)
        return
    try:
        _show(seen, topics=topics, as_json=as_json)
        while watch:
            time.sleep(WATCH_MS / 1000)
            _show(seen, topics=topics, as_json=as_json)
    except KeyboardInterrupt:
        if not watch:
            raise


def top(directory: DirOption = DIR_DEFAULT) -> None:
    """Show a local cluster on the whole screen: nodes, leaders, ISR, lag, events.

    Each node is queried separately, and no value is older than one second: after that, the screen
    shows for how long the node has been silent. AGE is the age of a node's last answer, BEHIND its
    lag in metadata records, REC/S the records written per second to the partitions that it leads.
    Keys: q or Ctrl-C ends.
    """
    place = ClusterPlace(directory)
    if not sys.stdout.isatty():
        raise CommandFailed("standard output is not a terminal: use kraftbox status --watch")
    if not control.is_supervised(place):
        raise not_running(place.why_not_running())
    from kraftbox.cli.live.screen import show

    show(place)


def _show(seen: Callable[[], dict[str, Any]], *, topics: bool, as_json: bool) -> None:
    if as_json:
        say_json(seen())
    elif not sys.stdout.isatty():
        show_plain(seen(), topics=topics)
    else:
        console = Console()
        console.print(drawn(seen(), topics=topics, width=console.width))
    sys.stdout.flush()


# --- display ----------------------------------------------------------------------------------

_COLUMNS = ("NODE", "ROLES", "STATE", "PID", "LAG", "RACK", "LEADS", "IN SYNC", "ADDRESS", "HTTP")
_TOPIC_COLUMNS = ("TOPIC", "PARTITIONS", "WITHOUT LEADER", "UNDER-REPLICATED")
_STATE_STYLES = {
    "running": "green",
    "fenced": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "paused": "yellow",
    "cut off": "yellow",
    "killed": "red",
    "failed": "bold red",
}


def state_of(node: Mapping[str, Any]) -> str:
    """Return the state of a node's process, or `cut off` or `fenced` for a running one."""
    if node["state"] == "running" and node.get("cutOff"):
        return "cut off"
    if node["state"] == "running" and node.get("fenced"):
        return "fenced"
    return str(node["state"])


def process_lines(found: Mapping[str, Any]) -> list[str]:
    """Return lines with the time, the number of nodes per state, and the failed nodes' errors."""
    states = Counter(state_of(node) for node in found["nodes"])
    named = {
        state: ",".join(str(node["id"]) for node in found["nodes"] if state_of(node) == state)
        for state in states
    }
    counts = [
        f"{count} {state}" + ("" if state == "running" else f" ({named[state]})")
        for state, count in states.items()
    ]
    failed = [node for node in found["nodes"] if node["state"] == "failed"]
    return [
        f"{found['time']}   nodes: {', '.join(counts)}",
        *(
            f"node {node['id']} failed: {node['error'] or 'exit code ' + str(node['exitCode'])}"
            for node in failed
        ),
    ]


def headline(found: Mapping[str, Any]) -> str:
    """Return the state of quorum and partitions in one line."""
    quorum = found["quorum"]
    parts = ["quorum: no answer from a leader"]
    if quorum is not None:
        parts = [
            f"quorum: leader {quorum['leader']}, epoch {quorum['epoch']}, "
            f"high watermark {quorum['highWatermark']}"
        ]
    partitions = found["partitions"]
    if partitions is None:
        parts.append("partitions: no answer from a broker")
    else:
        parts.append(
            f"partitions: {partitions['total']}, {partitions['underReplicated']} under-replicated, "
            f"{partitions['leaderless']} without leader"
        )
    return "   ".join(parts)


def rows(found: Mapping[str, Any]) -> list[list[str | None]]:
    """Return one row per node, in the order of _COLUMNS."""
    quorum = found["quorum"] or {"voters": [], "observers": [], "leader": None}
    lag = {r["id"]: r["lag"] for r in [*quorum["voters"], *quorum["observers"]]}
    made: list[list[str | None]] = []
    for node in found["nodes"]:
        own_lag = lag.get(node["id"])
        in_sync = f"{node['inSync']}/{node['replicas']}" if "inSync" in node else None
        made.append(
            [
                str(node["id"]),
                node["roles"] + (" *" if node["id"] == quorum["leader"] else ""),
                state_of(node),
                None if node["pid"] is None else str(node["pid"]),
                None if own_lag is None else str(own_lag),
                node["rack"],
                str(node["leaders"]) if "leaders" in node else None,
                in_sync,
                ",".join(one.partition("://")[2] for one in node["listeners"].split(",")),
                node["http"],
            ]
        )
    return made


def waiting_lines(found: Mapping[str, Any]) -> list[str]:
    """Return what partitions without leader wait for, a line each.

    The last line counts the rest.
    """
    partitions = found["partitions"]
    if partitions is None or not partitions["waiting"]:
        return []
    lines = [
        f"{one['topic']}-{one['partition']} waits for {one['text']}"
        for one in partitions["waiting"]
    ]
    more = partitions["leaderless"] - len(lines)
    return [*lines, f"and {more} more without leader"] if more > 0 else lines


def topic_rows(found: Mapping[str, Any]) -> list[list[str | None]]:
    """Return one row per topic, in the order of _TOPIC_COLUMNS."""
    return [
        [one["name"], *(str(one[key]) for key in ("total", "leaderless", "underReplicated"))]
        for one in found["topics"] or ()
    ]


def show_plain(found: Mapping[str, Any], *, topics: bool) -> None:
    for line in [*process_lines(found), headline(found), *waiting_lines(found)]:
        say(line)
    table(_COLUMNS, rows(found))
    if topics:
        table(_TOPIC_COLUMNS, topic_rows(found))


def drawn(found: Mapping[str, Any], *, topics: bool, width: int) -> RenderableType:
    """Return the content of `show_plain` as a rich renderable.

    A terminal of fewer than WIDE columns has no HTTP column; no cell is folded.
    """
    cut = len(_COLUMNS) if width >= WIDE else -1
    shown = _empty_table(_COLUMNS[:cut])
    for row in rows(found):
        cells = [_text("-" if cell is None else cell) for cell in row[:cut]]
        cells[2].stylize(_STATE_STYLES.get(row[2] or "", ""))
        shown.add_row(*cells)
    waiting = [_text(line, style="yellow") for line in waiting_lines(found)]
    first, *failed = process_lines(found)
    parts = [_text(first), *(_text(line, style="bold red") for line in failed)]
    parts += [_text(headline(found)), *waiting]
    if not topics:
        return Group(*parts, shown)
    of_topics = _empty_table(_TOPIC_COLUMNS)
    for row in topic_rows(found):
        of_topics.add_row(*(_text(cell or "-") for cell in row))
    return Group(*parts, shown, of_topics)


def _text(text: str, style: str = "") -> Text:
    return Text(escape(text), style)


def _empty_table(columns: Sequence[str]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        shown.add_column(column, no_wrap=True)
    return shown
