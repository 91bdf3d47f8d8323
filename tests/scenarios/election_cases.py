"""Partitions and events of their brokers, run through the controller's public decisions.

A `Case` is a partition of three replicas, their fenced brokers, and one `Event`. `play` brings the
event about as brokers do (registrations, heartbeats, silence) and returns every record that changed
the partition, with the partition after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from controller.brokers.registration import decide_register_broker
from controller.elections.eligibility import (
    Eligibility,
    Ineligible,
    Reason,
    broker_eligibility,
)
from controller.elections.partition_change import replicas_of
from metalog.image.features import ELR_VERSION
from metalog.image.values import (
    NO_LEADER,
    ConfigResourceType,
    MetadataImage,
    PartitionImage,
    VersionRange,
)
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.schema import MetadataRecord
from testkit.memory.controller import FEATURES, SESSION_TIMEOUT_MS, Cluster, directory, registration

BROKERS = (1, 2, 3)
TOPIC, TOPIC_ID = "orders", b"topic of a case."
GOOD_AT_START = {**FEATURES, ELR_VERSION: VersionRange(0, 1)}
BACK = ("clean", "unclean", "empty")
EVENTS = ("fenced", "shutdown", "directory", "heard", *BACK)


class Rules(NamedTuple):
    """The cluster's configuration."""

    feature: int = 1
    min_isr: int = 1
    strategy: str = "Balanced"
    manager: bool = False


class Before(NamedTuple):
    """A partition of the replicas 1, 2 and 3, and the state of its brokers."""

    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    leader: int = NO_LEADER
    fenced: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    state: int = 0


class Event(NamedTuple):
    """One of `EVENTS`, and its broker."""

    what: str
    broker: int


class Step(NamedTuple):
    """A record that changed the partition, and the partition after it."""

    record: PartitionChangeRecord
    before: PartitionImage
    after: PartitionImage
    image: MetadataImage


class Played(NamedTuple):
    """The result of a case."""

    start: PartitionImage
    steps: tuple[Step, ...]
    image: MetadataImage

    @property
    def end(self) -> PartitionImage:
        return self.image.topics.by_name[TOPIC].partitions[0]

    def reasons(self) -> dict[int, str]:
        """Return why each replica does not lead in the end, as a word of the table.

        `outside` is an eligible replica that is not known to have all records.
        """
        words = {Reason.SHUTTING_DOWN: "shutting-down", Reason.DIRECTORY_OFFLINE: "directory"}
        return {
            broker: words.get(told.reason, told.reason.name.lower())
            if isinstance(told, Ineligible)
            else "outside"
            for broker, told in fitness(self.image).items()
        }


def fitness(image: MetadataImage) -> dict[int, Eligibility]:
    """Return the eligibility of each broker to lead the partition, whatever the logs hold."""
    nobody: frozenset[int] = frozenset()
    of = broker_eligibility(
        image.cluster.brokers, leaving=nobody, joining=nobody, expired=nobody, unclean=nobody
    )
    partition = image.topics.by_name[TOPIC].partitions[0]
    place = replicas_of(TOPIC_ID, 0, partition)
    return {broker: of(place, broker) for broker in partition.replicas}


def play(rules: Rules, before: Before, event: Event) -> Played:
    """Bring the event about and return the resulting steps."""
    cluster = _cluster(rules, before)
    start = cluster.partition(TOPIC)
    steps: list[Step] = []
    apply = cluster.apply

    def watched(records: Sequence[MetadataRecord]) -> None:
        for record in records:
            old = cluster.partition(TOPIC)
            apply([record])
            if isinstance(record, PartitionChangeRecord):
                steps.append(Step(record, old, cluster.partition(TOPIC), cluster.image))

    cluster.apply = watched  # type: ignore[method-assign]
    _happens(cluster, event)
    return Played(start, tuple(steps), cluster.image)


