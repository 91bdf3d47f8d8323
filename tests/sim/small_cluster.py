"""A small cluster without random parts, on which a test of one fault plays its events."""

from __future__ import annotations

from simulation.event import Event
from simulation.schedule import Schedule
from simulation.shapes.shape import ClientShape, DiskShape, LinkShape, NodeShape, Shape, TopicShape

TOPICS = (
    TopicShape("t0", 1, 3, {"min.insync.replicas": "2"}, ((2, 4, 3),)),
    TopicShape("t1", 1, 2, {}, ((3, 2),)),
)
"""The leaders and followers that events refer to."""


def schedule(*events: Event, quiet_from_ms: int = 3000, **settings: str) -> Schedule:
    """Return a schedule of a controller and three brokers, two topics, a writer and readers."""
    nodes = [NodeShape(1, ("controller",)), *(NodeShape(n, ("broker",)) for n in (2, 3, 4))]
    readers = [
        ClientShape("consumer", f"reader {one.name}", 50.0, {"topic": one.name, "partition": 0})
        for one in TOPICS
    ]
    shape = Shape(
        nodes=tuple(nodes),
        topics=TOPICS,
        settings={
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "200",
            "replica.lag.time.max.ms": "1500",
            "controller.quorum.election.timeout.ms": "500",
            **settings,
        },
        link=LinkShape(),
        disk=DiskShape(),
        clients=(ClientShape("acks all", "w", 20.0), *readers),
        faults={},
    )
    return Schedule(1, shape, events, quiet_from_ms)
