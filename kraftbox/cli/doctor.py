"""`kraftbox doctor`: checks of this machine's requirements for a cluster."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kraftbox.cli.nodes import DIR_DEFAULT
from kraftbox.cli.output import FAILED, JsonFlag, say_json, table
from kraftbox.launcher import control, router
from kraftbox.launcher.place import ClusterPlace, port_is_free
from runtime.errors import StartupRefused

PORT_DEFAULT = 9092
PYTHON_MIN = (3, 11)
DESCRIPTORS_MIN = 4_096
FREE_BYTES_MIN = 1 << 30


class Verdict(StrEnum):
    """Result of a check. WARN: a feature is unavailable. BAD: a start fails."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class Found(NamedTuple):
    """The result of one check."""

    what: str
    verdict: Verdict
    text: str


def doctor(
    directory: Annotated[
        Path,
        typer.Option("--dir", envvar="KRAFTBOX_DIR", help="Data directory that `up` would use."),
    ] = DIR_DEFAULT,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Client port that `up` would use.")
    ] = PORT_DEFAULT,
    as_json: JsonFlag = False,
) -> None:
    """Check versions, limits, the directory, ports and the kernel; change nothing.

    Exit code 1 if `kraftbox up` would not start.
    """
    found = [*versions(), *kernel(), *limits(), *place(ClusterPlace(directory), port)]
    if as_json:
        say_json([one._asdict() for one in found])
    else:
        table(("WHAT", "", "FOUND"), [(one.what, one.verdict, one.text) for one in found])
    if any(one.verdict is Verdict.BAD for one in found):
        raise typer.Exit(FAILED)


def versions() -> Iterator[Found]:
    """Check Python and the packages that Kraftbox requires."""
    python = sys.version_info[:2]
    yield Found(
        "Python",
        Verdict.OK if python >= PYTHON_MIN else Verdict.BAD,
        f"{platform.python_version()}; needs 3.11 or later",
    )
    try:
        wanted = metadata.requires("kraftbox") or []
        installed = metadata.version("kraftbox")
    except metadata.PackageNotFoundError:
        yield Found("kraftbox", Verdict.WARN, "runs from a folder, not installed")
        return
    yield Found("kraftbox", Verdict.OK, installed)
    missing = [name for name in _names(wanted) if not _is_installed(name)]
    yield Found(
        "packages",
        Verdict.BAD if missing else Verdict.OK,
        f"missing: {', '.join(missing)}" if missing else "all required packages are installed",
    )
    for name, purpose in (
        ("pyspark", "audits of long logs, tables"),
        ("obstore", "tiered storage"),
    ):
        there = _is_installed(name)
        yield Found(name, Verdict.OK, f"{'installed' if there else 'not installed'}: {purpose}")


def _names(requirements: list[str]) -> list[str]:
    """Return the names of the requirements that belong to no extra."""
    always = [text for text in requirements if "extra ==" not in text]
    return ["".join(c if c.isalnum() or c in "-_." else " " for c in t).split()[0] for t in always]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def kernel() -> Iterator[Found]:
    """Check the system's support for network faults."""
    system = f"{platform.system()} {platform.release()}"
    is_linux = sys.platform == "linux"
    yield Found(
        "system",
        Verdict.OK if is_linux else Verdict.WARN,
        system if is_linux else f"{system}: nodes cannot be cut off from the network",
    )
    links = router.is_possible()
    yield Found(
        "links",
        Verdict.OK,
        "up --isolate is available" if links else "up --isolate needs Linux, root and iproute2",
    )


def limits() -> Iterator[Found]:
    """Check the shell's resource limits for a node."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS_MIN
    shown = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    yield Found(
        "open files",
        Verdict.OK if enough else Verdict.WARN,
        f"{shown} (ulimit -Hn)"
        + ("" if enough else "; a partition takes up to four and a connection one"),
    )


def place(cluster: ClusterPlace, port: int) -> Iterator[Found]:
    """Check the directory and the ports."""
    try:
        known = cluster.remembered()
    except (StartupRefused, OSError) as error:
        yield Found("directory", Verdict.BAD, str(error))
        return
    above = next(path for path in (cluster.root, *cluster.root.parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        yield Found("directory", Verdict.BAD, f"{above} is not writable")
        return
    runs = control.is_supervised(cluster)
    state = (
        "contains a running cluster" if runs else "contains a stopped cluster" if known else "new"
    )
    yield Found("directory", Verdict.OK, f"{cluster.root}: {state}")
    free = shutil.disk_usage(above).free
    yield Found(
        "disk", Verdict.OK if free >= FREE_BYTES_MIN else Verdict.WARN, f"{free >> 20} MiB free"
    )
    if runs:
        return
    ports = [one.client for one in known.ports.values() if one.client] if known else [port]
    taken = [number for number in ports if not port_is_free(number)]
    yield Found(
        "ports",
        Verdict.BAD if taken else Verdict.OK,
        (
            f"in use: {', '.join(map(str, taken))} (choose another with up --port, or "
            "--port 0 for a free one)"
        )
        if taken
        else f"{', '.join(map(str, ports))} free",
    )
    try:
        socket.getaddrinfo("localhost", port)
    except OSError:
        yield Found("localhost", Verdict.WARN, "cannot be resolved: advertise 127.0.0.1 to clients")
