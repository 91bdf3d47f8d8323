"""`kraftbox logs`: the nodes' logs, merged by time."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import typer

from kraftbox.cli import completion
from kraftbox.cli.moments import parse_moment
from kraftbox.cli.nodes import DIR_DEFAULT, DirOption, ending_at_a_closed_pipe
from kraftbox.cli.output import CommandFailed
from kraftbox.launcher.place import ClusterPlace
from runtime.errors import StartupRefused
from runtime.printable import escape_bytes

FOLLOW_MS = 100
LINES_DEFAULT = 100

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Begin at this time: 12:03 (UTC), 10m (ago), 2026-05-01T12:03:05.",
    ),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="End at this time.")
]


def logs(
    node_ids: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[ID]...", help="Ids of nodes; default: all.", autocompletion=completion.nodes
        ),
    ] = None,
    directory: DirOption = DIR_DEFAULT,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            metavar="N",
            show_default=False,
            help=(
                f"Number of earlier lines per node. Default: {LINES_DEFAULT}, or all with --since."
            ),
        ),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Show the nodes' logs in order of time. With several nodes each line begins with the ID."""
    if until is not None and follow:
        raise typer.BadParameter("--follow has no end: leave out --until", param_hint="--follow")
    begin_ms, end_ms = moment(since, "--since"), moment(until, "--until")
    if lines is None:
        lines = LINES_DEFAULT if begin_ms is None and end_ms is None else sys.maxsize
    tails = [Tail(node_id, path) for node_id, path in _files(directory, node_ids)]
    prefixed = len(tails) > 1

    def is_wanted(line: Line) -> bool:
        return (begin_ms is None or line.time_ms >= begin_ms) and (
            end_ms is None or line.time_ms <= end_ms
        )

    with ending_at_a_closed_pipe():
        try:
            write([line for tail in tails for line in tail.last(lines, is_wanted)], prefixed)
            while follow:
                time.sleep(FOLLOW_MS / 1000)
                write([line for tail in tails for line in tail.new()], prefixed)
        finally:
            for tail in tails:
                tail.close()


def _files(directory: Path, node_ids: Sequence[int] | None) -> list[tuple[int, Path]]:
    """Return the log files of the nodes, of all without IDs. Raises CommandFailed."""
    place = ClusterPlace(directory)
    try:
        known = place.node_logs()
    except StartupRefused as error:
        raise CommandFailed(str(error)) from None
    if not known:
        raise CommandFailed(f"no cluster in {place.root}")
    for node_id in node_ids or ():
        if node_id not in known:
            raise CommandFailed(f"unknown node {node_id}; known: {', '.join(map(str, known))}")
    return [(one, known[one]) for one in dict.fromkeys(node_ids or known)]


def moment(text: str | None, option: str) -> int | None:
    """Return the time of an option in ms since 1970. Raises BadParameter."""
    try:
        return None if text is None else parse_moment(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


class Line(NamedTuple):
    """A line of a node's log. A line without a time of its own has the time of the one before."""

    time_ms: int
    node_id: int
    text: bytes


def write(lines: Iterable[Line], prefixed: bool, out: BinaryIO | None = None) -> None:
    """Print lines of several nodes in order of time; the order of each node's lines stays."""
    ordered = sorted(lines, key=lambda line: line.time_ms)
    stream = sys.stdout.buffer if out is None else out
    stream.write(
        b"".join(
            (f"{line.node_id:>3} | ".encode() if prefixed else b"") + escape_bytes(line.text)
            for line in ordered
        )
    )
    stream.flush()


_CONSOLE = re.compile(rb"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d),(\d{3})\]")
_JSON = re.compile(rb'"timestamp":"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z"')


def time_of(line: bytes) -> int | None:
    """Return the time of a line in ms since 1970, None for a line without one."""
    match = _CONSOLE.match(line) or (_JSON.search(line) if line.startswith(b"{") else None)
    if match is None:
        return None
    year, month, day, hour, minute, second, ms = map(int, match.groups())
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return round(at.timestamp()) * 1000 + ms


class Tail:
    """A log file and the position up to which it was read, in whole lines.

    It may not exist yet.
    """

    def __init__(self, node_id: int, path: Path) -> None:
        self._node_id = node_id
        self._path = path
        self._file: BinaryIO | None = None
        self._time_ms = 0

    def last(self, count: int, is_wanted: Callable[[Line], bool] = lambda _: True) -> list[Line]:
        """Return the last `count` whole lines among the wanted ones."""
        kept: deque[Line] = deque(maxlen=min(count, sys.maxsize))
        kept.extend(line for line in self._lines() if is_wanted(line))
        return list(kept)

    def new(self) -> list[Line]:
        """Return the whole lines that were appended since the last call."""
        return list(self._lines())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _lines(self) -> Iterable[Line]:
        file = self._open()
        while file is not None:
            at = file.tell()
            text = file.readline()
            if not text.endswith(b"\n"):
                file.seek(at)
                return
            self._time_ms = time_of(text) or self._time_ms
            yield Line(self._time_ms, self._node_id, text)

    def _open(self) -> BinaryIO | None:
        if self._file is None:
            try:
                self._file = open(self._path, "rb")  # noqa: SIM115 - kept open between calls
            except FileNotFoundError:
                return None
        return self._file
