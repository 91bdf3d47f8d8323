"""The testbed file of `kraftbox up --file`: a cluster with its topics, links and faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from kraftbox.documents.base import Document, Number, Settings, Whole
from kraftbox.launcher.plan import (
    BROKERS_MAX,
    CONTROLLERS_MAX,
    IDENTITY_KEYS,
    AskedShape,
    Shape,
    planned_nodes,
)

End: TypeAlias = Whole | Literal["clients"]
"""A node's ID, or `clients` for this machine."""
LINK_FAULTS = ("slow", "lossy", "cut")


class Node(Document):
    """The settings of a single node."""

    rack: str | None = Field(default=None, min_length=1, description="Rack of the broker.")
    settings: Settings = Field(default={}, description="Keys of server.properties for this node.")


class Roles(Document):
    """Settings of all nodes of a role; a node of both roles gets both."""

    broker: Settings = Field(default={}, description="Keys of server.properties for every broker.")
    controller: Settings = Field(
        default={}, description="Keys of server.properties for every controller."
    )


class Topic(Document):
    """A topic that is created, unless it exists, before the cluster counts as ready."""

    partitions: Annotated[Whole, Field(ge=1, le=100_000)] = Field(default=1)
    replicas: Annotated[Whole, Field(ge=1, le=BROKERS_MAX)] = Field(
        default=1, description="Number of replicas of each partition."
    )
    settings: Settings = Field(
        default={}, description="Topic configurations, such as retention.ms."
    )


class Link(Document):
    """A link between two ends, in both directions unless `one_way` is true."""

    between: Annotated[list[End], Field(min_length=2, max_length=2)]
    delay_ms: Number = Field(default=0.0, ge=0, le=60_000)
    jitter_ms: Number = Field(default=0.0, ge=0, le=60_000)
    loss_percent: Number = Field(default=0.0, ge=0, le=100)
    rate_bytes_per_s: Whole = Field(
        default=0, ge=0, description="Bandwidth in bytes per second; 0: unlimited."
    )
    one_way: bool = Field(
        default=False,
        strict=True,
        description="Change the direction from the first to the second node only.",
    )


class Fault(Document):
    """A fault of nodes or of a link, and its end."""

    at_seconds: Number = Field(ge=0, description="Seconds after the cluster is ready.")
    do: Literal["kill", "stop", "pause", "cut-off", "slow", "lossy", "cut"]
    nodes: list[Whole] = Field(default=[], description="Nodes of kill, stop, pause and cut-off.")
    link: list[End] = Field(
        default=[], max_length=2, description="Both ends of slow, lossy and cut."
    )
    seconds: Number | None = Field(
        default=None, gt=0, description="Seconds until the change is undone; without it, never."
    )

    @model_validator(mode="after")
    def _has_victims(self) -> Fault:
        if self.do in LINK_FAULTS:
            if len(self.link) != 2 or self.nodes:
                raise ValueError(f"{self.do} needs a link: [A, B]")
        elif not self.nodes or self.link:
            raise ValueError(f"{self.do} needs nodes: [ID, ...]")
        return self


class Testbed(Document):
    """A cluster: its nodes, settings, topics, network and faults."""

    __test__ = False  # nothing for pytest
    controllers: Annotated[Whole, Field(ge=1, le=CONTROLLERS_MAX)] = Field(default=1)
    brokers: Annotated[Whole, Field(ge=1, le=BROKERS_MAX)] = Field(default=1)
    combined: bool = Field(
        default=False, strict=True, description="Give nodes both roles, broker and controller."
    )
    racks: list[Annotated[str, Field(min_length=1)]] = Field(
        default=[], description="Racks, assigned to the brokers in turn."
    )
    port: Annotated[Whole, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description=(
            "Client port of the first broker; the others use the following ports. 0: free ports."
        ),
    )
    network: Literal["host", "isolated"] = Field(
        default="host", description="isolated: links can be changed (Linux, root)."
    )
    settings: Settings = Field(default={}, description="Keys of server.properties for every node.")
    roles: Roles = Field(default=Roles(), description="Keys of server.properties by role.")
    nodes: dict[int, Node] = Field(
        default={},
        description="Settings by id: brokers are 1, 2, ..., separate controllers 101, 102, ...",
    )
    topics: dict[str, Topic] = Field(default={}, description="Topics by name.")
    links: list[Link] = Field(
        default=[], description="Links that are slow, lossy or cut from the start."
    )
    faults: list[Fault] = Field(
        default=[], description="Faults to inject after the cluster is ready."
    )

    @property
    def shape(self) -> Shape:
        return Shape(self.controllers, self.brokers, self.combined, tuple(self._all_racks()))

    @property
    def asked(self) -> AskedShape:
        return AskedShape(*self.shape)

    @property
    def own_settings(self) -> dict[int, dict[str, str]]:
        """The settings that a node does not share with all others, by node ID."""
        found = {}
        for node in planned_nodes(self.shape):
            own = {
                **(self.roles.broker if node.is_broker else {}),
                **(self.roles.controller if node.is_controller else {}),
                **self.nodes.get(node.node_id, Node()).settings,
            }
            if own:
                found[node.node_id] = own
        return found

    def _all_racks(self) -> list[str]:
        named = {number: node.rack for number, node in self.nodes.items() if node.rack}
        if not named:
            return self.racks
        turn = self.racks
        return [
            named.get(number) or (turn[(number - 1) % len(turn)] if turn else "")
            for number in range(1, self.brokers + 1)
        ]

    @model_validator(mode="after")
    def _fits_together(self) -> Testbed:
        known = {node.node_id: node.is_broker for node in planned_nodes(self.shape)}
        _check_nodes("nodes", self.nodes, known)
        for number, node in self.nodes.items():
            if node.rack and not known[number]:
                raise ValueError(f"nodes.{number}: only a broker can have a rack")
        if not all(self._all_racks()):
            raise ValueError("racks: either every broker must have a rack or none")
        self._check_settings()
        for name, topic in self.topics.items():
            if topic.replicas > self.brokers:
                raise ValueError(
                    f"topics.{name}.replicas: {topic.replicas}: must be at most "
                    f"{self.brokers}, the number of brokers"
                )
        for fault in self.faults:
            _check_nodes("faults", fault.nodes, known)
        self._check_links(known)
        return self

    def _check_settings(self) -> None:
        own = [node.settings for node in self.nodes.values()]
        for settings in (self.settings, self.roles.broker, self.roles.controller, *own):
            for key in settings.keys() & IDENTITY_KEYS:
                raise ValueError(f"{key}: `up` sets it for each node")

    def _check_links(self, known: Mapping[int, bool]) -> None:
        ends = [*(link.between for link in self.links), *(fault.link for fault in self.faults)]
        for pair in filter(None, ends):
            if self.network != "isolated":
                raise ValueError("links need `network: isolated`")
            _check_nodes("a link", [end for end in pair if isinstance(end, int)], known)
            if pair[0] == pair[1]:
                raise ValueError(f"invalid link: both ends are {pair[0]}")


def _check_nodes(where: str, numbers: Iterable[int], known: Mapping[int, bool]) -> None:
    for number in numbers:
        if number not in known:
            there = ", ".join(map(str, known))
            raise ValueError(f"{where}: unknown node {number}; known: {there}")
