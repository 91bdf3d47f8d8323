"""Small clusters that show a planted bug soon: few nodes, short timeouts, and only the faults that
matter to the bug, close together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulation.chance import stream
from simulation.event import Event
from simulation.faults import KINDS as FAULTS
from simulation.schedule import Schedule
from simulation.shapes.drawing import DISKS, LINKS
from simulation.shapes.shape import ClientShape, DiskShape, LinkShape, NodeShape, Shape, TopicShape

QUIET_MS = 5_000
PAUSE_MS = 700.0
LASTS_MS = 3_000
SETTINGS = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "kraftbox.broker.connection.loss.fence.ms": "100",
}
TOPICS = (
    TopicShape("t0", 1, 3, {"min.insync.replicas": "2", "internal.segment.bytes": "2048"}),
    TopicShape("t1", 1, 2, {"internal.segment.bytes": "2048"}),
)


@dataclass(frozen=True)
class Focus:
    """The shape of a small cluster, for one kind of bug.

    Args:
        controllers, brokers: the number of nodes of each role; `combined`: the first brokers are
            also the controllers.
        topics, settings, link, disk: as in a shape; `settings` override the short timeouts here.
        level: the metadata.version of formatting; None: the newest.
        idempotent, plain, members, sessions, brief: the number of idempotent and plain producers,
            group members, fetch-session readers, and clients whose offsets expire after a second.
        hasty, quitters: the number of members that assign twice, and of clients that leave a group
            while their JoinGroup waits.
    """

    controllers: int = 1
    brokers: int = 3
    combined: bool = False
    topics: tuple[TopicShape, ...] = TOPICS
    settings: dict[str, str] = field(default_factory=dict)
    link: LinkShape = LINKS["one building"]
    disk: DiskShape = DISKS["ordinary"]
    idempotent: int = 1
    plain: int = 1
    members: int = 0
    sessions: int = 0
    brief: int = 0
    hasty: int = 0
    quitters: int = 0
    elr: bool = False
    level: int | None = None

    def shape(self) -> Shape:
        """Return the shape of the cluster, without faults."""
        both = self.controllers if self.combined else 0
        roles = [("controller", "broker")] * both + [("controller",)] * (self.controllers - both)
        roles += [("broker",)] * (self.brokers - both)
        nodes = tuple(NodeShape(number, one) for number, one in enumerate(roles, 1))
        return Shape(
            nodes=nodes,
            topics=tuple(self.topics),
            settings={**SETTINGS, **self.settings},
            link=self.link,
            disk=self.disk,
            clients=tuple(self._clients()),
            faults={},
            elr=self.elr,
            metadata_version=self.level,
        )

    def _clients(self) -> list[ClientShape]:
        found = [ClientShape("acks all", "all", 30.0)]
        found += [ClientShape("acks 1", f"one {n}", 20.0) for n in range(self.plain)]
        found += [ClientShape("idempotent", f"same {n}", 30.0) for n in range(self.idempotent)]
        group = {"group": "g", "static": False}
        found += [ClientShape("member", f"member {n}", 40.0, group) for n in range(self.members)]
        hasty = {"group": "hasty", "static": False}
        found += [ClientShape("hasty member", f"hasty {n}", 40.0, hasty) for n in range(self.hasty)]
        found += [ClientShape("quitter", f"quits {n}", 300.0) for n in range(self.quitters)]
        for number in range(self.sessions):
            found.append(ClientShape("session reader", f"session {number}", 50.0))
        for number in range(self.brief):
            brief = {"group": "brief", "topic": self.topics[0].name, "lasts_ms": 1_000}
            found.append(ClientShape("brief committer", f"brief {number}", 60.0, brief))
        for one in self.topics:
            where = {"topic": one.name, "partition": 0}
            found.append(ClientShape("consumer", f"reader of {one.name}", 100.0, where))
        return found

    def draw(self, seed: int, faults: Sequence[str]) -> Schedule:
        """Draw the schedule of a seed: some of these faults, soon after one another."""
        shape, rng = self.shape(), stream(seed, "focus")
        events: list[Event] = []
        at_ms = rng.expovariate(1 / PAUSE_MS)
        while at_ms < QUIET_MS - 1:
            kind = rng.choice(faults)
            target, args = FAULTS[kind].draw(rng, shape)
            lasts_ms = args.get("for_ms", rng.choice((1, 300, 1_000, rng.randint(1, LASTS_MS))))
            args = {**args, "for_ms": min(lasts_ms, QUIET_MS - int(at_ms), LASTS_MS)}
            events.append(Event(f"e{len(events)}", int(at_ms), kind, target, args))
            at_ms += rng.expovariate(1 / PAUSE_MS)
        return Schedule(seed, shape, tuple(events), QUIET_MS)


FIVE_VOTERS = Focus(
    controllers=5,
    brokers=1,
    topics=(TopicShape("t0", 1, 1, {}),),
    settings={"controller.quorum.fetch.timeout.ms": "4000"},
    idempotent=0,
    plain=0,
)
TAKEN_PORT = ((300, "taken port", "node 3", {"for_ms": 100}),)
WIPED_VOTERS: tuple[tuple[int, str, str, dict[str, Any]], ...] = tuple(
    (300 + 1_500 * n, "wiped voter", f"controller {n + 2}", {}) for n in range(4)
)
"""Each other voter is once the only one that follows the leader."""
