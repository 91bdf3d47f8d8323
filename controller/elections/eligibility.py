"""Eligibility of brokers for leadership, with a reason for each refusal.

If a check returned a bool and logged separately, the two could disagree: the log has "not alive"
while the rule accepts the broker. So eligibility is a value that contains its reason. The log line,
the error message of ElectLeaders and reports all print that value.

An `EligibilityOf` is a callable from a partition and a broker id to `Eligible` or
`Ineligible(reason)`. It covers the broker (registered, unfenced, not leaving) and the directory of
this partition's replica. If the broker no longer has that directory, because it failed or the disk
was replaced, the replica is lost (KIP-858). It does not cover the log: ISR and ELR determine
whether a replica holds every committed record (`partition_change`).

An `ElectionOrder` sorts the candidates of a partition into the order in which they are tried. It is
a stable sort that gets the current time, because a rule may depend on the age of an event. It
leaves its input, the assignment, unchanged: elections never change a partition's replicas.
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
    """Replicas of a partition in an election; `directories[i]` is the directory of `replicas[i]`.

    local_logs: known local-log stats of the replicas (KIP-1303).
    """

    topic_id: bytes
    partition_id: int
    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    local_logs: LocalLogTable = NO_LOCAL_LOGS

    def directory_of(self, broker_id: int) -> bytes | None:
        """Return the directory id of that broker's replica, or None if it has no replica."""
        if broker_id not in self.replicas:
            return None
        return self.directories[self.replicas.index(broker_id)]


class Reason(Enum):
    """Why a broker may not become a leader; the value completes the sentence "broker N ...".

    A live broker in neither ISR nor ELR has none of them: `controller.elections.explanation` adds
    that its log may lack committed records. `OTHER_EPOCH` only keeps a replica out of the ISR.
    """

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
    """The broker may not lead, for this reason."""

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
    """Return the replicas in assignment order: Kafka's rule."""
    return replicas


def default_directory(broker: BrokerImage) -> bytes:
    """Return the directory id for a new replica on this broker.

    A broker with several directories chooses one later and reports it.
    """
    if not broker.directories:
        return DIRECTORY_MIGRATING
    return broker.directories[0] if len(broker.directories) == 1 else DIRECTORY_UNASSIGNED


def is_online(broker: BrokerImage, directory: bytes) -> bool:
    """Return whether the broker can use that directory, according to its registration.

    A replica whose directory was never reported counts as online. A registration without
    directories is from before KIP-858; a broker that has lost all directories stops by itself.
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
    """Return the eligibility from the cluster image, corrected by what this decision changes.

    Args:
        leaving: brokers that this decision fences, shuts down or removes.
        joining: brokers that this decision unfences.
        expired: unfenced brokers whose session has expired. An election must not give them a
            leadership that would be moved away again shortly after.
        unclean: brokers that lost unflushed data.
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
    """Return the reason against the broker in its registration, None without one."""
    if broker is None:
        return Reason.NOT_REGISTERED
    if broker.in_controlled_shutdown:
        return Reason.SHUTTING_DOWN
    if broker.fenced and not joining:
        return Reason.FENCED
    return None


def is_eligible(eligibility: Eligibility) -> bool:
    """Return whether this is `Eligible`."""
    return isinstance(eligibility, Eligible)


def explain(candidates: Sequence[int], eligibility_of: ReplicaEligibility) -> str:
    """Return one clause per candidate that may not lead: "broker 1 is fenced, broker 2 is ..."."""
    refusals = [
        f"broker {candidate} {eligibility}"
        for candidate in candidates
        if isinstance(eligibility := eligibility_of(candidate), Ineligible)
    ]
    return ", ".join(refusals)
