"""The plan of a local cluster: nodes, addresses, properties. Pure.

Brokers have the IDs 1, 2, ...; separate controllers have 101, 102, ..., so that brokers can be
added later. With `combined`, IDs count from 1: the first nodes are controllers, and the first nodes
are brokers. A plain `kraftbox up` is a cluster of one combined node, in the directory itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

HOST = "127.0.0.1"
PORT_DEFAULT = 9092
CONTROLLER_ID_FIRST = 101
BROKERS_MAX = CONTROLLER_ID_FIRST - 1
CONTROLLERS_MAX = 99

NODE_LOG = "node.log"
REPLICATION_FACTOR = 3
"""Kafka's default of internal topics; lowered if there are fewer brokers."""


def local_settings(brokers: int) -> dict[str, str]:
    """Return the settings in which a local cluster of `brokers` brokers differs from Kafka's
    defaults.

    Internal topics get the highest possible replication factor up to Kafka's default. The first
    rebalance of a group is not delayed, because there are no further members to wait for.
    """
    factor = min(REPLICATION_FACTOR, brokers)
    min_isr = max(1, factor - 1)
    return {
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(min_isr),
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(factor),
        "rlmm.config.remote.log.metadata.topic.min.isr": str(min_isr),
        "group.initial.rebalance.delay.ms": "0",
    }


# All voters are on one machine and start together, so the first election need not wait a second for
# votes in flight. The fetch timeout, which detects a dead leader, keeps its default.
QUORUM_SETTINGS = {"controller.quorum.election.timeout.ms": "150"}
# A user who kills a node of a local cluster wants to see the failover and to restart the node.
# Neither should wait for the session timeout of a process whose connections the kernel has closed.
# A hanging process keeps its connections and its session, so a busy machine fences no broker.
BROKER_SETTINGS = {"kraftbox.broker.connection.loss.fence.ms": "500"}

IDENTITY_KEYS = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "kraftbox.http.listener",
    }
)
"""Keys of a node's identity and addresses: the plan sets them, and `--set` must not."""
OWN_KEYS = IDENTITY_KEYS - {"broker.id", "node.id", "process.roles"}
"""The identity keys that `--set` accepts for a cluster of one, which shares them with no other
node.
"""


class PlanRefused(Exception):
    """The plan is impossible; the message has the reason."""


class Shape(NamedTuple):
    """The number of nodes per role. `racks` are assigned to brokers in turn; empty for none."""

    controllers: int = 1
    brokers: int = 1
    combined: bool = False
    racks: tuple[str, ...] = ()

    def text(self) -> str:
        if self == ONE_NODE:
            return "one node"
        kinds = f"{_count(self.controllers, 'controller')} and {_count(self.brokers, 'broker')}"
        return f"{kinds} (combined)" if self.combined else kinds


ONE_NODE = Shape(controllers=1, brokers=1, combined=True)
"""The shape of a plain `kraftbox up`."""


class AskedShape(NamedTuple):
    """The shape in the options of a start; None, False and () mean that the option was not
    given.
    """

    controllers: int | None = None
    brokers: int | None = None
    combined: bool = False
    racks: tuple[str, ...] = ()

    def over(self, before: Shape | None) -> Shape:
        """Return the requested shape.

        Options that were not given come from `before` or the defaults.
        """
        known = before or Shape()
        return Shape(
            known.controllers if self.controllers is None else self.controllers,
            known.brokers if self.brokers is None else self.brokers,
            self.combined or known.combined,
            self.racks or known.racks,
        )


class PlannedNode(NamedTuple):
    """One node: its roles, and a broker's rack."""

    node_id: int
    is_controller: bool
    is_broker: bool
    rack: str | None = None

    @property
    def roles(self) -> str:
        """The value of `process.roles` for this node."""
        named = (("broker", self.is_broker), ("controller", self.is_controller))
        return ",".join(name for name, has in named if has)


class Ports(NamedTuple):
    """The ports of a node; 0 for a listener that it does not have."""

    client: int
    controller: int
    http: int


class NodePlan(NamedTuple):
    """The start parameters of a node.

    `properties` are those of its server.properties. `namespace` is its network namespace, None for
    the host's.
    """

    node: PlannedNode
    directory: str
    properties: Mapping[str, str]
    namespace: str | None = None

    @property
    def log(self) -> str:
        """The path of the node's log file."""
        return f"{self.directory}/{NODE_LOG}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def check_shape(shape: Shape) -> None:
    """Raise PlanRefused if a number of nodes is out of range."""
    if not 1 <= shape.controllers <= CONTROLLERS_MAX:
        raise PlanRefused(f"--controllers: must be from 1 to {CONTROLLERS_MAX}")
    if not 1 <= shape.brokers <= BROKERS_MAX:
        raise PlanRefused(f"--brokers: must be from 1 to {BROKERS_MAX}")


