"""The shape of a simulated cluster: nodes, topics, settings, links, disks, clients, faults.

A shape is drawn from random streams, or read from JSON, and holds every decision before a run
except the times of events. It is a value: equal shapes make equal worlds.

The shape names the promises that an operator's choice waives: `given_up` are the topics without the
promises P1, P2, P4, P6, P7 and P17, because unclean elections are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from metalog.image.features import ELR_LEVEL, ELR_VERSION, KRAFT, METADATA_VERSION
from metalog.supported import SUPPORTED_FEATURES

if TYPE_CHECKING:
    pass

CONTROLLER, BROKER = "controller", "broker"
UNCLEAN = "unclean.leader.election.enable"
STRATEGY = "unclean.recovery.strategy"
MANAGER = "unclean.recovery.manager.enabled"
TIMEOUT = "unclean.recovery.timeout.ms"
BALANCED, AGGRESSIVE, NOBODY = "Balanced", "Aggressive", "None"
"""Strategies of KIP-966: the choice of a leader if no replica is sure to have every record."""
TIERED, TIERED_SYSTEM = "remote.storage.enable", "remote.log.storage.system.enable"
"""Keys that make a topic tiered, and that enable tiering on nodes (KIP-405)."""
LOCAL_MS = "leader.election.eligible.local.log.ms"
LOCAL_BYTES = "leader.election.eligible.local.log.bytes"
"""Keys with the local log that a leader should have (KIP-1303)."""
NODES_MAX = 5
"""Number of nodes of each role."""
PARTITIONS_MAX = 3
FACTOR_MAX = 3
WEIGHT_MAX = 8
DELAY_MS_MAX = 200.0
TAIL_MIN = 0.5
FLUSH_MS_MAX = 200.0
PAUSE_MS_MAX = 5_000.0


class BadShape(ValueError):
    """An invalid shape or schedule; the message has the reason."""


def demand(holds: bool, message: str) -> None:
    """Raise BadShape unless `holds` is true."""
    if not holds:
        raise BadShape(message)


@dataclass(frozen=True)
class LinkShape:
    """The travel time of a chunk of bytes between two hosts. With a `tail`, a Pareto exponent, most
    take little more than the minimum and few very much longer."""

    delay_ms_min: float = 0.05
    delay_ms_max: float = 0.5
    late_chance: float = 0.0
    late_ms: float = 0.0
    tail: float = 0.0

    def check(self) -> None:
        """Raise BadShape if a value is out of bounds."""
        demand(
            0 <= self.delay_ms_min <= self.delay_ms_max <= DELAY_MS_MAX
            and 0 <= self.late_chance <= 1
            and 0 <= self.late_ms <= DELAY_MS_MAX
            and (self.tail == 0 or self.tail >= TAIL_MIN),
            f"{self} is out of bounds",
        )


@dataclass(frozen=True)
class NodeShape:
    """One node. `settings` are its own and override those of all nodes; `link` is the one to every
    other host, None: the common link."""

    node_id: int
    roles: tuple[str, ...]
    rack: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    link: LinkShape | None = None

    @property
    def controls(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def serves(self) -> bool:
        return BROKER in self.roles


@dataclass(frozen=True)
class TopicShape:
    """One topic with the configuration of its creation; `replicas` of each partition, the preferred
    leader first, unless the controllers choose them."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str] = field(default_factory=dict)
    replicas: tuple[tuple[int, ...], ...] = ()

    @property
    def min_isr(self) -> int:
        return int(self.configs.get("min.insync.replicas", "1"))

    @property
    def shrinks(self) -> bool:
        """True if old records are deleted within the time of a run."""
        return any(key in self.configs for key in ("retention.ms", "retention.bytes"))

    @property
    def compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"

    @property
    def tiered(self) -> bool:
        return self.configs.get(TIERED) == "true"

    @property
    def unclean(self) -> bool:
        """True if its own configuration allows the election of any replica."""
        return self.allows_unclean({})

    def allows_unclean(self, common: Mapping[str, str]) -> bool:
        """Return whether any replica may be elected, by its own configuration or that of all."""
        for configs in (self.configs, common):
            if STRATEGY in configs:
                return configs[STRATEGY] == AGGRESSIVE
            if UNCLEAN in configs:
                return configs[UNCLEAN] == "true"
        return False