def _happens(cluster: Cluster, event: Event) -> None:
    what, broker_id = event
    broker = cluster.image.cluster.brokers[broker_id]
    if what == "fenced":
        _silent(cluster, broker_id)
        cluster.fence_expired()
    elif what == "shutdown":
        cluster.heartbeat(broker_id, want_shut_down=True)
    elif what == "directory":
        cluster.heartbeat(broker_id, offline_log_dirs=[directory(broker_id)])
    elif what == "heard":
        cluster.heartbeat(broker_id)
    else:
        _silent(cluster, broker_id)
        first = other_disk(broker_id) if what == "empty" else directory(broker_id)
        request = _registration(
            broker_id,
            life=2,
            log_dirs=[first, second(broker_id)],
            previous_broker_epoch=broker.epoch if what == "clean" else -1,
        )
        cluster.run(lambda view: decide_register_broker(view, request))
        cluster.heartbeat(broker_id)


def _silent(cluster: Cluster, broker_id: int) -> None:
    """Let one broker's session end; it is not fenced by that alone."""
    cluster.advance(SESSION_TIMEOUT_MS)
    for other in cluster.image.cluster.brokers.values():
        if other.id != broker_id and not other.fenced:
            cluster.touch(other.id)


def second(broker_id: int) -> bytes:
    """Return the broker's other log directory, which does not have the partition."""
    return b"2nd-dir.." + directory(broker_id)[9:]


def other_disk(broker_id: int) -> bytes:
    """Return the directory id in place of the first one after the disk was replaced."""
    return b"new-disk." + directory(broker_id)[9:]


def _registration(broker_id: int, **fields: object) -> BrokerRegistrationRequest:
    features = [
        BrokerRegistrationRequest.Feature(
            name=name, min_supported_version=low, max_supported_version=high
        )
        for name, (low, high) in GOOD_AT_START.items()
    ]
    return registration(broker_id, **{"features": features, **fields})  # type: ignore[arg-type]


@cache
def _started(fenced: tuple[int, ...], gone: tuple[int, ...]) -> tuple[MetadataImage, int]:
    """Return three brokers with two directories each, and the next offset."""
    cluster = Cluster()
    for broker_id in BROKERS:
        first = () if broker_id in gone else (directory(broker_id),)
        request = _registration(broker_id, log_dirs=[*first, second(broker_id)])
        cluster.run(lambda view, r=request: decide_register_broker(view, r))  # type: ignore[misc]
        if broker_id not in fenced:
            cluster.heartbeat(broker_id)
    return cluster.image, cluster.next_offset


def _cluster(rules: Rules, before: Before) -> Cluster:
    cluster = Cluster()
    cluster.image, cluster.next_offset = _started(before.fenced, before.gone)
    cluster.apply(
        [
            FeatureLevelRecord(name=ELR_VERSION, feature_level=rules.feature),
            TopicRecord(name=TOPIC, topic_id=TOPIC_ID),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=list(BROKERS),
                directories=[directory(b) for b in BROKERS],
                isr=list(before.isr),
                eligible_leader_replicas=list(before.elr),
                last_known_elr=list(before.last_known),
                leader=before.leader,
                leader_recovery_state=before.state,
                leader_epoch=10,
                partition_epoch=20,
            ),
            *(
                ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
                for kind, name, key, value in _configs(rules)
            ),
        ]
    )
    return cluster


def _configs(rules: Rules) -> list[tuple[int, str, str, str]]:
    found = [(ConfigResourceType.TOPIC, TOPIC, "min.insync.replicas", str(rules.min_isr))]
    # Either key sets it; only the new one has the value None.
    if rules.strategy == "Aggressive":
        found.append((ConfigResourceType.TOPIC, TOPIC, "unclean.leader.election.enable", "true"))
    elif rules.strategy == "None":
        found.append((ConfigResourceType.TOPIC, TOPIC, "unclean.recovery.strategy", "None"))
    if rules.manager:
        found.append((ConfigResourceType.BROKER, "", "unclean.recovery.manager.enabled", "true"))
    return found
