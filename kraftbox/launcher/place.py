"""Shell: The directory of a local cluster: its files, its lock and its control socket.

    cluster.properties   shape, addresses and settings, from the first start on
    node-ID/             server.properties (written at each start, for the reader), data/, node.log
    network              with --isolate: the socket of the process that carries the packets
    events.jsonl         actions on nodes and links, for `kraftbox events` and the audit
    supervisor.log       output of a detached supervisor and of the fork server
    .running             locked while the supervisor or the fork server lives
    control              the supervisor's socket

If a plain `kraftbox up` created the directory, the files of node 1 are in the directory itself.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kraftbox.launcher import early
from kraftbox.launcher.addresses import Network, choose_network
from kraftbox.launcher.plan import (
    HOST,
    NODE_LOG,
    ONE_NODE,
    AskedShape,
    NodePlan,
    PlannedNode,
    PlanRefused,
    Ports,
    Remembered,
    check_change,
    check_settings,
    check_shape,
    client_ports,
    node_plans,
    planned_nodes,
    remembered_from_node,
    remembered_from_properties,
    remembered_to_properties,
)
from kraftbox.process.properties import read_properties, write_private
from runtime.config.properties import format_properties
from runtime.errors import StartupRefused

# These ports are below the ephemeral range of operating systems. A restarted node must find its
# port free, and a client that tries the port of a stopped node must not connect to itself.
PORTS = range(20_000, 30_000)
PORTS_VARIABLE = "KRAFTBOX_PORTS"
_PORT_MIN, _PORT_END = 1024, 65_536

COMMENT = "Written by `kraftbox up`, which reads it again."
NODE_COMMENT = "Written by `kraftbox up` at every start; change it with --set."


class ClusterPlace:
    """The directory of a local cluster and the paths in it."""

    def __init__(self, directory: str | Path) -> None:
        self.root = Path(directory).absolute()
        self.properties = self.root / "cluster.properties"
        # The only properties file in a directory that is older than cluster.properties.
        self._single = self.root / "server.properties"
        self.log = self.root / early.LOG
        self.lock = self.root / early.LOCK
        self.control = self.root / "control"

    @property
    def is_new(self) -> bool:
        """True if no cluster was started in this directory yet."""
        return not (self.properties.exists() or self._single.exists())

    def why_not_running(self) -> str:
        """Return the error message of a command that found no supervisor."""
        return f"no cluster is running in {self.root}"

    def node_logs(self) -> dict[int, Path]:
        """Return the log file of each node by node ID. Raises StartupRefused."""
        known = self.remembered()
        if known is None:
            return {}
        return {
            node.node_id: self._folder(known, node.node_id) / NODE_LOG
            for node in planned_nodes(known.shape)
        }

    def _folder(self, known: Remembered, node_id: int) -> Path:
        in_root = known.first_in_root and node_id == 1
        return self.root if in_root else self.root / f"node-{node_id}"

    def remembered(self) -> Remembered | None:
        """Return the stored description of the cluster, None for a new directory.

        Raises StartupRefused for a file that cannot be used.
        """
        try:
            if self.properties.exists():
                return remembered_from_properties(read_properties(self.properties))
            if self._single.exists():
                return remembered_from_node(read_properties(self._single))
        except PlanRefused as error:
            raise StartupRefused(f"{self.root}: {error}") from None
        return None

    def write_properties(self, path: Path, lines: Mapping[str, str], comment: str) -> None:
        """Write a properties file that only its owner may read. Raises OSError."""
        write_private(path, format_properties(lines, comment))

    def keep(self, known: Remembered) -> None:
        self.write_properties(self.properties, remembered_to_properties(known), COMMENT)

    def prepare_nodes(self, plans: Sequence[NodePlan]) -> None:
        """Create the nodes' directories and write their server.properties."""
        for plan in plans:
            folder = Path(plan.directory)
            folder.mkdir(mode=0o700, exist_ok=True)
            self.write_properties(folder / "server.properties", plan.properties, NODE_COMMENT)

    @property
    def is_taken(self) -> bool:
        """True if a supervisor or its fork server holds the lock."""
        if not self.lock.exists():
            return False
        fd = early.take(str(self.root))
        if fd is None:
            return True
        os.close(fd)
        return False

    @contextmanager
    def control_address(self) -> Iterator[str]:
        """Yield a path of the control socket that fits into a socket address, valid in the block.

        Raises OSError.
        """
        address = str(self.control)
        if len(os.fsencode(address)) < 100 or not os.path.isdir("/proc/self/fd"):
            yield address
            return
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{fd}/{self.control.name}"
        finally:
            os.close(fd)