def check_change(before: Shape, after: Shape) -> None:
    """Raise PlanRefused if an existing cluster cannot be started with the shape `after`.

    Only brokers can be added: voters are fixed when a cluster is created, and a broker keeps its
    data and rack.
    """
    same = before._replace(brokers=after.brokers)
    if after.brokers < before.brokers or after != same:
        raise PlanRefused(
            "this directory contains "
            f"{_holding(before)}{(', racks ' + ','.join(before.racks) if before.racks else '')}: "
            "only brokers can be added; use another --dir for another cluster"
        )


def _holding(shape: Shape) -> str:
    return "a single node" if shape == ONE_NODE else f"a cluster of {shape.text()}"


def planned_nodes(shape: Shape) -> list[PlannedNode]:
    """Return all nodes of a shape, brokers before separate controllers."""

    def rack(broker_id: int) -> str | None:
        return shape.racks[(broker_id - 1) % len(shape.racks)] if shape.racks else None

    if shape.combined:
        return [
            PlannedNode(
                node_id,
                is_controller=node_id <= shape.controllers,
                is_broker=node_id <= shape.brokers,
                rack=rack(node_id) if node_id <= shape.brokers else None,
            )
            for node_id in range(1, max(shape.controllers, shape.brokers) + 1)
        ]
    brokers = [PlannedNode(i, False, True, rack(i)) for i in range(1, shape.brokers + 1)]
    first = CONTROLLER_ID_FIRST
    return brokers + [PlannedNode(i, True, False) for i in range(first, first + shape.controllers)]


def client_ports(
    nodes: Sequence[PlannedNode], port: int | None, remembered: Mapping[int, Ports]
) -> dict[int, int]:
    """Return the client port of every broker; 0 means that a free port is to be chosen.

    With `port`, brokers get `port`, `port + 1`, .... Otherwise they keep their remembered ports; a
    new cluster counts from PORT_DEFAULT. Port 0, or a broker added to remembered ones, means a free
    port. Raises PlanRefused if the ports exceed 65535.
    """
    found = {}
    brokers = [node.node_id for node in nodes if node.is_broker]
    for index, node_id in enumerate(brokers):
        if port:
            found[node_id] = port + index
        elif node_id in remembered:
            found[node_id] = remembered[node_id].client
        elif port is None and not remembered:
            found[node_id] = PORT_DEFAULT + index
        else:
            found[node_id] = 0
        if found[node_id] > 65535:
            raise PlanRefused(f"--port {port}: fewer than {len(brokers)} ports follow it")
    return found


def check_settings(settings: Iterable[str], shape: Shape) -> None:
    """Raise PlanRefused for a key that `--set` must not set, in this start or an earlier one."""
    for key in settings:
        if key in IDENTITY_KEYS and not (shape == ONE_NODE and key in OWN_KEYS):
            raise PlanRefused(f"--set {key}: `up` sets it for each node")


def node_plans(
    nodes: Sequence[PlannedNode],
    root: str,
    ports: Mapping[int, Ports],
    settings: Mapping[str, str],
    hosts: Mapping[int, str] | None = None,
    *,
    first_in_root: bool = False,
    own_settings: Mapping[int, Mapping[str, str]] | None = None,
) -> list[NodePlan]:
    """Return the plan of every node.

    `ports` are complete. `settings` override the defaults of `up`, and a node's own settings
    override `settings`. `hosts` are the nodes' addresses; None means HOST for all. With
    `first_in_root`, node 1 uses `root` itself and the others use subdirectories.
    """
    at = {node.node_id: (hosts or {}).get(node.node_id, HOST) for node in nodes}
    # User-defined listeners include the controller's port: with port 0 the node finds its own.
    own_listeners = "listeners" in settings
    voters = ",".join(
        f"{node.node_id}@{at[node.node_id]}:"
        f"{0 if own_listeners else ports[node.node_id].controller}"
        for node in nodes
        if node.is_controller
    )
    several = sum(node.is_controller for node in nodes) > 1
    common = {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        **local_settings(sum(node.is_broker for node in nodes)),
        **(QUORUM_SETTINGS if several else {}),
        **(BROKER_SETTINGS if len(nodes) > 1 else {}),
        **settings,
    }
    plans = []
    for node in nodes:
        in_root = first_in_root and node.node_id == 1
        directory = root if in_root else f"{root}/node-{node.node_id}"
        own = ports[node.node_id]
        properties = {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "listeners": _listeners(node, at[node.node_id], own),
            "log.dirs": f"{directory}/data",
            "kraftbox.http.listener": f"{at[node.node_id]}:{own.http}",
            **common,
            **(own_settings or {}).get(node.node_id, {}),
        }
        if node.rack is not None:
            properties["broker.rack"] = node.rack
        plans.append(NodePlan(node, directory, properties))
    return plans


def _listeners(node: PlannedNode, host: str, ports: Ports) -> str:
    entries = []
    if node.is_broker:
        entries.append(f"PLAINTEXT://{host}:{ports.client}")
    if node.is_controller:
        entries.append(f"CONTROLLER://{host}:{ports.controller}")
    return ",".join(entries)


