"""`kraftbox ls` and the addresses of local clusters: from a directory to bootstrap servers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kraftbox.cli.output import CommandFailed, JsonFlag, say, say_json, table
from kraftbox.launcher import control, registry
from kraftbox.launcher.place import ClusterPlace

STATUS_MS_MAX = 500
SUGGESTED_MAX = 3
UNDO = {
    "killed": "kraftbox node start {ids}",
    "stopped": "kraftbox node start {ids}",
    "failed": "kraftbox node start {ids}",
    "paused": "kraftbox node resume {ids}",
    "cut off": "kraftbox node reconnect {ids}",
}


class LocalCluster(NamedTuple):
    """A cluster of this user that holds its directory.

    `state` is `running`, `starting`, `stopping` or `no answer`; `nodes` are the supervisor's
    descriptions, empty without an answer.
    """

    directory: str
    state: str
    nodes: Sequence[Mapping[str, Any]] = ()

    @property
    def addresses(self) -> list[str]:
        """The client addresses of running brokers."""
        return reachable(self.nodes)


def ls(as_json: JsonFlag = False) -> None:
    """List your running clusters: directory, state, nodes and client addresses.

    `--dir DIRECTORY` or KRAFTBOX_DIR selects one of them in other commands. Clusters that
    `kraftbox up` or the pytest plugin started are listed, nodes of `kraftbox server` are not.
    """
    found = running()
    if as_json:
        say_json(
            [
                {
                    "dir": one.directory,
                    "state": one.state,
                    "nodes": [{"id": n["id"], "state": state_of(n)} for n in one.nodes],
                    "bootstrapServers": one.addresses,
                }
                for one in found
            ]
        )
        return
    if not found:
        say("no cluster is running; kraftbox up starts one")
        return
    table(
        ("DIRECTORY", "STATE", "NODES", "ADDRESSES"),
        [
            (one.directory, one.state, in_words(one.nodes), ",".join(one.addresses) or None)
            for one in found
        ],
    )


def running() -> list[LocalCluster]:
    """Return the clusters of this user that run, with their supervisors' answers."""
    return [look_at(root) for root in registry.clusters(os.environ)]


def look_at(root: str) -> LocalCluster:
    """Return the cluster that holds this directory, as its supervisor describes it."""
    try:
        nodes = control.status(ClusterPlace(root), STATUS_MS_MAX)["nodes"]
    except control.NotRunning:
        return LocalCluster(root, "stopping")
    except control.RequestFailed:
        return LocalCluster(root, "no answer")
    starting = any(node["state"] == "starting" for node in nodes)
    return LocalCluster(root, "starting" if starting else "running", nodes)


def state_of(node: Mapping[str, Any]) -> str:
    """Return the state of a node's process, or `cut off` for a running one without network."""
    return "cut off" if node["state"] == "running" and node.get("cutOff") else str(node["state"])


def in_words(nodes: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how many nodes are in which state: `2 of 3 running, 1 killed`."""
    if not nodes:
        return None
    states = Counter(state_of(node) for node in nodes)
    others = [f"{count} {state}" for state, count in states.items() if state != "running"]
    return ", ".join([f"{states['running']} of {len(nodes)} running", *others])


def reachable(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the client addresses of the nodes that run and have not been cut off."""
    return [
        address
        for node in nodes
        if state_of(node) == "running"
        for address in node.get("addresses", ())
    ]


def servers_of(directory: str) -> str:
    """Return the bootstrap servers of the cluster that runs in a directory.

    Raises CommandFailed if none runs there or no broker can answer; the message has the state of
    its brokers and the command that changes it.
    """
    place = ClusterPlace(directory)
    try:
        nodes = control.status(place)["nodes"]
    except control.NotRunning as error:
        raise not_running(error) from None
    except control.RequestFailed as error:
        raise CommandFailed(f"{place.root}: {error}") from None
    found = reachable(nodes)
    if not found:
        raise CommandFailed(f"no broker of {place.root} can answer: {_obstacles(nodes)}")
    return ",".join(found)


def directory_of(servers: str) -> str | None:
    """Return the directory of the running cluster of this user that has one of these addresses."""
    wanted = {_plain(entry) for entry in servers.split(",")}
    for one in running():
        if wanted & {_plain(address) for address in one.addresses}:
            return one.directory
    return None


def _plain(address: str) -> str:
    """Return an address with the loopback address instead of its name."""
    return address.strip().replace("localhost:", "127.0.0.1:")


def _obstacles(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the brokers by state, each state with the command that ends it."""
    by_state: dict[str, list[str]] = {}
    for node in nodes:
        if "broker" in node["roles"]:
            by_state.setdefault(state_of(node), []).append(str(node["id"]))
    return "; ".join(
        f"broker{'s' if len(ids) > 1 else ''} {', '.join(ids)} {'are' if len(ids) > 1 else 'is'} "
        + state
        + (f" ({UNDO[state].format(ids=' '.join(ids))})" if state in UNDO else "")
        for state, ids in by_state.items()
    )


def not_running(error: control.NotRunning | str) -> CommandFailed:
    """Return the error of a command whose cluster does not run; it names those that do."""
    return CommandFailed(str(error), *suggestions())


def suggestions() -> list[str]:
    """Return a line for each of the first running clusters, for an error message."""
    lines = []
    found = [one for one in running() if one.addresses]
    for one in found[:SUGGESTED_MAX]:
        lines.append(f"running: --dir {one.directory} ({','.join(one.addresses)})")
    if len(found) > SUGGESTED_MAX:
        lines.append(f"and {len(found) - SUGGESTED_MAX} more: kraftbox ls")
    return lines
