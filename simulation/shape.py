"""The shape of a simulated cluster: nodes, topics, settings, links, disks, clients, faults.

A shape is drawn from random streams, or read from JSON, and holds every decision before a run
except the times of events. It is a value: equal shapes make equal worlds.

The shape names the promises that an operator's choice waives: `given_up` are the topics without the
promises P1, P2, P4, P6, P7 and P17, because unclean elections are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from metalog.image.features import ELR_LEVEL, ELR_VERSION, KRAFT, METADATA_VERSION
from metalog.supported import SUPPORTED_FEATURES
from simulation.chance import stream

if TYPE_CHECKING:
    from random import Random

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
        demand(ids == list(range(1, len(ids) + 1)), f"node ids {ids} do not count from 1")
        for what, found in (("controllers", self.controllers), ("brokers", self.brokers)):
            demand(1 <= len(found) <= NODES_MAX, f"{len(found)} {what} are not 1 to {NODES_MAX}")
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
            f"nobody has metadata.version {level}, or not with ELR {self.elr}",
        )
        demand(
            self.kraft_version == 0 or (self.kraft_version == 1 and level >= KRAFT_LEVEL),
            f"nobody has kraft.version {self.kraft_version} with metadata.version {level}",
        )
        for kind, weight in self.faults.items():
            demand(1 <= weight <= WEIGHT_MAX, f"fault {kind} has weight {weight}")

    def _check_topic(self, topic: TopicShape) -> None:
        demand(1 <= topic.partitions <= PARTITIONS_MAX, f"{topic} is out of bounds")
        most = min(FACTOR_MAX, len(self.brokers))
        demand(1 <= topic.replication_factor <= most, f"{topic} has more replicas than {most}")
        demand(1 <= topic.min_isr <= topic.replication_factor, f"{topic} can never be written")
        demand(
            not topic.replicas
            or [len(one) for one in topic.replicas]
            == [topic.replication_factor] * topic.partitions,
            f"{topic} has other replicas than it says",
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
            raise BadShape(f"this is no shape: {error}") from error
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


# --- drawing --------------------------------------------------------------------------------------

LINKS = {
    "one rack": LinkShape(0.05, 0.5),
    "one building": LinkShape(0.2, 2.0),
    "busy": LinkShape(0.1, 1.0, 0.02, 60.0),
    "two cities": LinkShape(4.0, 12.0),
    "far": LinkShape(15.0, 45.0, 0.01, 150.0),
    "uneven": LinkShape(0.3, 100.0, tail=1.0),
    "far and uneven": LinkShape(10.0, 80.0, tail=1.2),
}
AWAY = ("two cities", "far", "far and uneven")
"""Links for one node that is away from the others."""
DISKS = {
    "fast": DiskShape(0.02, 0.3, 0.1),
    "ordinary": DiskShape(0.05, 5.0, 1.0),
    "slow": DiskShape(2.0, 60.0, 10.0),
}
RACKS = ("a", "b", "c")

# Each key is drawn separately; a key that is left out keeps the product's default. The clients of a
# run judge within seconds, so timeouts are shorter than in production.
SETTINGS: dict[str, tuple[str, ...]] = {
    "broker.session.timeout.ms": ("1500", "3000", "6000"),
    "broker.heartbeat.interval.ms": ("200", "500"),
    # More than two rounds of a fetch that waits 500 ms on links whose messages may be late.
    "replica.lag.time.max.ms": ("1500", "2000", "6000"),
    "replica.fetch.wait.max.ms": ("50", "200", "500"),
    "replica.high.watermark.checkpoint.interval.ms": ("500", "1000", "5000"),
    "controller.quorum.fetch.timeout.ms": ("1000", "2000", "4000"),
    "controller.quorum.election.timeout.ms": ("500", "1000"),
    "controller.quorum.append.linger.ms": ("0", "25"),
    "kraftbox.broker.connection.loss.fence.ms": ("0", "100", "1000"),
}
LOOSE_SETTINGS: dict[str, tuple[str, ...]] = {
    # A follower whose connection was lost silently waits this long.
    "replica.socket.timeout.ms": ("2000", "5000"),
    "num.replica.fetchers": ("1", "2", "3"),
    "max.incremental.fetch.session.cache.slots": ("0", "1", "1000"),
    "metadata.log.max.record.bytes.between.snapshots": ("500", "2000", "20000"),
    "log.flush.interval.messages": ("1", "10", "100"),
    "log.flush.offset.checkpoint.interval.ms": ("1000", "10000"),
    "auto.leader.rebalance.enable": ("true", "false"),
    "leader.imbalance.check.interval.seconds": ("3", "20"),
    "log.cleaner.enable": ("true", "false"),
    "log.retention.check.interval.ms": ("500", "2000"),
    "log.segment.delete.delay.ms": ("0", "1000"),
    "replica.fetch.max.bytes": ("1000", "100000"),
    "replica.fetch.response.max.bytes": ("1000", "100000"),
}
OWN_SETTINGS = ("replica.lag.time.max.ms", "num.replica.fetchers", "replica.fetch.wait.max.ms")
"""Keys that may differ from node to node."""
LEVELS = SUPPORTED_FEATURES[METADATA_VERSION]
OLD_LEVEL_CHANCE = 0.3
KRAFT_LEVEL = KRAFT.since[1]
"""The metadata level from which on voters may be in the log."""
KRAFT_CHANCE = 0.35
RETENTION = ("1", "3000", "30000")
"""Milliseconds, or bytes."""
SEGMENT_BYTES = ("2048", "8192", "65536")
"""More than the largest batch of any client."""


COMPACTED = "k0"
# The configuration of a compacted topic, and of its cleaner, so that it cleans within seconds.
COMPACTED_CONFIGS: dict[str, tuple[str, ...]] = {
    "internal.segment.bytes": ("2048", "2048", "8192"),
    "min.cleanable.dirty.ratio": ("0", "0.01", "0.5"),
    "delete.retention.ms": ("0", "500", "5000", "60000"),
    "min.compaction.lag.ms": ("0", "0", "2000"),
    "segment.ms": ("2000", "10000", "60000"),
}
CLEANER_SETTINGS: dict[str, tuple[str, ...]] = {
    "log.cleaner.backoff.ms": ("100", "500", "2000"),
    "log.cleaner.io.max.bytes.per.second": ("2000", "100000"),
    "log.cleaner.min.cleanable.ratio": ("0.01", "0.5"),
    # Offsets of groups are cleaned, too: their segments cannot be small.
    "log.roll.ms": ("2000", "100000"),
}


def may_give_up(shape: Shape) -> bool:
    """Return whether the last topic may waive its promises, since another topic keeps them."""
    return any(one.name not in shape.given_up for one in shape.topics[:-1])


def draw_shape(seed: int, fault_kinds: Mapping[str, Any], client_kinds: Mapping[str, Any]) -> Shape:
    """Draw the shape of a seed.

    `fault_kinds` and `client_kinds` are the registries: a fault kind has `possible(shape)`, a
    client kind draws `clients(rng, topics)`. Kinds that are drawn apart are left to `draw_apart`,
    so that a new one changes nothing of a seed.
    """
    rng = stream(seed, "shape")
    nodes = _draw_nodes(rng)
    settings = {key: rng.choice(values) for key, values in SETTINGS.items()}
    for key, values in LOOSE_SETTINGS.items():
        if rng.random() < 0.4:
            settings[key] = rng.choice(values)
    topics = _draw_topics(rng, sum(one.serves for one in nodes))
    bare = Shape(
        nodes=nodes,
        topics=topics,
        settings=settings,
        link=LINKS[rng.choice(list(LINKS))],
        disk=DISKS[rng.choice(list(DISKS))],
        clients=_draw_clients(rng, topics, client_kinds),
        faults={},
    )
    return replace(bare, faults=draw_faults(rng, bare, fault_kinds))


def draw_apart(seed: int, shape: Shape, client_kinds: Mapping[str, Any]) -> Shape:
    """Return the shape, perhaps with a compacted topic, and with clients that are drawn apart, all
    from streams of their own."""
    whole = _with_compacted(stream(seed, "shape", "compacted"), shape)
    return replace(whole, clients=(*whole.clients, *_draw_apart(seed, whole, client_kinds)))


def draw_level(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with an older metadata level than the newest one."""
    if rng.random() >= OLD_LEVEL_CHANCE:
        return shape
    low = ELR_LEVEL if shape.elr else LEVELS.min_level
    return replace(shape, metadata_version=rng.randint(low, LEVELS.max_level))


