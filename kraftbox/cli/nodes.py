"""`kraftbox node`, `down`, `logs`: control of a local cluster and its nodes."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from kraftbox.cli.clusters import not_running
from kraftbox.cli.output import CommandFailed, command_group, say
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from runtime.errors import StartupRefused
from runtime.printable import escape_bytes

FOLLOW_MS = 100
LINES_DEFAULT = 100

DirOption = Annotated[
    Path,
    typer.Option(
        "--dir", envvar="KRAFTBOX_DIR", metavar="FOLDER", help="Directory of the cluster."
    ),
]
DIR_DEFAULT = Path("kraftbox-data")
IdArgument = Annotated[list[int], typer.Argument(metavar="ID...", help="Ids of the nodes.")]
WaitOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="Seconds to wait for the result.")
]

node_app = command_group("Kill, stop, pause, resume or start single nodes of a cluster.")


@node_app.command("kill")
def kill(ids: IdArgument, directory: DirOption = DIR_DEFAULT, timeout: WaitOption = 10.0) -> None:
    """End nodes with SIGKILL, without a clean shutdown."""
    _act("kill", "killed", ids, directory, timeout)


@node_app.command("stop")
def stop(ids: IdArgument, directory: DirOption = DIR_DEFAULT, timeout: WaitOption = 40.0) -> None:
    """Stop nodes cleanly: brokers hand over the partitions they lead and flush all data."""
    _act("stop", "stopped", ids, directory, timeout)


@node_app.command("pause")
def pause(ids: IdArgument, directory: DirOption = DIR_DEFAULT, timeout: WaitOption = 10.0) -> None:
    """Freeze nodes with SIGSTOP: their connections stay open, and they answer nothing."""
    _act("pause", "paused", ids, directory, timeout)


@node_app.command("resume")
def resume(ids: IdArgument, directory: DirOption = DIR_DEFAULT, timeout: WaitOption = 10.0) -> None:
    """Resume paused nodes with SIGCONT."""
    _act("resume", "resumed", ids, directory, timeout)


@node_app.command("cut-off")
def cut_off(
    ids: IdArgument, directory: DirOption = DIR_DEFAULT, timeout: WaitOption = 10.0
) -> None:
    """Cut nodes off from the network: they keep running, but no packet reaches them (Linux)."""
    _act("cut-off", "cut off", ids, directory, timeout)


@node_app.command("reconnect")
def reconnect(
    ids: IdArgument, directory: DirOption = DIR_DEFAULT, timeout: WaitOption = 10.0
) -> None:
    """Undo cut-off; connections from before are reset."""
    _act("reconnect", "reconnected", ids, directory, timeout)


@node_app.command("start")
def start(ids: IdArgument, directory: DirOption = DIR_DEFAULT, timeout: WaitOption = 30.0) -> None:
    """Start nodes that are down, at their old addresses, and wait until they serve."""
    _act("start", "ready", ids, directory, timeout)


def _act(action: str, done: str, ids: list[int], directory: Path, timeout_s: float) -> None:
    place = ClusterPlace(directory)
    for node_id in ids:
        try:
            control.act(place, action, node_id, int(timeout_s * 1000))
        except control.NotRunning as error:
            raise not_running(error) from None
        except control.RequestFailed as error:
            raise CommandFailed(f"{action} {node_id}: {error}") from None
        say(f"node {node_id} is {done}")


def down(directory: DirOption = DIR_DEFAULT) -> None:
    """Stop a cluster cleanly; `kraftbox up` with the same --dir resumes it."""
    place = ClusterPlace(directory)
    try:
        if not control.down(place):
            raise not_running(place.why_not_running())
    except control.RequestFailed as error:
        raise CommandFailed(str(error)) from None
    say("the cluster has stopped")


def logs(
    node_id: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="Id of one node; default: all nodes.")
    ] = None,
    directory: DirOption = DIR_DEFAULT,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Number of earlier lines per node.")
    ] = LINES_DEFAULT,
) -> None:
    """Show the nodes' logs. With several nodes each line begins with the node's ID."""
    place = ClusterPlace(directory)
    try:
        known = place.node_logs()
    except StartupRefused as error:
        raise CommandFailed(str(error)) from None
    if not known:
        raise CommandFailed(f"no cluster in {place.root}")
    if node_id is not None and node_id not in known:
        raise CommandFailed(f"unknown node {node_id}; known: {', '.join(map(str, known))}")
    chosen = known if node_id is None else [node_id]
    tails = [
        Tail(known[one], f"{one:>3} | ".encode() if node_id is None else b"") for one in chosen
    ]
    try:
        for tail in tails:
            tail.show_last(lines)
        while follow:
            for tail in tails:
                tail.show_new()
            time.sleep(FOLLOW_MS / 1000)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The reader of the pipe has closed it; the interpreter's flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    finally:
        for tail in tails:
            tail.close()


class Tail:
    """A log file and the position up to which it was shown, in whole lines.

    It may not exist yet.
    """

    def __init__(self, path: Path, prefix: bytes, out: BinaryIO | None = None) -> None:
        self._path = path
        self._prefix = prefix
        self._out = sys.stdout.buffer if out is None else out
        self._file: BinaryIO | None = None

    def show_last(self, lines: int) -> None:
        """Print the last `lines` whole lines."""
        if self._open() is None:
            return
        last: deque[bytes] = deque(maxlen=lines)
        last.extend(iter(self._line, b""))
        self._write(list(last))

    def show_new(self) -> None:
        """Print the whole lines that were appended since the last call."""
        if self._open() is not None:
            self._write(list(iter(self._line, b"")))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> BinaryIO | None:
        if self._file is None:
            try:
                self._file = open(self._path, "rb")  # noqa: SIM115 - kept open between calls
            except FileNotFoundError:
                return None
        return self._file

    def _line(self) -> bytes:
        """Return the next whole line, empty before it is complete."""
        assert self._file is not None
        at = self._file.tell()
        line = self._file.readline()
        if line.endswith(b"\n"):
            return line
        self._file.seek(at)
        return b""

    def _write(self, lines: list[bytes]) -> None:
        self._out.write(b"".join(self._prefix + escape_bytes(line) for line in lines))
        self._out.flush()
