"""Shell: The directory of a local cluster, what is kept in it and who may use it.

    cluster.properties   shape, addresses and settings, from the first start on
    node-ID/             server.properties (written for the reader at each start), data/, node.log
    network              with --isolate: the socket of the process that carries the packets
    supervisor.log       what a detached supervisor and the fork server have to say
    .running             locked as long as the supervisor or the fork server lives
    control              the supervisor's socket

Node 1 of a directory that a plain `kraftbox up` began lies in the directory itself.
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

# Below the ports that systems lend to outgoing connections: a node that is down must find its own
# port free when it comes back, and a client that tries it meanwhile must not meet itself.
PORTS = range(20_000, 30_000)
PORTS_VARIABLE = "KRAFTBOX_PORTS"
_PORT_MIN, _PORT_END = 1024, 65_536

COMMENT = "Written by `kraftbox up`, which reads it again."
NODE_COMMENT = "Written by `kraftbox up` at every start; change it with --set."


class ClusterPlace:
    """The directory and the names in it."""

    def __init__(self, directory: str | Path) -> None:
        self.root = Path(directory).absolute()
        self.properties = self.root / "cluster.properties"
        # Alone in the directory of a node that was begun before single nodes were clusters of one.
        self._single = self.root / "server.properties"
        self.log = self.root / early.LOG
        self.lock = self.root / early.LOCK
        self.control = self.root / "control"

    @property
    def is_new(self) -> bool:
        """Whether nothing was started here before."""
        return not (self.properties.exists() or self._single.exists())

    def why_not_running(self) -> str:
        """What a command is told that found no supervisor."""
        return f"no cluster is running in {self.root}"

    def node_logs(self) -> dict[int, Path]:
        """The file that each node logs to, by id. Raises StartupRefused."""
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
        """What is known of the cluster, None for a new directory. Raises StartupRefused."""
        try:
            if self.properties.exists():
                return remembered_from_properties(read_properties(self.properties))
            if self._single.exists():
                return remembered_from_node(read_properties(self._single))
        except PlanRefused as error:
            raise StartupRefused(f"{self.root}: {error}") from None
        return None

    def write_properties(self, path: Path, lines: Mapping[str, str], comment: str) -> None:
        """Write a file of settings, which only its owner may read. Raises OSError."""
        write_private(path, format_properties(lines, comment))

    def keep(self, known: Remembered) -> None:
        self.write_properties(self.properties, remembered_to_properties(known), COMMENT)

    def prepare_nodes(self, plans: Sequence[NodePlan]) -> None:
        """Make the nodes' folders and write their properties."""
        for plan in plans:
            folder = Path(plan.directory)
            folder.mkdir(mode=0o700, exist_ok=True)
            self.write_properties(folder / "server.properties", plan.properties, NODE_COMMENT)

    @property
    def is_taken(self) -> bool:
        """Whether a supervisor, or what one left behind, is alive."""
        if not self.lock.exists():
            return False
        fd = early.take(str(self.root))
        if fd is None:
            return True
        os.close(fd)
        return False

    @contextmanager
    def control_address(self) -> Iterator[str]:
        """A path of the control socket that fits into a socket address, valid in the block.

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
    """Whether a listener could be opened there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def ports_of(environ: Mapping[str, str]) -> range:
    """The ports to choose from; KRAFTBOX_PORTS=LOW-HIGH (HIGH is not among them) gives each of
    several users of one machine its own. Raises StartupRefused."""
    given = environ.get(PORTS_VARIABLE)
    if not given:
        return PORTS
    low, _, high = given.partition("-")
    if low.isdecimal() and high.isdecimal() and _PORT_MIN <= int(low) < int(high) <= _PORT_END:
        return range(int(low), int(high))
    raise StartupRefused(
        f"{PORTS_VARIABLE} is {given!r}: LOW-HIGH, {_PORT_MIN} <= LOW < HIGH <= {_PORT_END}"
    )


class PortChooser:
    """Free ports, none of them twice. Raises StartupRefused when there are none left."""

    def __init__(self, rng: random.Random, taken: set[int], ports: range | None = None) -> None:
        self._rng = rng
        self._taken = taken
        self._ports = ports_of(os.environ) if ports is None else ports

    def choose(self, kept: int = 0) -> int:
        """`kept` if it is free, another one otherwise."""
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
    """Complete ports. Client ports stay what they are: they are the address that is promised.
    Controllers and health may move between runs when somebody has taken theirs."""
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
    """What to start: the options of this start over what the directory remembers.

    `asked` None is what the directory holds, or one node. `cluster_id` is for a new one; so is
    `isolate`, which gives it a network of its own. `own_settings` are those of single nodes.
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
    """Settings of earlier starts; a port that is asked for now replaces listeners given then."""
    kept = dict(known.settings) if known else {}
    if port:
        kept.pop("listeners", None)
    return kept


def _cluster_id_in(plan: NodePlan) -> str | None:
    """The cluster id of a directory that was formatted before it had a cluster.properties."""
    meta = Path(plan.properties["log.dirs"].partition(",")[0].strip(), "meta.properties")
    return read_properties(meta).get("cluster.id") if meta.exists() else None


def _network(known: Remembered | None, isolate: bool) -> Network | None:
    """The network of the cluster, None for the host's. Raises PlanRefused, StartupRefused."""
    if known is None:
        return choose_network(random.SystemRandom()) if isolate else None
    if isolate and not known.network:
        raise PlanRefused("--isolate is for a new cluster: this one's nodes have their addresses")
    return Network(known.network) if known.network else None


def _hosts(nodes: Sequence[PlannedNode], network: Network | None) -> dict[int, str] | None:
    if network is None:
        return None
    return {node.node_id: network.address(node.node_id) for node in nodes}
