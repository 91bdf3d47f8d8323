"""Small clusters in which replicas begin behind the tier (KIP-1023), and leaders need a long enough
local log (KIP-1303)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulation.shapes.replicas import INTERVAL, LAST_TIERED
from simulation.shapes.shape import LOCAL_BYTES, UNCLEAN, ClientShape, Shape, TopicShape
from tests.sim.planted.focus import TOPICS, Focus
from tests.sim.planted.tier_focus import KEEPS, SETTINGS, TIERED, TierFocus


@dataclass(frozen=True)
class SlowFocus(TierFocus):
    """A cluster with one client that pauses until retention has deleted its records."""

    pause_ms: float = 400.0

    def shape(self) -> Shape:
        """Return the shape of the cluster, without faults."""
        shape = super().shape()
        readers = [one for one in shape.clients if one.kind == "consumer"]
        return replace(shape, clients=(ClientShape("acks all", "all", self.pause_ms), *readers))


NEW_REPLICAS = TierFocus(topics=(KEEPS,), settings={**SETTINGS, LAST_TIERED: "true"})
"""One topic, whose followers begin behind all copies in the tier."""
_OPEN = {"min.insync.replicas": "1"}
_ASKED = {INTERVAL: "100", LOCAL_BYTES: "1"}
LOCAL_LOGS = Focus(topics=(replace(TOPICS[0], configs=_OPEN),), idempotent=0, settings=_ASKED)
"""One topic, where any local record is enough to lead."""
SELDOM = SlowFocus(
    topics=LOCAL_LOGS.topics,
    settings={**_ASKED, "replica.lag.time.max.ms": "6000"},
    pause_ms=1_500.0,
)
"""The same topic with rare writes."""
ALL_GOES = SlowFocus(
    topics=(TopicShape("t0", 1, 3, {**_OPEN, "retention.ms": "1"}),),
    settings={**_ASKED, "log.retention.check.interval.ms": "300"},
    pause_ms=1_500.0,
)
"""The same topic, whose retention deletes every record."""
ALL_GOES_SLOWLY = replace(
    ALL_GOES, settings={**ALL_GOES.settings, "replica.lag.time.max.ms": "6000"}
)
"""The same topic, in whose ISR a follower stays that is cut off."""
ALL_OF_SIX_GOES = replace(
    ALL_GOES_SLOWLY, topics=(replace(ALL_GOES.topics[0], partitions=6),), pause_ms=300.0
)
"""The same with six partitions: a broker that is cut off follows some leader."""
SHORT_SEGMENTS = SlowFocus(
    topics=(replace(KEEPS, configs={**TIERED, **_OPEN, "segment.ms": "1"}),),
    settings={**SETTINGS, LAST_TIERED: "true"},
    pause_ms=200.0,
)
"""Each batch has a segment of its own, so most epochs begin with a segment."""
UNCLEAN_PAIR = TierFocus(
    topics=(TopicShape("t0", 1, 2, {**TIERED, UNCLEAN: "true"}),),
    settings={**SETTINGS, LAST_TIERED: "true"},
    plain=3,
    elr=True,
)
"""Two replicas, either of which may lead whatever its log."""
