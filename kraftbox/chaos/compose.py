"""Shell: Chaos on the containers of a docker-compose project."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from client.addresses import Address
from kraftbox.chaos.target import Ability, TargetError, TargetNode
from kraftbox.launcher.links import LinkRule

COMMAND_S_MAX = 60
READY_S_MAX = 60
LOOK_AGAIN_S = 0.2
COMPOSE = (("docker-compose",), ("docker", "compose"))
LOCAL_HOSTS = ("localhost", "127.0.0.1")
VERBS = {"kill": "kill", "stop": "stop", "start": "start", "pause": "pause", "resume": "unpause"}


class ComposeTarget:
    """The nodes of a running docker-compose project.

    A container is a node if its environment has KAFKA_NODE_ID, as with the rules of Kafka's image.
    """

    abilities = frozenset({Ability.PROCESSES, Ability.NETWORK})
    directories: Mapping[int, Path] = {}

    def __init__(self, file: Path) -> None:
        """Find the containers. Raises TargetError if no node is running."""
        self._containers: dict[int, str] = {}
        self._roles: dict[int, str] = {}
        self._networks: dict[int, list[tuple[str, list[str]]]] = {}
        self.bootstrap: list[Address] = []
        ids = _compose(file, "ps", "-a", "-q").split()
        for found in json.loads(_docker("inspect", *ids)) if ids else []:
            self._take(found)
        if not self.bootstrap:
            raise TargetError(
                f"{file}: no running container with KAFKA_NODE_ID and an address on "
                f"this host; start them with `docker-compose -f {file} up -d`"
            )

    def _take(self, found: dict[str, Any]) -> None:
        environment = dict(entry.partition("=")[::2] for entry in found["Config"].get("Env") or ())
        if not environment.get("KAFKA_NODE_ID", "").isdigit():
            return
        node_id = int(environment["KAFKA_NODE_ID"])
        self._containers[node_id] = found["Id"]
        self._roles[node_id] = environment.get("KAFKA_PROCESS_ROLES", "broker,controller")
        self.bootstrap += _published(environment)

    async def members(self) -> list[TargetNode]:
        found = json.loads(await self._docker("inspect", *self._containers.values()))
        states = {one["Id"]: one["State"] for one in found}
        return [
            TargetNode(
                node_id,
                is_broker="broker" in self._roles[node_id],
                is_controller="controller" in self._roles[node_id],
                is_running=states[container]["Status"] == "running",
                pid=None,
                damage=_damage(states[container]["Status"]),
            )
            for node_id, container in self._containers.items()
        ]

    async def act(self, action: str, node_id: int) -> None:
        await self._docker(VERBS[action], self._containers[node_id])
        if action == "start":
            await self._wait_until_healthy(node_id)

    async def _wait_until_healthy(self, node_id: int) -> None:
        """Wait until the container's health check passes, or until it runs if it has none."""
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            (found,) = json.loads(await self._docker("inspect", self._containers[node_id]))
            health = found["State"].get("Health", {}).get("Status", "healthy")
            if found["State"]["Status"] == "running" and health == "healthy":
                return
            await asyncio.sleep(LOOK_AGAIN_S)
        raise TargetError(f"node {node_id} not healthy after {READY_S_MAX} s")

    # --- the network ---------------------------------------------------------------------------

    async def cut_off(self, node_id: int) -> None:
        container = self._containers[node_id]
        (found,) = json.loads(await self._docker("inspect", container))
        networks = found["NetworkSettings"]["Networks"]
        self._networks[node_id] = [
            (name, [one for one in entry.get("Aliases") or () if not container.startswith(one)])
            for name, entry in networks.items()
        ]
        for name in networks:
            await self._docker("network", "disconnect", "--force", name, container)

    async def heal(self) -> None:
        while self._networks:
            node_id, networks = self._networks.popitem()
            for name, aliases in networks:
                options = [part for alias in aliases for part in ("--alias", alias)]
                await self._docker("network", "connect", *options, name, self._containers[node_id])

    async def set_links(self, rules: Sequence[LinkRule]) -> None:
        raise TargetError("links between single containers cannot be changed")

    async def stall(self, node_id: int) -> None:
        await self._docker("kill", "--signal", "USR1", self._containers[node_id])

    async def toggle_slow_disk(self, node_id: int) -> None:
        await self._docker("kill", "--signal", "USR2", self._containers[node_id])

    async def exhaust_descriptors(self, node_id: int) -> None:
        raise TargetError("the file descriptors of containers cannot be limited")

    async def restore_descriptors(self, node_id: int) -> None:
        raise TargetError("the file descriptors of containers cannot be limited")

    async def empty_disk(self, node_id: int) -> None:
        raise TargetError("the disks of containers cannot be emptied")

    async def _docker(self, *arguments: str) -> str:
        return await asyncio.to_thread(_docker, *arguments)


def _damage(status: str) -> str:
    """Return the damage of a container by docker's status."""
    return {"running": "", "exited": "down", "created": "down"}.get(status, status)


def _published(environment: dict[str, str]) -> list[Address]:
    """Return the advertised addresses that are on this host."""
    found: list[Address] = []
    for entry in environment.get("KAFKA_ADVERTISED_LISTENERS", "").split(","):
        host, _, port = entry.strip().partition("://")[2].rpartition(":")
        if host in LOCAL_HOSTS and port.isdigit():
            found.append((host, int(port)))
    return found


def _docker(*arguments: str) -> str:
    return _output(["docker", *arguments])


def _compose(file: Path, *arguments: str) -> str:
    failure = TargetError("neither docker-compose nor docker is installed")
    for command in COMPOSE:
        try:
            return _output([*command, "-f", str(file), *arguments])
        except FileNotFoundError:
            continue
        except TargetError as error:
            failure = error
    raise failure


def _output(command: Sequence[str]) -> str:
    """Run a command and return its output. Raises TargetError, FileNotFoundError."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise TargetError(
            f"{' '.join(command[:3])}: not finished after {COMMAND_S_MAX} s"
        ) from None
    if done.returncode:
        raise TargetError(f"{' '.join(command[:3])}: {done.stderr.strip()}")
    return done.stdout
