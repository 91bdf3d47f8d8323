"""Shell: Targets of chaos: clusters whose nodes can be killed, paused, cut off or slowed.

`LocalTarget` is a cluster that `kraftbox up` supervises. `kraftbox.chaos.compose` offers the nodes
of a docker-compose project through the same interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from client.addresses import Address
from kraftbox.launcher import control
from kraftbox.launcher.links import Link, LinkRule
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.router import NetworkControl, NetworkError

ACTION_MS_MAX = 10_000
LONG_ACTIONS_MS_MAX = {"stop": 40_000, "start": 60_000}
SPARE_DESCRIPTORS = 2


class Ability(StrEnum):
    """Capabilities of a target that faults require."""

    PROCESSES = "processes"
    NETWORK = "network"
    LINKS = "links"
    SLOW_DISK = "slow disk"
    LOSSY_DISK = "lossy disk"
    STALL = "stall"
    DESCRIPTORS = "descriptors"
    DISKS = "disks"


class TargetError(Exception):
    """An action on the cluster failed; the message has the action and the reason."""


class TargetNode(NamedTuple):
    """A node of the cluster under chaos."""

    node_id: int
    is_broker: bool
    is_controller: bool
    is_running: bool
    pid: int | None
    damage: str = ""
    """The state of a node that is not whole, such as "killed" or "cut off"; empty if it is."""


class Target(Protocol):
    """A cluster under chaos. Every method that acts raises TargetError."""

    @property
    def bootstrap(self) -> list[Address]: ...

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def directories(self) -> Mapping[int, Path]:
        """The brokers' log directories that are readable here, by node; empty if none are."""

    async def members(self) -> list[TargetNode]: ...

    async def act(self, action: str, node_id: int) -> None:
        """Kill, stop, start, pause or resume a node and wait until it is done."""

    async def cut_off(self, node_id: int) -> None:
        """Drop all packets between this node and other nodes or clients. Needs NETWORK."""

    async def set_links(self, rules: Sequence[LinkRule]) -> None:
        """Replace the rules of directed links; links without a rule become whole. Needs LINKS."""

    async def heal(self) -> None:
        """Remove all cuts and link rules."""

    async def stall(self, node_id: int) -> None:
        """Block the node's event loop for the configured time. Needs STALL."""

    async def toggle_slow_disk(self, node_id: int) -> None:
        """Make the node's disk slow, or fast again. Needs SLOW_DISK."""

    async def exhaust_descriptors(self, node_id: int) -> None:
        """Prevent the node from opening more files and sockets. Needs DESCRIPTORS."""

    async def restore_descriptors(self, node_id: int) -> None: ...

    async def empty_disk(self, node_id: int) -> None:
        """Delete all data of a broker that is down. Needs DISKS.

        A controller keeps its disk: a voter that lost its vote breaks the quorum.
        """


