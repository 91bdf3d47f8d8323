"""Eligibility for leadership, with a reason for each refusal.

A check that returns a bool beside a log line lets the two drift apart: the log says "not alive"
while the rule says yes. So eligibility is a value that carries its reason, and the log line, the
error message of ElectLeaders and a report all print that same value.

An `EligibilityOf` is a callable from a partition and a broker id to `Eligible` or
`Ineligible(reason)`. It speaks about the broker (registered, unfenced, not leaving) and about the
directory in which the broker has this partition's replica: a directory that the broker does not
have any more, because it failed or because the disk is another one, takes the replica with it
(KIP-858). It never speaks about the log: whether a replica holds every committed record is the
business of ISR and ELR in `partition_change`.

An `ElectionOrder` puts the candidates of a partition into the order in which they are tried. It is
a stable sort that gets the time, because a rule may depend on how long ago something happened. Its
input is the assignment and stays as it is; what a partition's replicas are is never changed by an
election.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from metalog.image.local_log import NO_LOCAL_LOGS, LocalLogTable
from metalog.image.values import BrokerImage
from protocol.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, RESERVED_UUIDS


class PartitionReplicas(NamedTuple):
    """A partition that an election is about: `directories[i]` is where `replicas[i]` is kept.
    `local_logs` is what is known of what replicas have locally (KIP-1303)."""

    topic_id: bytes
    partition_id: int
    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    local_logs: LocalLogTable = NO_LOCAL_LOGS

    def directory_of(self, broker_id: int) -> bytes | None:
        """The directory id of that broker's replica, or None if it has no replica."""
        if broker_id not in self.replicas:
            return None
        return self.directories[self.replicas.index(broker_id)]


class Reason(Enum):
    """Why a broker may not become a leader; the value completes the sentence "broker N ..."."""

    NOT_REGISTERED = "is not registered"
    FENCED = "is fenced"
    SHUTTING_DOWN = "is shutting down"
    LEAVING = "is being fenced or removed by this change"
    SESSION_EXPIRED = "has not been heard of within its session timeout"
    OTHER_EPOCH = "has registered again since it fetched"
    UNCLEAN_SHUTDOWN = "came back from an unclean shutdown"
    DIRECTORY_OFFLINE = "does not have the log directory of its replica online"


class Eligible(NamedTuple):
    """The broker may lead."""

    def __str__(self) -> str:
        return "is eligible"


class Ineligible(NamedTuple):
    """The broker may not lead, and this is why."""

    reason: Reason

    def __str__(self) -> str:
        return self.reason.value


Eligibility: TypeAlias = Eligible | Ineligible
EligibilityOf: TypeAlias = Callable[[PartitionReplicas, int], Eligibility]
ReplicaEligibility: TypeAlias = Callable[[int], Eligibility]
"""An `EligibilityOf` for one partition."""
ElectionOrder: TypeAlias = Callable[[PartitionReplicas, tuple[int, ...], int], tuple[int, ...]]

ELIGIBLE: Final = Eligible()
DIRECTORY_OFFLINE: Final = Ineligible(Reason.DIRECTORY_OFFLINE)


def assignment_order(
    partition: PartitionReplicas, replicas: tuple[int, ...], now_ms: int
) -> tuple[int, ...]:
    """The order in which the replicas were assigned: Kafka's rule."""
    return replicas


def default_directory(broker: BrokerImage) -> bytes:
    """A broker with one directory puts the replica there; with more it says later where."""
    if not broker.directories:
        return DIRECTORY_MIGRATING
    return broker.directories[0] if len(broker.directories) == 1 else DIRECTORY_UNASSIGNED


def is_online(broker: BrokerImage, directory: bytes) -> bool:
    """Whether the broker can use that directory, as far as its registration says.

    A replica whose directory was never said is taken for one that is there. A registration without
    directories is from before KIP-858; a broker with none left stops by itself.
    """
    if directory in RESERVED_UUIDS:
        return directory != DIRECTORY_LOST
    return not broker.directories or directory in broker.directories


def broker_eligibility(
    brokers: Map[int, BrokerImage],
    *,
    leaving: frozenset[int],
    joining: frozenset[int],
    expired: frozenset[int],
    unclean: frozenset[int],
) -> EligibilityOf:
    """Eligibility as the cluster image has it, corrected by what the same decision is about.

    `leaving` brokers are fenced, shut down or removed by this decision and `joining` ones are
    unfenced by it, though the image does not say so yet. `expired` are unfenced but overdue: an
    election must not hand them what would be taken away again a moment later. `unclean` have lost
    what they had not flushed.
    """

    known: dict[int, Eligibility] = {}
    decided = {
        **dict.fromkeys(expired - joining, Reason.SESSION_EXPIRED),
        **dict.fromkeys(unclean, Reason.UNCLEAN_SHUTDOWN),
        **dict.fromkeys(leaving, Reason.LEAVING),
    }

    def eligibility_of(partition: PartitionReplicas, broker_id: int) -> Eligibility:
        eligibility = known.get(broker_id)
        if eligibility is None:
            reason = _registered_reason(brokers.get(broker_id), broker_id in joining)
            if reason is not Reason.NOT_REGISTERED:
                reason = decided.get(broker_id, reason)
            eligibility = known[broker_id] = ELIGIBLE if reason is None else Ineligible(reason)
        if eligibility is ELIGIBLE:
            directory = partition.directory_of(broker_id)
            if directory is not None and not is_online(brokers[broker_id], directory):
                return DIRECTORY_OFFLINE
        return eligibility

    return eligibility_of


def _registered_reason(broker: BrokerImage | None, joining: bool) -> Reason | None:
    """What the registration itself says against the broker."""
    if broker is None:
        return Reason.NOT_REGISTERED
    if broker.in_controlled_shutdown:
        return Reason.SHUTTING_DOWN
    if broker.fenced and not joining:
        return Reason.FENCED
    return None


def is_eligible(eligibility: Eligibility) -> bool:
    """True for `Eligible`."""
    return isinstance(eligibility, Eligible)


def explain(candidates: Sequence[int], eligibility_of: ReplicaEligibility) -> str:
    """One clause per candidate that may not lead: "broker 1 is fenced, broker 2 is ..."."""
    refusals = [
        f"broker {candidate} {eligibility}"
        for candidate in candidates
        if isinstance(eligibility := eligibility_of(candidate), Ineligible)
    ]
    return ", ".join(refusals)
