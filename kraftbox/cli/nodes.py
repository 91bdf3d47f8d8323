"""`kraftbox node`, `down`: control of a local cluster and its nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kraftbox.cli import completion
from kraftbox.cli.clusters import not_running
from kraftbox.cli.output import CommandFailed, command_group, say
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.states import ALIVE

DirOption = Annotated[
    Path,
    typer.Option(
        "--dir", envvar="KRAFTBOX_DIR", metavar="FOLDER", help="Directory of the cluster."
    ),
]
DIR_DEFAULT = Path("kraftbox-data")
IdArgument = Annotated[
    list[int],
    typer.Argument(metavar="ID...", help="Ids of the nodes.", autocompletion=completion.nodes),
]
OptionalIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]...", help="Ids of the nodes.", autocompletion=completion.nodes),
]
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
def start(
    ids: OptionalIds = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Start all nodes that are down.")
    ] = False,
    directory: DirOption = DIR_DEFAULT,
    timeout: WaitOption = 30.0,
) -> None:
    """Start nodes that are down, at their old addresses, and wait until they serve."""
    if bool(ids) == everything:
        raise typer.BadParameter("name nodes, or give --all", param_hint="ID...")
    chosen = list(ids or ())
    if everything:
        chosen = _down(directory)
        if not chosen:
            say("no node is down")
    _act("start", "ready", chosen, directory, timeout)


def _down(directory: Path) -> list[int]:
    """Return the nodes that are down, controllers first: a broker can only register with one.

    Raises CommandFailed.
    """
    try:
        nodes = control.status(ClusterPlace(directory))["nodes"]
    except control.NotRunning as error:
        raise not_running(error) from None
    except control.RequestFailed as error:
        raise CommandFailed(str(error)) from None
    down = [node for node in nodes if node["state"] not in ALIVE]
    return [node["id"] for node in sorted(down, key=lambda node: node["roles"] == "broker")]


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


@contextmanager
def ending_at_a_closed_pipe() -> Iterator[None]:
    """End output without an error at Ctrl-C, or if the reader of the pipe has closed it."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The interpreter's flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
