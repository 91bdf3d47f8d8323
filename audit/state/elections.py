"""Elections: kinds and causes, by the rules of docs/audit.md.

A metadata record has neither. Both follow from the partition before and after, and from the events
of the old leader's broker. If a Kraftbox controller noted kind and cause in the record, these
apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from audit.decoding.records import LEADER_STAYS, PartitionChange
from audit.state.cluster import UNCLEAN, BrokerState, ClusterState
from audit.state.shapes import NO_LEADER, RECOVERING, ShapeKey


class ElectionKind(StrEnum):
    ISR = "isr"
    PREFERRED = "preferred"
    ELR = "elr"
    LAST_KNOWN_LEADER = "last-known-leader"
    UNCLEAN = "unclean"
    UNCLEAN_RECOVERY = "unclean-recovery"
    DESIGNATED = "designated"


LOSSY = frozenset(
    (
        ElectionKind.LAST_KNOWN_LEADER,
        ElectionKind.UNCLEAN,
        ElectionKind.UNCLEAN_RECOVERY,
        ElectionKind.DESIGNATED,
    )
)
"""Elections whose leader may lack committed records."""


class Election(NamedTuple):
    """An election: a partition has a new leader.

    `from_leader` is -1 if it had none, and None if a gap in the log hides it. `passed_over` are
    replicas that would have come first, but had too little of the log locally (KIP-1303).
    """

    offset: int
    timestamp_ms: int
    topic: str
    partition: int
    kind: str
    from_leader: int | None
    to_leader: int
    leader_epoch: int
    cause: str
    passed_over: tuple[int, ...] = ()


class LeaderChange(NamedTuple):
    """A quorum leader's first record in its epoch."""

    leader: int
    epoch: int
    offset: int


NOTED_KINDS: Mapping[int, ElectionKind] = {
    1: ElectionKind.ISR,
    2: ElectionKind.PREFERRED,
    3: ElectionKind.ELR,
    4: ElectionKind.LAST_KNOWN_LEADER,
    5: ElectionKind.UNCLEAN,
    6: ElectionKind.UNCLEAN_RECOVERY,
    7: ElectionKind.DESIGNATED,
}
"""The private tagged field 10000 of a partition record."""

UNKNOWN = "unknown"


class BrokerEvent(StrEnum):
    """The effect of a record on a broker."""

    REGISTERED = "registered"
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    DIRECTORY_FAILED = "log-directory-failed"
    UNREGISTERED = "unregistered"


_CAUSE: Mapping[BrokerEvent, str] = {
    BrokerEvent.REGISTERED: "broker-registered",
    BrokerEvent.FENCED: "broker-fenced",
    BrokerEvent.CONTROLLED_SHUTDOWN: "controlled-shutdown",
    BrokerEvent.DIRECTORY_FAILED: "log-directory-failed",
    BrokerEvent.UNREGISTERED: "broker-unregistered",
}


def election_kind(
    before: ShapeKey, after: ShapeKey, change: PartitionChange
) -> ElectionKind | None:
    """Return the kind of election in the change, None if it elects no leader.

    A change that names the current leader only begins a new leader epoch.
    """
    leader = after.leader
    if change.leader == LEADER_STAYS or leader in (NO_LEADER, before.leader):
        return None
    if change.kind in NOTED_KINDS:
        return NOTED_KINDS[change.kind]
    began_recovering = after.recovery == RECOVERING and change.recovery == RECOVERING
    if not before.isr and not before.elr and leader in before.last_known:
        return ElectionKind.LAST_KNOWN_LEADER
    if began_recovering:
        return ElectionKind.UNCLEAN
    if leader not in before.isr:
        return _from_outside_the_isr(before, after)
    if before.leader in after.isr and after.replicas[:1] == (leader,):
        return ElectionKind.PREFERRED
    return ElectionKind.ISR


def _from_outside_the_isr(before: ShapeKey, after: ShapeKey) -> ElectionKind:
    if after.leader in before.elr:
        return ElectionKind.ELR
    joined_with_others = set(before.isr) & set(after.isr)
    return ElectionKind.ISR if joined_with_others else ElectionKind.UNCLEAN


def election_cause(
    cluster: ClusterState,
    events: Mapping[int, BrokerEvent],
    before: ShapeKey,
    after: ShapeKey,
    change: PartitionChange,
    kind: ElectionKind,
    topic: str,
) -> str:
    """Return the cause; `events` are the broker events of the same batch."""
    if change.kind in NOTED_KINDS:
        return change.cause or UNKNOWN
    if kind is ElectionKind.PREFERRED:
        return "preferred"
    if before.leader == NO_LEADER:
        return _why_out_of_nothing(cluster, events, after, kind, topic)
    if before.leader not in after.replicas:
        return "reassignment"
    event = events.get(before.leader)
    if event is not None and event in _CAUSE:
        return _CAUSE[event]
    return _by_state(cluster.brokers.get(before.leader))


def _why_out_of_nothing(
    cluster: ClusterState,
    events: Mapping[int, BrokerEvent],
    after: ShapeKey,
    kind: ElectionKind,
    topic: str,
) -> str:
    """Return the cause for a partition without leader: the new one came back, or a setting
    changed.
    """
    if events.get(after.leader) in (BrokerEvent.UNFENCED, BrokerEvent.REGISTERED):
        return "broker-unfenced"
    if kind is ElectionKind.UNCLEAN and cluster.setting(topic, UNCLEAN) == "true":
        return "unclean-config"
    return UNKNOWN


def _by_state(broker: BrokerState | None) -> str:
    if broker is None:
        return _CAUSE[BrokerEvent.UNREGISTERED]
    if broker.fenced:
        return _CAUSE[BrokerEvent.FENCED]
    if broker.shutting_down:
        return _CAUSE[BrokerEvent.CONTROLLED_SHUTDOWN]
    return UNKNOWN
