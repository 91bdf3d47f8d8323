"""Shell: The start of a local cluster, from its options to a running supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kraftbox.launcher import announcement, control, registry
from kraftbox.launcher.addresses import Network
from kraftbox.launcher.early import Early, start_fork_server, take
from kraftbox.launcher.interpreter import own_command
from kraftbox.launcher.place import ClusterPlace, plan_cluster, port_is_free
from kraftbox.launcher.plan import HOST, ONE_NODE, AskedShape, NodePlan, Remembered
from kraftbox.launcher.router import Router
from kraftbox.launcher.states import NodeProcesses
from kraftbox.launcher.supervisor import ForkServerProcess, Supervisor
from protocol.ids import random_uuid, uuid_to_text
from runtime.config import NodeConfig
from runtime.errors import StartupRefused
from runtime.printable import escape

STOPPING_MS_MAX = 15_000
"""How long a start waits for processes of the previous cluster to end."""
PREPARE_S_MAX = 90
FAULTS_END_S_MAX = 5


class Options(NamedTuple):
    """The options of a start.

    `shape` None means the shape stored in the directory, or one node in a new one. `own_settings`
    are settings of single nodes. `after` is the part of a testbed document besides its nodes.
    """

    port: int | None
    settings: Mapping[str, str]
    shape: AskedShape | None = None
    isolate: bool = False
    own_settings: Mapping[int, Mapping[str, str]] = {}
    after: Mapping[str, Any] | None = None


class Prepared(NamedTuple):
    """The plan of a start, with its validated configurations."""

    known: Remembered
    plans: Sequence[NodePlan]
    configs: Sequence[NodeConfig]


def run(
    early: Early,
    options: Options,
    *,
    begun: float,
    detached: bool = False,
    lifeline: int | None = None,
) -> int:
    """Start the cluster and supervise it until it is down; return the exit code.

    `begun` is the monotonic time of the command in seconds. With `detached`, standard output and
    error are redirected to the log once the cluster is ready. `lifeline` is a descriptor; the
    cluster stops when its other end closes. Raises ConfigError, StartupRefused.
    """
    place = ClusterPlace(early.root)
    fork_server = ForkServerProcess(early.fork_server or _start_late(early, place))
    router = None
    try:
        prepared = _prepare(place, options)
        if prepared.known.network:
            ids = [plan.node.node_id for plan in prepared.plans]
            router = Router(place, Network(prepared.known.network), ids, early.log_fd)
    except BaseException:
        fork_server.end()
        early.take_back()
        raise

    testbed = None if options.after is None else Testbed(place, options.after)

    def ready(cluster: NodeProcesses) -> None:
        if testbed is not None:
            testbed.prepare(_addresses(cluster))
        announce(place, cluster, prepared, begun)
        if testbed is not None:
            testbed.start_faults(early.log_fd if detached else None)
        if detached:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(early.log_fd, 1)
            os.dup2(early.log_fd, 2)

    supervisor = Supervisor(
        place,
        fork_server,
        prepared.plans,
        prepared.known.cluster_id,
        on_ready=ready,
        say=_say,
        lifeline=lifeline,
    )
    try:
        with registry.registered(str(place.root), os.environ):
            return supervisor.run()
    finally:
        if testbed is not None:
            testbed.end()
        if router is not None:
            router.end()


def _say(text: str) -> None:
    """Write a line to standard error; in a file, such as supervisor.log, with the time in UTC."""
    is_file = stat.S_ISREG(os.fstat(sys.stderr.fileno()).st_mode)
    clock = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z " if is_file else ""
    sys.stderr.write(f"kraftbox: {clock}{escape(text)}\n")
    sys.stderr.flush()


def _start_late(early: Early, place: ClusterPlace) -> subprocess.Popen[bytes]:
    """Start the fork server once the previous cluster has unlocked the directory.

    Raises StartupRefused.
    """
    if control.is_supervised(place):
        raise StartupRefused(
            f"{place.root} is in use: its cluster is running (kraftbox status, kraftbox down)"
        )
    control.wait_until_free(place, STOPPING_MS_MAX)
    early.lock_fd = take(early.root)
    if early.lock_fd is None:
        raise StartupRefused(f"{place.root} is in use: the nodes of its last start are stopping")
    return start_fork_server(early.log_fd, early.lock_fd)


def _prepare(place: ClusterPlace, options: Options) -> Prepared:
    """Plan and validate the start, then write the plan to the directory."""
    cluster_id = uuid_to_text(random_uuid(random.SystemRandom()))
    known, plans = plan_cluster(
        place,
        options.shape,
        options.port,
        options.settings,
        cluster_id,
        isolate=options.isolate,
        own_settings=options.own_settings,
    )
    configs = [NodeConfig.parse(plan.properties) for plan in plans]
    for plan in plans:
        port = known.ports[plan.node.node_id].client
        if port and "listeners" not in known.settings and not port_is_free(port):
            raise StartupRefused(
                f"cannot listen on {HOST}:{port}: Address already in use (choose "
                "another with --port, or --port 0 for a free one)"
            )
    place.keep(known)
    place.prepare_nodes(plans)
    return Prepared(known, plans, configs)


class Testbed:
    """The parts of a testbed besides its nodes (topics, links, faults), run by separate
    processes.
    """

    def __init__(self, place: ClusterPlace, after: Mapping[str, Any]) -> None:
        self._place = place
        self._after = after
        self._bootstrap = ""
        self._faults: subprocess.Popen[bytes] | None = None

    def prepare(self, bootstrap: str) -> None:
        """Create the topics and set the links. Raises StartupRefused."""
        self._bootstrap = bootstrap
        try:
            done = subprocess.run(
                self._command("prepare"),
                input=self._document(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=PREPARE_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StartupRefused(f"testbed not ready after {PREPARE_S_MAX} s") from None
        if done.returncode:
            complaint = done.stderr.decode(errors="replace").strip().removeprefix("kraftbox: ")
            raise StartupRefused(complaint or f"testbed failed: exit code {done.returncode}")

    def start_faults(self, log_fd: int | None) -> None:
        """Start the fault schedule, if there is one; its process logs to `log_fd`."""
        if not self._after["faults"]:
            return
        self._faults = subprocess.Popen(
            self._command("faults"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log_fd,
            start_new_session=True,
        )
        assert self._faults.stdin is not None
        # If the process has already ended, it has logged the reason, and the cluster continues.
        with contextlib.suppress(BrokenPipeError):
            self._faults.stdin.write(self._document())
            self._faults.stdin.flush()

    def end(self) -> None:
        if self._faults is None:
            return
        assert self._faults.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._faults.stdin.close()
        try:
            self._faults.wait(FAULTS_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._faults.kill()
            self._faults.wait()

    def _command(self, what: str) -> list[str]:
        return own_command("_testbed", str(self._place.root), self._bootstrap, what)

    def _document(self) -> bytes:
        return json.dumps(self._after).encode() + b"\n"


def _addresses(cluster: NodeProcesses) -> str:
    """Return the bootstrap servers for clients."""
    return ",".join(
        address for node in cluster.nodes.values() for address in node.facts.get("addresses", [])
    )


def announce(place: ClusterPlace, cluster: NodeProcesses, prepared: Prepared, begun: float) -> None:
    """Print that the cluster is ready, for a terminal or for a program that reads a pipe."""
    out = sys.stdout
    connect_to = _addresses(cluster)
    seconds = time.monotonic() - begun
    shape = prepared.known.shape
    if shape == ONE_NODE:
        (plan,), (config,) = prepared.plans, prepared.configs
        http = cluster.nodes[plan.node.node_id].facts.get("http")
        lines = announcement.of_one_node(
            plan, config, connect_to=connect_to, http=http, seconds=seconds
        )
    else:
        lines = announcement.of_cluster(
            shape,
            prepared.plans,
            prepared.configs,
            connect_to=connect_to,
            root=str(place.root),
            seconds=seconds,
        )
    if out.isatty():
        lines.append("Ctrl-C stops it; the same command resumes it.")
    else:
        lines.insert(0, f"bootstrap.servers={connect_to}")
    lines.append("Manage it with kraftbox status, node, logs and down (with this --dir).")
    out.write("".join(f"{escape(line)}\n" for line in lines))
    out.flush()
