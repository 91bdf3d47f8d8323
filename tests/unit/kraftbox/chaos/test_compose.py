"""Chaos on containers, with a fake docker that only records its commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftbox.chaos import compose
from kraftbox.chaos.compose import ComposeTarget
from kraftbox.chaos.first_look import complaint
from kraftbox.chaos.target import Ability, TargetError

NODES = {"aaa111": (101, "controller", ""), "bbb222": (1, "broker", "PLAINTEXT_HOST://localhost:9")}


class Docker:
    """A fake docker with two nodes and a database. `said` holds its commands."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.status = dict.fromkeys([*NODES, "ccc333"], "running")
        self.health: dict[str, list[str]] = {}

    def __call__(self, command: Sequence[str]) -> str:
        verb, *arguments = command[1:]
        if verb == "inspect":
            return json.dumps([self.inspect(one) for one in arguments])
        if "ps" in command:
            return "aaa111\nbbb222\nccc333\n"
        self.said.append(" ".join(command))
        for action, status in (("kill", "exited"), ("start", "running"), ("pause", "paused")):
            if verb == action:
                self.status[arguments[-1]] = status
        return ""

    def inspect(self, container: str) -> dict[str, Any]:
        environment = ["PATH=/bin", "ODD"]
        if container in NODES:
            node_id, roles, host = NODES[container]
            environment += [f"KAFKA_NODE_ID={node_id}", f"KAFKA_PROCESS_ROLES={roles}"]
            environment.append(f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{container}:1,{host}")
        state: dict[str, Any] = {"Status": self.status[container]}
        if self.health.get(container):
            state["Health"] = {"Status": self.health[container].pop(0)}
        networks = {"net": {"Aliases": [container[:4], "broker-1"]}}
        return {
            "Id": container,
            "Config": {"Env": environment},
            "State": state,
            "NetworkSettings": {"Networks": networks},
        }


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    made = Docker()
    monkeypatch.setattr(compose, "_output", made)
    monkeypatch.setattr(compose, "LOOK_AGAIN_S", 0.0)
    return made


def target() -> ComposeTarget:
    return ComposeTarget(Path("docker-compose.yml"))


async def test_nodes_are_the_containers_with_a_node_id(docker: Docker) -> None:
    found = target()
    assert found.bootstrap == [("localhost", 9)]
    assert [tuple(one) for one in await found.members()] == [
        (101, False, True, True, None, ""),
        (1, True, False, True, None, ""),
    ]
    docker.status["bbb222"] = "exited"
    assert complaint(await found.members()) == "broker 1 is down"
    assert Ability.LINKS not in found.abilities


async def test_actions_are_dockers(docker: Docker) -> None:
    found = target()
    for action in ("kill", "pause", "resume", "stop"):
        await found.act(action, 1)
    assert docker.said == [f"docker {verb} bbb222" for verb in ("kill", "pause", "unpause", "stop")]


async def test_a_start_waits_for_health(docker: Docker) -> None:
    docker.health["bbb222"] = ["starting", "starting", "healthy"]
    await target().act("start", 1)
    assert docker.health["bbb222"] == []


async def test_a_node_that_was_cut_off_comes_back_under_its_names(docker: Docker) -> None:
    found = target()
    await found.cut_off(1)
    await found.heal()
    await found.heal()
    assert docker.said == [
        "docker network disconnect --force net bbb222",
        "docker network connect --alias broker-1 net bbb222",
    ]


async def test_compose_target_refuses_unsupported_faults(docker: Docker) -> None:
    found = target()
    with pytest.raises(TargetError, match="links"):
        await found.set_links([])
    with pytest.raises(TargetError, match="descriptors"):
        await found.exhaust_descriptors(1)


def test_a_project_that_does_not_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "_output", lambda command: "")
    with pytest.raises(TargetError, match="no running container"):
        target()


def test_compose_target_without_docker_names_missing_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(command: Sequence[str]) -> str:
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(compose, "_output", missing)
    with pytest.raises(TargetError, match="neither docker-compose nor docker"):
        target()


def test_compose_command_that_fails_raises_its_error() -> None:
    with pytest.raises(TargetError, match="sh -c"):
        compose._output(["sh", "-c", "echo no >&2; exit 3"])
