"""Docker and docker-compose from a test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from testkit.processes.waiting import until

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
WAIT_S = 120.0
COMMAND_S = 300.0
STOP_S = 60
"""Seconds for a node to stop. Docker's own ten end in a kill on a busy machine."""
BIN = "/opt/kafka/bin"


def run(*command: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output. Raises: AssertionError with all output if it fails."""
    options.setdefault("timeout", COMMAND_S)
    done = subprocess.run(list(command), capture_output=True, text=True, check=False, **options)
    assert not check or done.returncode == 0, (
        f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done


def docker(*arguments: str, check: bool = True, **options: Any) -> str:
    return run("docker", *arguments, check=check, **options).stdout.strip()


def daemon_answers() -> bool:
    return shutil.which("docker") is not None and not run("docker", "info", check=False).returncode


def wait_for(holds: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
    """Poll until `holds()` returns a true value, and return that: there is no event to wait for."""
    return until(what, holds, timeout_s, every_s=0.1)


def inspect(container: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker("inspect", container))[0]
    return found


def health(container: str) -> str:
    """Return starting, healthy, unhealthy, or the state of a container that does not run."""
    state = inspect(container)["State"]
    return str(state["Health"]["Status"] if state["Running"] else state["Status"])


def logs(container: str) -> str:
    done = run("docker", "logs", container)
    return done.stdout + done.stderr


def tool(container: str, name: str, *arguments: str, check: bool = True, **options: Any) -> str:
    """Run Kafka's tool of that name inside a container."""
    interactive = ("-i",) if "input" in options else ()
    command = ("docker", "exec", *interactive, container, f"{BIN}/{name}.sh", *arguments)
    return run(*command, check=check, **options).stdout


@contextmanager
def container(image: str, *options: str, command: Sequence[str] = ()) -> Iterator[str]:
    """Run a container in the background, removed with its volumes at the end."""
    name = docker("run", "-d", *options, image, *command)
    try:
        yield name
    finally:
        docker("rm", "-f", "-v", name, check=False)


class Project:
    """A docker-compose project, as a context manager that takes it down with its volumes."""

    def __init__(self, name: str, file: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self._command = (*_compose(), "-p", name, "-f", str(file))
        # docker-compose 1.29 is a Python program of the system, which has packages of its own.
        ours = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._environ = {**ours, **environ}

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "-v", "--timeout", "10", check=False)

    def compose(self, *arguments: str, check: bool = True) -> str:
        return run(*self._command, *arguments, check=check, env=self._environ).stdout.strip()

    def up(self) -> None:
        self.compose("up", "-d")

    def services(self) -> list[str]:
        """Return the services that have a container."""
        return sorted(self._containers())

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        return self._containers()[service]

    def _containers(self) -> dict[str, str]:
        label = "com.docker.compose"
        shown = docker(
            *("ps", "-a", "--no-trunc", "--filter", f"label={label}.project={self.name}"),
            *("--format", f'{{{{.Label "{label}.service"}}}} {{{{.ID}}}}'),
        )
        return dict(line.split() for line in shown.splitlines())

    def wait_until_healthy(self, *services: str) -> None:
        for service in services or self.services():
            name = self.container(service)
            wait_for(lambda name=name: health(name) == "healthy", f"{service} is healthy")


def _compose() -> tuple[str, ...]:
    if shutil.which("docker-compose"):
        return ("docker-compose",)
    return ("docker", "compose")