class Remembered(NamedTuple):
    """The content of cluster.properties.

    `network` is the number of the cluster's own network, 0 without one. `first_in_root` is true if
    a plain `up` created the directory, so that node 1 uses the directory itself. `own_settings` are
    settings of single nodes, by ID.
    """

    cluster_id: str
    shape: Shape
    ports: Mapping[int, Ports]
    settings: Mapping[str, str]
    network: int = 0
    first_in_root: bool = False
    own_settings: Mapping[int, Mapping[str, str]] = {}


LAYOUT_VERSION = 2
"""The newest version of a directory's layout and its cluster.properties. A release reads the
layouts up to its own. A file without a version is of version 1, which did not store it at first.
Version 2 has settings of single nodes, and is written only if there are any.
"""
_OWN = re.compile(r"own\.(\d+)\.(.+)")
_LAYOUT = "layout.version"
_FIRST_DIRECTORY = "node.1.directory"
_IN_ROOT = "."


def remembered_to_properties(known: Remembered) -> dict[str, str]:
    """Return the lines of cluster.properties."""
    lines = {
        _LAYOUT: str(LAYOUT_VERSION if known.own_settings else 1),
        "cluster.id": known.cluster_id,
        "controllers": str(known.shape.controllers),
        "brokers": str(known.shape.brokers),
        "combined": str(known.shape.combined).lower(),
        "racks": ",".join(known.shape.racks),
    }
    if known.network:
        lines["network"] = str(known.network)
    if known.first_in_root:
        lines[_FIRST_DIRECTORY] = _IN_ROOT
    for node_id, ports in sorted(known.ports.items()):
        lines[f"node.{node_id}.ports"] = ",".join(map(str, ports))
    for key, value in known.settings.items():
        lines[f"set.{key}"] = value
    for node_id, settings in sorted(known.own_settings.items()):
        lines |= {f"own.{node_id}.{key}": value for key, value in settings.items()}
    return lines


def remembered_from_properties(lines: Mapping[str, str]) -> Remembered:
    """Parse cluster.properties. Raises PlanRefused if it is damaged or of a later release."""
    layout = lines.get(_LAYOUT, "1")
    if not layout.isdecimal() or not 1 <= int(layout) <= LAYOUT_VERSION:
        raise PlanRefused(
            f"cluster.properties: {_LAYOUT}={layout} is not supported; this release "
            f"reads 1 to {LAYOUT_VERSION}: start the directory with the release that "
            "wrote it, or a later one"
        )
    try:
        shape = Shape(
            controllers=int(lines["controllers"]),
            brokers=int(lines["brokers"]),
            combined=lines["combined"] == "true",
            racks=tuple(filter(None, lines["racks"].split(","))),
        )
        ports = {
            int(key.split(".")[1]): Ports(*map(int, value.split(",")))
            for key, value in lines.items()
            if key.startswith("node.") and key.endswith(".ports")
        }
        if {node.node_id for node in planned_nodes(shape)} - ports.keys():
            raise ValueError("ports of a node are missing")
        cluster_id = lines["cluster.id"]
        network = int(lines.get("network", "0"))
    except (KeyError, TypeError, ValueError) as error:
        raise PlanRefused(f"cluster.properties is damaged: {error!r}") from None
    settings = {k.removeprefix("set."): v for k, v in lines.items() if k.startswith("set.")}
    own: dict[int, dict[str, str]] = {}
    for key, value in lines.items():
        if match := _OWN.fullmatch(key):
            own.setdefault(int(match[1]), {})[match[2]] = value
    in_root = lines.get(_FIRST_DIRECTORY) == _IN_ROOT
    return Remembered(cluster_id, shape, ports, settings, network, in_root, own)


_LISTENERS_OF_OLD = re.compile(rf"PLAINTEXT://{re.escape(HOST)}:(\d+),CONTROLLER://[^:]*:0")


def remembered_from_node(lines: Mapping[str, str]) -> Remembered:
    """Derive the description of a cluster from the server.properties of an old plain `up`.

    Such a directory has no cluster.properties. The file holds the defaults of `up` and the `--set`
    settings. The cluster ID is only in the log directory, and is empty here. Raises PlanRefused for
    the file of another node.
    """
    if lines.get("node.id") != "1" or lines.get("process.roles") != "broker,controller":
        raise PlanRefused(
            "server.properties was not written by `kraftbox up`: run it with `kraftbox server FILE`"
        )
    defaults = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:0",
        "kraftbox.http.listener": f"{HOST}:0",
        **local_settings(brokers=1),
    }
    settings = {key: value for key, value in lines.items() if defaults.get(key) != value}
    # The directory may have been moved since the file was written.
    settings.pop("log.dirs", None)
    found = _LISTENERS_OF_OLD.fullmatch(lines.get("listeners", ""))
    if found:
        del settings["listeners"]
    ports = {1: Ports(int(found[1]) if found else 0, 0, 0)}
    return Remembered("", ONE_NODE, ports, settings, first_in_root=True)
