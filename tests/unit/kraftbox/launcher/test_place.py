"""The directory of a cluster: a read takes no lock, and leaves no file open."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftbox.launcher import control, early
from kraftbox.launcher.links import WHOLE, LinkRule
from kraftbox.launcher.place import ClusterPlace, plan_cluster, port_is_free
from kraftbox.launcher.plan import HOST, AskedShape
from kraftbox.launcher.router import NetworkControl, NetworkError
from kraftbox.testing.channel import ClusterError, ask_supervisor

LONG = "long-" * 20
"""A path too long for a socket address: it is reached through a descriptor."""


def open_descriptors() -> set[str]:
    """Return the descriptors of this process, without the one of this listing."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            continue
    return found


@pytest.fixture(params=["empty", "a cluster", "taken", "a dead socket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterPlace]:
    """Return a directory in each possible state, with a long path."""
    made = ClusterPlace(tmp_path / LONG)
    made.root.mkdir()
    lock = None
    if request.param != "empty":
        known, plans = plan_cluster(made, AskedShape(1, 1), None, {}, "id")
        made.keep(known)
        made.prepare_nodes(plans)
        made.lock.touch()
    if request.param == "taken":
        lock = early.take(str(made.root))
        assert lock is not None
    if request.param == "a dead socket":
        with socket.socket(socket.AF_UNIX) as dead, made.control_address() as address:
            dead.bind(address)
    yield made
    if lock is not None:
        os.close(lock)


def taken(place: ClusterPlace) -> None:
    fd = early.take(str(place.root))
    if fd is not None:
        os.close(fd)


def refused(error: type[Exception], look: Callable[[], object]) -> None:
    with pytest.raises(error):
        look()


LOOKS: dict[str, Callable[[ClusterPlace], object]] = {
    "is_new": lambda place: place.is_new,
    "is_taken": lambda place: place.is_taken,
    "take": taken,
    "remembered": lambda place: place.remembered(),
    "node_logs": lambda place: place.node_logs(),
    "is_supervised": control.is_supervised,
    "wait_until_free": lambda place: control.wait_until_free(place, 0),
    "status": lambda place: refused(control.NotRunning, lambda: control.status(place)),
    "act": lambda place: refused(control.NotRunning, lambda: control.act(place, "kill", 1, 10)),
    "plugin": lambda place: refused(
        ClusterError, lambda: ask_supervisor(place.root, {"do": "status"}, 1)
    ),
    "links": lambda place: refused(NetworkError, lambda: NetworkControl(place).links()),
    "set_links": lambda place: refused(
        NetworkError, lambda: NetworkControl(place).set_links([LinkRule(1, 2, WHOLE)])
    ),
    "plan": lambda place: plan_cluster(place, None, None, {}, "id"),
}


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_look_leaves_no_descriptor_open_and_the_lock_as_it_was(
    place: ClusterPlace, look: str
) -> None:
    """Class 9 of the planted bugs: a folder that was only read stayed open and locked."""
    taken_before = place.is_taken
    before = open_descriptors()
    for _ in range(3):
        LOOKS[look](place)
    assert open_descriptors() <= before
    assert place.is_taken is taken_before


def test_look_at_a_port_leaves_no_descriptor_open() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        before = open_descriptors()
        assert not port_is_free(port)
        assert open_descriptors() <= before
    before = open_descriptors()
    port_is_free(port)
    assert open_descriptors() <= before


def test_refused_start_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """Neither `take_back` nor the end of a failed start may hold the directory."""
    root = str(tmp_path / "c")
    before = open_descriptors()
    for _ in range(2):
        begun = early.Early(root)
        process = begun.fork_server
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait()
        process.stdout.close()
        assert begun.lock_fd is not None
        os.close(begun.lock_fd)
        os.close(begun.log_fd)
        assert open_descriptors() <= before
        assert not ClusterPlace(root).is_taken