class LocalTarget:
    """A cluster that `kraftbox up` supervises in a directory."""

    def __init__(self, place: ClusterPlace) -> None:
        self.place = place
        self._limits: dict[int, tuple[int, int]] = {}
        known = self._status()
        self.bootstrap: list[Address] = [
            address for node in known["nodes"] for address in _client_addresses(node)
        ]
        members = {_member(node): Path(str(node["log"])).parent / "data" for node in known["nodes"]}
        self.directories = {one.node_id: data for one, data in members.items() if one.is_broker}
        self._disks = {
            one.node_id: data
            for one, data in members.items()
            if one.is_broker and not one.is_controller
        }
        settings = place.remembered()
        keys = {} if settings is None else settings.settings
        self._cut: set[int] = set()
        found = {Ability.PROCESSES}
        if sys.platform == "linux":
            found.add(Ability.NETWORK)
        if hasattr(os, "pidfd_open"):
            found.add(Ability.DESCRIPTORS)
        if settings is not None and settings.network:
            self._network: NetworkControl | None = NetworkControl(place)
            found.add(Ability.LINKS)
        else:
            self._network = None
        if keys.get("kraftbox.fault.files") == "lossy":
            found.add(Ability.LOSSY_DISK)
            # Unflushed data is in no file, so the directories cannot be compared.
            self.directories = {}
        if keys.get("kraftbox.fault.files") == "slow" and "kraftbox.fault.files.on.signal" in keys:
            found.add(Ability.SLOW_DISK)
        if int(keys.get("kraftbox.fault.stall.ms", "0")) > 0:
            found.add(Ability.STALL)
        if self._disks:
            found.add(Ability.DISKS)
        self.abilities = frozenset(found)

    def _status(self) -> dict[str, list[dict[str, object]]]:
        try:
            return control.status(self.place)
        except (control.NotRunning, control.RequestFailed) as error:
            raise TargetError(str(error)) from None

    async def members(self) -> list[TargetNode]:
        known = await asyncio.to_thread(self._status)
        return [_member(node) for node in known["nodes"]]

    async def act(self, action: str, node_id: int) -> None:
        try:
            await asyncio.to_thread(
                control.act,
                self.place,
                action,
                node_id,
                LONG_ACTIONS_MS_MAX.get(action, ACTION_MS_MAX),
            )
        except (control.NotRunning, control.RequestFailed) as error:
            raise TargetError(f"{action} {node_id}: {error}") from None

    # --- the network ---------------------------------------------------------------------------

    async def cut_off(self, node_id: int) -> None:
        if self._network is None:
            await self.act("cut-off", node_id)
            self._cut.add(node_id)
            return
        others = [HOST, *(one.node_id for one in await self.members() if one.node_id != node_id)]
        await self.set_links(
            [
                rule
                for other in others
                for rule in (LinkRule(node_id, other, CUT), LinkRule(other, node_id, CUT))
            ]
        )

    async def set_links(self, rules: Sequence[LinkRule]) -> None:
        if self._network is None:
            raise TargetError("this cluster has no isolated network: start it with --isolate")
        try:
            await asyncio.to_thread(self._network.set_links, list(rules))
        except NetworkError as error:
            raise TargetError(str(error)) from None

    async def heal(self) -> None:
        if self._network is not None:
            await self.set_links([])
        while self._cut:
            await self.act("reconnect", self._cut.pop())

    # --- one process ---------------------------------------------------------------------------

    async def stall(self, node_id: int) -> None:
        await self._signal(node_id, signal.SIGUSR1)

    async def toggle_slow_disk(self, node_id: int) -> None:
        await self._signal(node_id, signal.SIGUSR2)

    async def _signal(self, node_id: int, number: signal.Signals) -> None:
        os.kill(await self._pid(node_id), number)

    async def _pid(self, node_id: int) -> int:
        for member in await self.members():
            if member.node_id == node_id and member.pid is not None and member.is_running:
                return member.pid
        raise TargetError(f"node {node_id} is not running")

    async def exhaust_descriptors(self, node_id: int) -> None:
        import resource

        pid = await self._pid(node_id)
        self._limits[pid] = before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir(f"/proc/{pid}/fd")))
        limit = min(highest + 1 + SPARE_DESCRIPTORS, before[0])
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))

    async def restore_descriptors(self, node_id: int) -> None:
        import resource

        for pid, limits in self._limits.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        self._limits.clear()

    async def empty_disk(self, node_id: int) -> None:
        if node_id not in self._disks:
            raise TargetError(f"node {node_id} is a controller: its disk cannot be emptied")
        if any(one.node_id == node_id and one.is_running for one in await self.members()):
            raise TargetError(f"node {node_id} is running: stop it before its disk is emptied")
        try:
            await asyncio.to_thread(shutil.rmtree, self._disks[node_id])
        except OSError as error:
            raise TargetError(f"cannot empty the disk of node {node_id}: {error}") from None


DAMAGE = {state: state for state in ("killed", "stopped", "failed", "paused", "stopping")}
"""The damage by the supervisor's state of a node."""
REPAIRS = {"paused": "resume", "cut off": "reconnect"}
"""The action against a damage; all others need a start."""
HOST = 0
"""The clients' end of a link."""
CUT = Link(loss=1.0)


def _member(node: dict[str, object]) -> TargetNode:
    roles = str(node["roles"])
    pid = node["pid"]
    number = node["id"]
    assert isinstance(number, int) and (pid is None or isinstance(pid, int))
    return TargetNode(
        number,
        is_broker="broker" in roles,
        is_controller="controller" in roles,
        is_running=node["state"] == "running",
        pid=pid,
        damage="cut off" if node.get("cutOff") else DAMAGE.get(str(node["state"]), ""),
    )


def _client_addresses(node: dict[str, object]) -> Iterable[Address]:
    for entry in str(node["listeners"]).split(","):
        name, _, address = entry.partition("://")
        host, _, port = address.rpartition(":")
        if name != "CONTROLLER":
            yield host.strip("[]") or "localhost", int(port)
