"""`kraftbox up` with more than one node, or detached: from options to a supervised cluster."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kraftbox.launcher import control
from kraftbox.launcher.addresses import Network
from kraftbox.launcher.differences import differences
from kraftbox.launcher.early import Early, start_fork_server, take
from kraftbox.launcher.place import ClusterPlace, plan_cluster, port_is_free
from kraftbox.launcher.plan import AskedShape, Member, NodePlan
from kraftbox.launcher.router import Router
from kraftbox.launcher.single import Place, properties, with_port
from kraftbox.launcher.states import Cluster
from kraftbox.launcher.supervisor import ForkServerProcess, Supervisor
from protocol.ids import random_uuid, uuid_to_text
from runtime.config import NodeConfig
from runtime.errors import StartupRefused

STOPPING_MS_MAX = 15_000
"""How long a start waits for what the last supervisor left behind."""


class Options(NamedTuple):
    """What was asked for; `shape` None resumes, or is one node."""

    port: int | None
    settings: Mapping[str, str]
    shape: AskedShape | None = None
    isolate: bool = False


class Prepared(NamedTuple):
    cluster_id: str
    plans: Sequence[NodePlan]
    text: str
    network: int = 0


def run(
    early: Early,
    options: Options,
    *,
    begun: float,
    detached: bool = False,
    lifeline: int | None = None,
) -> int:
    """Start and supervise until it is down; raises ConfigError and StartupRefused.

    `begun` is the monotonic time of the command in seconds. `detached`: standard output and error
    are given up once the cluster is ready. `lifeline` is a descriptor whose end ends the cluster.
    """
    place = ClusterPlace(early.root)
    fork_server = ForkServerProcess(early.fork_server or _start_late(early, place))
    router = None
    try:
        prepared = _prepare(place, options)
        if prepared.network:
            ids = [plan.member.node_id for plan in prepared.plans]
            router = Router(place, Network(prepared.network), ids, early.log_fd)
    except BaseException:
        fork_server.end()
        raise

    def ready(cluster: Cluster) -> None:
        report(place, cluster, prepared, begun)
        if detached:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(early.log_fd, 1)
            os.dup2(early.log_fd, 2)

    supervisor = Supervisor(
        place,
        fork_server,
        prepared.plans,
        prepared.cluster_id,
        on_ready=ready,
        say=_say,
        lifeline=lifeline,
    )
    try:
        return supervisor.run()
    finally:
        if router is not None:
            router.end()


def _say(text: str) -> None:
    sys.stderr.write(f"kraftbox: {text}\n")
    sys.stderr.flush()


def _start_late(early: Early, place: ClusterPlace) -> subprocess.Popen[bytes]:
    """The fork server, once whoever has the directory has let it go. Raises StartupRefused."""
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
    """What to start; written to the directory once it is known to be good."""
    cluster_id = uuid_to_text(random_uuid(random.SystemRandom()))
    if _is_single(place, options):
        return _prepare_single(place, options, cluster_id)
    if place.is_single:
        raise StartupRefused(f"{place.root} holds a single node: give another --dir for a cluster")
    asked = options.shape or AskedShape()
    known, plans = plan_cluster(
        place, asked, options.port, options.settings, cluster_id, isolate=options.isolate
    )
    configs = [NodeConfig.parse(plan.properties) for plan in plans]
    for plan in plans:
        port = known.ports[plan.member.node_id].client
        if port and not port_is_free(port):
            raise StartupRefused(
                f"port {port} of node {plan.member.node_id} is taken; --port chooses others"
            )
    place.prepare_nodes(plans)
    place.keep(known)
    text = _text(f"Cluster of {known.shape.text()}", configs)
    return Prepared(known.cluster_id, plans, text, known.network)


def _is_single(place: ClusterPlace, options: Options) -> bool:
    if options.shape is not None:
        return False
    return place.is_single or not place.is_cluster


def _prepare_single(place: ClusterPlace, options: Options, cluster_id: str) -> Prepared:
    single = Place(str(place.root))
    single.refuse_foreign()
    props = with_port(properties(single, options.port, options.settings))
    config = NodeConfig.parse(props)
    single.remember(props)
    plan = NodePlan(Member(config.node_id, True, True), str(place.root), props)
    return Prepared(
        single.cluster_id() or cluster_id, [plan], _text(f"Node {config.node_id}", [config])
    )


def _text(what: str, configs: Sequence[NodeConfig]) -> str:
    """What is told when it is ready: settings that are not Kafka's defaults, and what is odd about
    the configuration, once for all."""
    lines = [f"{what} is ready after"]
    shown = list(dict.fromkeys(line for config in configs for line in differences(config)))
    if shown:
        lines.append("  not as in Kafka's defaults:")
        lines += [f"    {line}" for line in shown]
    warnings = dict.fromkeys(warning for config in configs for warning in config.warnings)
    lines += [f"  warning: {warning}" for warning in warnings]
    return "\n".join(lines)


def report(place: ClusterPlace, cluster: Cluster, prepared: Prepared, begun: float) -> None:
    """Tell a person or a pipe that the cluster is ready."""
    out = sys.stdout
    bootstrap = ",".join(
        address for node in cluster.nodes.values() for address in node.facts.get("addresses", [])
    )
    if not out.isatty():
        out.write(f"bootstrap.servers={bootstrap}\n")
    first, *rest = prepared.text.splitlines()
    lines = [f"{first} {time.monotonic() - begun:.2f} s.", f"  connect to   {bootstrap}"]
    for plan in prepared.plans:
        rack = f", rack {plan.member.rack}" if plan.member.rack else ""
        listeners = plan.properties["listeners"]
        lines.append(f"  node {plan.member.node_id:<7} {plan.member.roles}{rack}: {listeners}")
    lines += [f"  directory    {place.root}", *rest]
    lines.append("kraftbox status, node, logs and down (with this --dir) look after it.")
    out.write("".join(f"{line}\n" for line in lines))
    out.flush()
