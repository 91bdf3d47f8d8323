"""`kraftbox events`: one time line of the actions on a local cluster and their consequences."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from audit.history import LogEvent, LogHistory
from audit.reading.journal import NAMES, Deed, parse, read_file
from audit.reading.logs import UnreadableInput
from kraftbox.cli.happenings import Filter, Happening, of_deed, of_event, replicas_of
from kraftbox.cli.moments import clock
from kraftbox.cli.node_logs import SinceOption, UntilOption, moment
from kraftbox.cli.nodes import DIR_DEFAULT, DirOption, ending_at_a_closed_pipe
from kraftbox.cli.output import CommandFailed, say, say_json
from kraftbox.launcher.place import ClusterPlace

FOLLOW_MS = 300
EVENTS_MAX = 200_000
"""Without --since, the last ones are shown."""

PartitionOption = Annotated[
    str | None,
    typer.Option(
        "--partition",
        metavar="TOPIC-PARTITION",
        help="Only this partition, its brokers and the actions on them.",
    ),
]
NodeOption = Annotated[
    int | None, typer.Option("--node", metavar="ID", help="Only events of this node.")
]


def events(
    directory: DirOption = DIR_DEFAULT,
    since: SinceOption = None,
    until: UntilOption = None,
    partition: PartitionOption = None,
    node: NodeOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new events.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line for programs.")
    ] = False,
) -> None:
    """Show what happened to a local cluster, in order of time, in UTC.

    Actions of operators and tests (kill, pause, cut-off, links, start) with the command that
    requested them, ends of nodes, elections with kind and cause, changes of ISR and ELR, fencing,
    reassignments and settings. The cluster need not run.
    """
    if until is not None and follow:
        raise typer.BadParameter("--follow has no end: leave out --until", param_hint="--follow")
    wanted = Filter(moment(since, "--since"), moment(until, "--until"), node, partition)
    line = TimeLine(ClusterPlace(directory).root, wanted)

    def show(found: list[Happening]) -> None:
        for one in found:
            if as_json:
                say_json(one.document())
            else:
                say(f"{clock(one.time_ms)}  {one.text}")

    with ending_at_a_closed_pipe(), _readable():
        show(line.read())
        while follow:
            time.sleep(FOLLOW_MS / 1000)
            show(line.read_new())


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except UnreadableInput as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}") from None


class TimeLine:
    """The happenings in a cluster's directory: those so far, then the new ones."""

    def __init__(self, root: Path, wanted: Filter) -> None:
        self._root = root
        self._wanted = wanted
        self._deeds: deque[Happening] = deque(maxlen=EVENTS_MAX)
        self._records: deque[Happening] = deque(maxlen=EVENTS_MAX)
        self._replicas: set[int] = set()
        self._journal = JournalTail(root / NAMES[-1])
        self._history = LogHistory([root], self._take_event)

    def read(self) -> list[Happening]:
        """Return the wanted happenings up to now.

        Raises CommandFailed if the directory has no cluster, UnreadableInput, OSError.
        """
        if not self._root.is_dir():
            raise CommandFailed(f"no cluster in {self._root}")
        for deed in read_file(self._root / NAMES[0]):
            self._take_deed(deed)
        self._journal.read(self._take_deed)
        self._history.read()
        return self._taken()

    def read_new(self) -> list[Happening]:
        """Return the wanted happenings since the last call. Raises UnreadableInput, OSError."""
        self._journal.read(self._take_deed)
        self._history.read_new()
        return self._taken()

    def _take_deed(self, deed: Deed) -> None:
        self._deeds.append(of_deed(deed))

    def _take_event(self, event: LogEvent) -> None:
        found = of_event(event)
        if found.place is not None and found.place == self._wanted.partition:
            self._replicas |= replicas_of(found.place, [found])
        if self._wanted.in_time(event.timestamp_ms):
            self._records.append(found)

    def _taken(self) -> list[Happening]:
        together = [*self._deeds, *self._records]
        self._deeds.clear()
        self._records.clear()
        found = [one for one in together if self._wanted.matches(one, self._replicas)]
        return sorted(found, key=lambda one: one.time_ms)


class JournalTail:
    """A journal that grows; it may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read(self, take: Callable[[Deed], None]) -> None:
        """Pass on the whole lines since the last call; begin again in a new file."""
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            if file.seek(0, 2) < self._position:
                self._position = 0
            file.seek(self._position)
            for line in self._whole_lines(file):
                deed = parse(line)
                if deed is not None:
                    take(deed)

    def _whole_lines(self, file: BinaryIO) -> Iterator[bytes]:
        for line in file:
            if not line.endswith(b"\n"):
                return
            self._position += len(line)
            yield line