def draw_kraft_version(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with voters in the metadata log."""
    old = shape.metadata_version is not None and shape.metadata_version < KRAFT_LEVEL
    if rng.random() >= KRAFT_CHANCE or old:
        return shape
    return replace(shape, kraft_version=1)


def draw_faults(rng: Random, shape: Shape, kinds: Mapping[str, Any]) -> dict[str, int]:
    """Return some of the possible kinds with weights; at least one if any is possible."""
    possible = [name for name, kind in kinds.items() if kind.possible(shape)]
    chosen = [name for name in possible if rng.random() < 0.5]
    if possible and not chosen:
        chosen = [rng.choice(possible)]
    return {name: rng.randint(1, WEIGHT_MAX) for name in chosen}


def _with_compacted(rng: Random, shape: Shape) -> Shape:
    """Return the shape, perhaps with a compacted topic in front."""
    if rng.random() < 0.6:
        return shape
    factor = rng.randint(1, min(FACTOR_MAX, len(shape.brokers)))
    configs = {key: rng.choice(values) for key, values in COMPACTED_CONFIGS.items()}
    configs |= {"cleanup.policy": "compact", "min.insync.replicas": str(rng.randint(1, factor))}
    topic = TopicShape(COMPACTED, rng.randint(1, 2), factor, configs)
    settings = {k: rng.choice(values) for k, values in CLEANER_SETTINGS.items()}
    return replace(shape, topics=(topic, *shape.topics), settings={**settings, **shape.settings})


def _draw_nodes(rng: Random) -> tuple[NodeShape, ...]:
    both: tuple[str, ...] = (CONTROLLER, BROKER)
    controls: tuple[str, ...] = (CONTROLLER,)
    serves: tuple[str, ...] = (BROKER,)
    count = rng.choices(range(1, NODES_MAX + 1), [2, 2, 6, 1, 1])[0]
    layout = rng.choice(["separate", "separate", "combined", "mixed"])
    if layout == "combined":
        roles = [both] * count
    else:
        brokers = rng.choices(range(1, NODES_MAX + 1), [2, 2, 6, 2, 1])[0]
        shared = rng.randint(1, min(count, brokers)) if layout == "mixed" else 0
        roles = [controls] * (count - shared) + [both] * shared + [serves] * (brokers - shared)
    racks = rng.random() < 0.3
    away = rng.randint(1, len(roles)) if rng.random() < 0.25 else 0
    return tuple(
        NodeShape(
            number,
            one,
            RACKS[number % len(RACKS)] if racks and BROKER in one else None,
            _draw_own(rng),
            LINKS[rng.choice(AWAY)] if number == away else None,
        )
        for number, one in enumerate(roles, 1)
    )


def _draw_own(rng: Random) -> dict[str, str]:
    if rng.random() < 0.8:
        return {}
    key = rng.choice(OWN_SETTINGS)
    return {key: rng.choice((SETTINGS | LOOSE_SETTINGS)[key])}


def _draw_topics(rng: Random, brokers: int) -> tuple[TopicShape, ...]:
    topics = []
    for number in range(rng.randint(1, 3)):
        factor = rng.randint(1, min(FACTOR_MAX, brokers))
        if rng.random() < 0.6:
            factor = min(FACTOR_MAX, brokers)
        configs = {"min.insync.replicas": str(rng.randint(1, factor))}
        if rng.random() < 0.6:
            configs["internal.segment.bytes"] = rng.choice(SEGMENT_BYTES)
        if number and rng.random() < 0.15:
            configs[rng.choice(("retention.ms", "retention.bytes"))] = rng.choice(RETENTION)
        if rng.random() < 0.25:
            configs["flush.messages"] = rng.choice(("1", "1", "20"))
        if factor > 1 and rng.random() < 0.1:
            configs[UNCLEAN] = "true"
        topics.append(TopicShape(f"t{number}", rng.randint(1, 2), factor, configs))
    return tuple(topics)


def _draw_clients(
    rng: Random, topics: tuple[TopicShape, ...], kinds: Mapping[str, Any]
) -> tuple[ClientShape, ...]:
    found: list[ClientShape] = []
    for kind in kinds.values():
        found += [] if kind.apart else kind.clients(rng, topics)
    return tuple(found)


def _draw_apart(seed: int, shape: Shape, kinds: Mapping[str, Any]) -> list[ClientShape]:
    """Return the clients that are drawn from streams of their own."""
    found: list[ClientShape] = []
    for name, kind in kinds.items():
        if kind.apart:
            found += kind.clients(stream(seed, "shape", "client", name), shape.topics)
    return found