def port_is_free(port: int) -> bool:
    """Return whether a listener could be opened on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def ports_of(environ: Mapping[str, str]) -> range:
    """Return the ports to choose from.

    KRAFTBOX_PORTS=LOW-HIGH (HIGH is excluded) gives each of several users of one machine a range of
    their own. Raises StartupRefused for an invalid value.
    """
    given = environ.get(PORTS_VARIABLE)
    if not given:
        return PORTS
    low, _, high = given.partition("-")
    if low.isdecimal() and high.isdecimal() and _PORT_MIN <= int(low) < int(high) <= _PORT_END:
        return range(int(low), int(high))
    raise StartupRefused(
        f"{PORTS_VARIABLE}: expected LOW-HIGH with {_PORT_MIN} <= LOW < HIGH <= "
        f"{_PORT_END}, got {given!r}"
    )


class PortChooser:
    """Chooser of distinct free ports. Raises StartupRefused if it finds none."""

    def __init__(self, rng: random.Random, taken: set[int], ports: range | None = None) -> None:
        self._rng = rng
        self._taken = taken
        self._ports = ports_of(os.environ) if ports is None else ports

    def choose(self, kept: int = 0) -> int:
        """Return `kept` if it is free, otherwise another free port."""
        if kept and kept not in self._taken and port_is_free(kept):
            self._taken.add(kept)
            return kept
        for _ in range(1000):
            port = self._rng.choice(self._ports)
            if port not in self._taken and port_is_free(port):
                self._taken.add(port)
                return port
        raise StartupRefused(f"no free port from {self._ports.start} to {self._ports.stop - 1}")


def choose_ports(
    nodes: Sequence[PlannedNode], clients: Mapping[int, int], known: Mapping[int, Ports], seed: int
) -> dict[int, Ports]:
    """Return the ports of all nodes.

    Client ports never change, because they are the advertised address. The ports of controllers and
    HTTP change between runs if another process has taken them.
    """
    chooser = PortChooser(random.Random(seed), {port for port in clients.values() if port})
    found = {}
    for node in nodes:
        kept = known.get(node.node_id, Ports(0, 0, 0))
        client = clients.get(node.node_id, 0)
        found[node.node_id] = Ports(
            client=client or (chooser.choose() if node.is_broker else 0),
            controller=chooser.choose(kept.controller) if node.is_controller else 0,
            http=chooser.choose(kept.http),
        )
    return found


def plan_cluster(
    place: ClusterPlace,
    asked: AskedShape | None,
    port: int | None,
    settings: Mapping[str, str],
    cluster_id: str,
    *,
    isolate: bool = False,
    own_settings: Mapping[int, Mapping[str, str]] | None = None,
) -> tuple[Remembered, list[NodePlan]]:
    """Plan a start: the given options override what the directory stores.

    `asked` None means the stored shape, or one node in a new directory. `cluster_id` and `isolate`
    (a network of its own) apply to a new cluster. `own_settings` are settings of single nodes.
    Raises StartupRefused.
    """
    known = place.remembered()
    try:
        before = known.shape if known else None
        wanted = asked.over(before) if asked else before or ONE_NODE
        check_shape(wanted)
        if before is not None:
            check_change(before, wanted)
        merged = {**_kept_settings(known, port), **settings}
        own = dict(known.own_settings) if known else {}
        for node_id, given in (own_settings or {}).items():
            own[node_id] = {**own.get(node_id, {}), **given}
        check_settings([*merged, *(key for given in own.values() for key in given)], wanted)
        nodes = planned_nodes(wanted)
        kept = known.ports if known else {}
        ports = choose_ports(
            nodes,
            client_ports(nodes, port, kept),
            kept,
            random.SystemRandom().getrandbits(64),
        )
        network = _network(known, isolate)
        first_in_root = known.first_in_root if known else wanted == ONE_NODE
        plans = node_plans(
            nodes,
            str(place.root),
            ports,
            merged,
            _hosts(nodes, network),
            first_in_root=first_in_root,
            own_settings=own,
        )
    except PlanRefused as error:
        raise StartupRefused(str(error)) from None
    number = 0
    if network is not None:
        number = network.number
        plans = [plan._replace(namespace=network.namespace(plan.node.node_id)) for plan in plans]
    if known and known.cluster_id:
        cluster_id = known.cluster_id
    elif first_in_root:
        cluster_id = _cluster_id_in(plans[0]) or cluster_id
    return Remembered(cluster_id, wanted, ports, merged, number, first_in_root, own), plans


def _kept_settings(known: Remembered | None, port: int | None) -> dict[str, str]:
    """Return the stored settings; a given port replaces listeners that were set earlier."""
    kept = dict(known.settings) if known else {}
    if port:
        kept.pop("listeners", None)
    return kept


def _cluster_id_in(plan: NodePlan) -> str | None:
    """Return the cluster ID of a directory formatted before cluster.properties existed, or None."""
    meta = Path(plan.properties["log.dirs"].partition(",")[0].strip(), "meta.properties")
    return read_properties(meta).get("cluster.id") if meta.exists() else None


def _network(known: Remembered | None, isolate: bool) -> Network | None:
    """Return the cluster's network, None for the host's. Raises PlanRefused, StartupRefused."""
    if known is None:
        return choose_network(random.SystemRandom()) if isolate else None
    if isolate and not known.network:
        raise PlanRefused(
            "--isolate needs a new cluster: the nodes of this one have addresses already"
        )
    return Network(known.network) if known.network else None


def _hosts(nodes: Sequence[PlannedNode], network: Network | None) -> dict[int, str] | None:
    if network is None:
        return None
    return {node.node_id: network.address(node.node_id) for node in nodes}
