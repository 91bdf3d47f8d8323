"""Shell: A local cluster that is started for a chaos run and stopped after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kraftbox.chaos.target import LocalTarget, TargetError
from kraftbox.launcher import control, router
from kraftbox.launcher.handed_settings import handed
from kraftbox.launcher.interpreter import own_command
from kraftbox.launcher.place import ClusterPlace

START_S_MAX = 90
AUDIT_S_MAX = 3600
SETTINGS: Mapping[str, str] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "4000",
    "kraftbox.fault.files": "slow",
    "kraftbox.fault.files.on.signal": "true",
    "kraftbox.fault.files.flush.ms": "500",
    "kraftbox.fault.stall.ms": "5000",
}
"""Short timeouts, so that a fault of seconds affects the cluster, and prepared faults."""


def start(
    place: ClusterPlace,
    *,
    controllers: int = 3,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    isolate: bool | None = None,
    prepared: bool = True,
    lifeline: int | None = None,
) -> LocalTarget:
    """Start a cluster in a directory, detached. Raises TargetError.

    It stops when the other end of the pipe `lifeline`, a descriptor to read from, closes.
    `settings` override SETTINGS, which apply only if `prepared`. `isolate` None gives a new cluster
    a network of its own if that is possible.
    """
    arguments = ["up", "--dir", str(place.root), "--detach", "--port", "0"]
    if lifeline is not None:
        arguments.append("--lifeline")
    if place.is_new:
        arguments += ["--controllers", str(controllers), "--brokers", str(brokers)]
        if router.is_possible() if isolate is None else isolate:
            arguments.append("--isolate")
    given = {**(SETTINGS if prepared else {}), **(settings or {})}
    try:
        done = subprocess.run(
            own_command(*arguments),
            env=handed(given, os.environ),
            stdin=subprocess.DEVNULL if lifeline is None else lifeline,
            capture_output=True,
            text=True,
            timeout=START_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TargetError(f"the cluster is not ready after {START_S_MAX} s") from None
    if done.returncode:
        raise TargetError(f"the cluster did not start: {done.stderr.strip()}")
    return LocalTarget(place)


@contextmanager
def running(directory: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[LocalTarget]:
    """Yield the cluster that runs in a directory, or one that is started for the block.

    A started cluster stops with this process, also if the process is killed.
    """
    place = ClusterPlace(directory)
    if control.is_supervised(place):
        if settings:
            raise TargetError(
                f"the cluster in {place.root} is running: its settings cannot be changed"
            )
        yield LocalTarget(place)
        return
    read_end, write_end = os.pipe()
    try:
        try:
            target = start(place, settings=settings, lifeline=read_end)
        finally:
            os.close(read_end)
        yield target
        control.down(place)
    finally:
        os.close(write_end)
        control.wait_until_free(place, control.DOWN_MS_MAX)


def audit(
    place: ClusterPlace, history: Path, out: Path, min_isr: int, *, quiet: bool = False
) -> int:
    """Check the cluster's metadata logs and data with `kraftbox audit`; return its exit code.

    Its output goes to standard output (`quiet`: to standard error), its report to `out`. Raises
    TargetError if it exceeds AUDIT_S_MAX.
    """
    arguments = ["audit", str(place.root), "--history", str(history), "--out", str(out)]
    arguments += ["--data", str(place.root), "--min-isr", str(min_isr)]
    command = own_command(*arguments)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if quiet else None,
            timeout=AUDIT_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TargetError(f"the audit: not finished after {AUDIT_S_MAX} s") from None
    return done.returncode