@dataclass(frozen=True)
class DiskShape:
    """The duration of awaited disk operations, in milliseconds."""

    flush_ms_min: float = 0.05
    flush_ms_max: float = 5.0
    work_ms_max: float = 1.0


@dataclass(frozen=True)
class ClientShape:
    """One client: its kind (`simulation.clients.KINDS`), its name, its pause between two steps."""

    kind: str
    name: str
    pause_ms: float
    args: dict[str, Any] = field(default_factory=dict)


LEVELS = SUPPORTED_FEATURES[METADATA_VERSION]
KRAFT_LEVEL = KRAFT.since[1]
"""The metadata level from which on voters may be in the log."""
FETCH_SIZES = ("replica.fetch.max.bytes", "replica.fetch.response.max.bytes")
SMALL_FETCH = 1000
SEGMENT_BYTES_KEY = "internal.segment.bytes"
SMALL_SEGMENT = 2048
"""Segment size below which a fetch is small, since it reads from one segment at most."""
SLOW_MS = 45.0
SLOW_FOR_SMALL_MS = 10.0
"""Delay with small fetches, each of which may have one batch of a few records (seed 7819)."""


@dataclass(frozen=True)
class Shape:
    """A whole shape. `settings` are those of all nodes, `faults` are kinds with their weights.

    `elr`: whether the cluster is formatted with eligible leader replicas (KIP-966).
    `metadata_version`: the level that it is formatted with; None: the newest. `kraft_version`: 0
    with static voters, 1 with voters in the metadata log (KIP-853).
    """

    nodes: tuple[NodeShape, ...]
    topics: tuple[TopicShape, ...]
    settings: dict[str, str]
    link: LinkShape
    disk: DiskShape
    clients: tuple[ClientShape, ...]
    faults: dict[str, int]
    elr: bool = False
    metadata_version: int | None = None
    kraft_version: int = 0

    @property
    def controllers(self) -> tuple[NodeShape, ...]:
        return tuple(one for one in self.nodes if one.controls)

    @property
    def brokers(self) -> tuple[NodeShape, ...]:
        return tuple(one for one in self.nodes if one.serves)

    @property
    def has_tier(self) -> bool:
        """True if its nodes have tiered storage enabled."""
        return self.settings.get(TIERED_SYSTEM) == "true"

    @property
    def has_groups(self) -> bool:
        """True if the cluster may create the offsets topic by itself."""
        return any("group" in one.args for one in self.clients)

    @property
    def levels(self) -> dict[str, int]:
        """The feature levels of formatting, if they differ from the defaults."""
        elr = {ELR_VERSION: int(self.elr)}
        level = self.metadata_version
        return elr if level is None else {**elr, METADATA_VERSION: level}

    @property
    def is_narrow(self) -> bool:
        """True if followers get so little in each fetch over a slow link that clients may write as
        fast."""
        links = (self.link, *(one.link for one in self.nodes if one.link is not None))
        slowest_ms = max(link.delay_ms_max for link in links)
        if any(int(self.settings.get(key, SMALL_FETCH + 1)) <= SMALL_FETCH for key in FETCH_SIZES):
            return slowest_ms >= SLOW_FOR_SMALL_MS
        return slowest_ms >= SLOW_MS and any(
            int(one.configs.get(SEGMENT_BYTES_KEY, SMALL_SEGMENT + 1)) <= SMALL_SEGMENT
            for one in self.topics
        )

    @property
    def given_up(self) -> frozenset[str]:
        """Topics whose operator chose availability over acknowledged records."""
        unclean = (one.name for one in self.topics if one.allows_unclean(self.settings))
        return frozenset(unclean)

    @property
    def shrinking(self) -> frozenset[str]:
        """Topics whose old records are deleted."""
        return frozenset(one.name for one in self.topics if one.shrinks)

    @property
    def compacted(self) -> frozenset[str]:
        """Topics that keep the newest record of each key."""
        return frozenset(one.name for one in self.topics if one.compacted)

    def setting_ms(self, key: str, default: int) -> int:
        """Return the largest value of a setting on any node."""
        common = self.settings.get(key, str(default))
        return max(int(one.settings.get(key, common)) for one in self.nodes)

    def link_between(self, source: str, target: str) -> LinkShape:
        """Return the slower one of two hosts' own links, or the common link."""
        own = [one.link for one in self.nodes if f"node-{one.node_id}" in (source, target)]
        return max((one for one in own if one is not None), key=_slowness, default=self.link)

    def check(self) -> None:
        """Raise BadShape if no cluster can have this shape."""
        ids = [one.node_id for one in self.nodes]
        demand(ids == list(range(1, len(ids) + 1)), f"node ids must be 1 to {len(ids)}, not {ids}")
        for what, found in (("controllers", self.controllers), ("brokers", self.brokers)):
            demand(
                1 <= len(found) <= NODES_MAX,
                f"the number of {what} must be 1 to {NODES_MAX}, not {len(found)}",
            )
        demand(all(one.controls or one.serves for one in self.nodes), "a node has no role")
        names = [one.name for one in self.topics]
        demand(bool(names) and len(set(names)) == len(names), f"topics {names} are not distinct")
        for topic in self.topics:
            self._check_topic(topic)
        disk = self.disk
        for link in (self.link, *(one.link for one in self.nodes if one.link is not None)):
            link.check()
        demand(
            0 <= disk.flush_ms_min <= disk.flush_ms_max <= FLUSH_MS_MAX
            and 0 <= disk.work_ms_max <= FLUSH_MS_MAX,
            f"{disk} is out of bounds",
        )
        for client in self.clients:
            demand(0 < client.pause_ms <= PAUSE_MS_MAX, f"{client} is out of bounds")
        called = [one.name for one in self.clients]
        demand(len(set(called)) == len(called), f"clients {called} are not distinct")
        levels = range(LEVELS.min_level, LEVELS.max_level + 1)
        level = levels[-1] if self.metadata_version is None else self.metadata_version
        demand(
            level in levels and (level >= ELR_LEVEL or not self.elr),
            f"metadata.version {level} with ELR {self.elr} is not supported",
        )
        demand(
            self.kraft_version == 0 or (self.kraft_version == 1 and level >= KRAFT_LEVEL),
            f"kraft.version {self.kraft_version} with metadata.version {level} is not supported",
        )
        for kind, weight in self.faults.items():
            demand(
                1 <= weight <= WEIGHT_MAX,
                f"the weight of fault {kind} must be 1 to {WEIGHT_MAX}, not {weight}",
            )

    def _check_topic(self, topic: TopicShape) -> None:
        demand(1 <= topic.partitions <= PARTITIONS_MAX, f"{topic} is out of bounds")
        most = min(FACTOR_MAX, len(self.brokers))
        demand(1 <= topic.replication_factor <= most, f"{topic} must have 1 to {most} replicas")
        demand(1 <= topic.min_isr <= topic.replication_factor, f"{topic} can never be written")
        demand(
            not topic.replicas
            or [len(one) for one in topic.replicas]
            == [topic.replication_factor] * topic.partitions,
            f"{topic} lists other replicas than its factor and partitions",
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Shape:
        """Return the shape of these values. Raises: BadShape if they are not a valid shape."""
        try:
            shape = cls(
                nodes=tuple(_read_node(one) for one in value["nodes"]),
                topics=tuple(_topic_of(one) for one in value["topics"]),
                settings=dict(value["settings"]),
                link=LinkShape(**value["link"]),
                disk=DiskShape(**value["disk"]),
                clients=tuple(ClientShape(**one) for one in value["clients"]),
                faults=dict(value["faults"]),
                elr=bool(value.get("elr", False)),
                metadata_version=value.get("metadata_version"),
                kraft_version=value.get("kraft_version", 0),
            )
            shape.check()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadShape(f"invalid shape: {error}") from error
        return shape


def _slowness(link: LinkShape) -> float:
    return link.delay_ms_min + link.delay_ms_max


def _topic_of(value: Mapping[str, Any]) -> TopicShape:
    placed = tuple(tuple(one) for one in value.get("replicas", ()))
    return TopicShape(**{**value, "replicas": placed})


def _read_node(one: Mapping[str, Any]) -> NodeShape:
    link = one.get("link")
    own = None if link is None else LinkShape(**link)
    return NodeShape(**{**one, "roles": tuple(one["roles"]), "link": own})
