"""The directory of a local cluster: what is kept in it, and who may use it.

    cluster.properties   shape, addresses and settings, from the first start on
    node-ID/             server.properties (written for the reader at each start), data/, node.log
    network              with --isolate: the socket of the process that carries the packets
    supervisor.log       what a detached supervisor and the fork server have to say
    .running             locked as long as the supervisor or the fork server lives
    control              the supervisor's socket

A directory of a plain `kraftbox up` (server.properties, data/, node.log) can be supervised too; its
only node lies in the directory itself.
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
    AskedShape,
    Member,
    NodePlan,
    PlanRefused,
    Ports,
    Remembered,
    check_change,
    check_settings,
    check_shape,
    client_ports,
    members,
    node_plans,
    remembered_from_properties,
    remembered_to_properties,
)
from kraftbox.process.properties import read_properties
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
        self.log = self.root / early.LOG
        self.lock = self.root / early.LOCK
        self.control = self.root / "control"

    @property
    def is_cluster(self) -> bool:
        return self.properties.exists()

    @property
    def is_single(self) -> bool:
        """Whether a plain `kraftbox up` made it."""
        return (self.root / "server.properties").exists()

    def why_not_running(self) -> str:
        """What a command is told that found no supervisor."""
        text = f"no cluster is running in {self.root}"
        if self.is_single:
            text += "; a single node that `kraftbox up` runs in the foreground has no supervisor"
        return text

    def node_ids(self) -> list[int]:
        """The nodes that the directory knows. Raises StartupRefused."""
        if self.is_single:
            return [1]
        known = self.remembered()
        return [] if known is None else [member.node_id for member in members(known.shape)]

    def node_log(self, node_id: int) -> Path:
        """The file that a node logs to."""
        folder = self.root if self.is_single else self.root / f"node-{node_id}"
        return folder / "node.log"

    def remembered(self) -> Remembered | None:
        """What is known of the cluster, None for a new directory. Raises StartupRefused."""
        if not self.is_cluster:
            return None
        try:
            return remembered_from_properties(read_properties(self.properties))
        except PlanRefused as error:
            raise StartupRefused(f"{self.root}: {error}") from None

    def write_properties(self, path: Path, lines: Mapping[str, str], comment: str) -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(format_properties(lines, comment), encoding="utf-8")
        os.replace(temporary, path)

    def keep(self, known: Remembered) -> None:
        self.write_properties(self.properties, remembered_to_properties(known), COMMENT)

    def prepare_nodes(self, plans: Sequence[NodePlan]) -> None:
        """Make the nodes' folders and write their properties."""
        for plan in plans:
            folder = Path(plan.directory)
            folder.mkdir(exist_ok=True)
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
    nodes: Sequence[Member], clients: Mapping[int, int], known: Mapping[int, Ports], seed: int
) -> dict[int, Ports]:
    """Complete ports. Client ports stay what they are: they are the address that is promised.
    Controllers and health may move between runs when somebody has taken theirs."""
    chooser = PortChooser(random.Random(seed), {port for port in clients.values() if port})
    found = {}
    for member in nodes:
        kept = known.get(member.node_id, Ports(0, 0, 0))
        client = clients.get(member.node_id, 0)
        found[member.node_id] = Ports(
            client=client or (chooser.choose() if member.is_broker else 0),
            controller=chooser.choose(kept.controller) if member.is_controller else 0,
            http=chooser.choose(kept.http),
        )
    return found


def plan_cluster(
    place: ClusterPlace,
    asked: AskedShape,
    port: int | None,
    settings: Mapping[str, str],
    cluster_id: str,
    *,
    isolate: bool = False,
) -> tuple[Remembered, list[NodePlan]]:
    """What to start: the options of this start over what the directory remembers.

    `cluster_id` is for a new one; so is `isolate`, which gives it a network of its own. Raises
    StartupRefused.
    """
    known = place.remembered()
    try:
        wanted = asked.over(known.shape if known else None)
        check_shape(wanted)
        check_settings(settings)
        if known is not None:
            check_change(known.shape, wanted)
        nodes = members(wanted)
        kept = known.ports if known else {}
        ports = choose_ports(
            nodes,
            client_ports(nodes, port, kept),
            kept,
            random.SystemRandom().getrandbits(64),
        )
        merged = {**(known.settings if known else {}), **settings}
        network = _network(known, isolate)
        plans = node_plans(nodes, str(place.root), ports, merged, _hosts(nodes, network))
    except PlanRefused as error:
        raise StartupRefused(str(error)) from None
    number = 0
    if network is not None:
        number = network.number
        plans = [plan._replace(namespace=network.namespace(plan.member.node_id)) for plan in plans]
    found = Remembered(known.cluster_id if known else cluster_id, wanted, ports, merged, number)
    return found, plans


def _network(known: Remembered | None, isolate: bool) -> Network | None:
    """The network of the cluster, None for the host's. Raises PlanRefused, StartupRefused."""
    if known is None:
        return choose_network(random.SystemRandom()) if isolate else None
    if isolate and not known.network:
        raise PlanRefused("--isolate is for a new cluster: this one's nodes have their addresses")
    return Network(known.network) if known.network else None


def _hosts(nodes: Sequence[Member], network: Network | None) -> dict[int, str] | None:
    if network is None:
        return None
    return {member.node_id: network.address(member.node_id) for member in nodes}
