"""Metadata image with views for clients: by listener, by name, by id.

The image is a frozen value that the loader replaces. The cache holds the newest one and the few
views that are too expensive to compute per request. Each view is dropped when its part of the image
is replaced.

A broker is visible on the listener of the client's connection only, because the client cannot use
an address on another listener. A fenced broker is registered but not alive: it is in no list of
brokers, it counts as an offline replica, and no response names it as a leader.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from immutables import Map

from metalog.image.delta import MetadataDelta
from metalog.image.values import (
    EMPTY_IMAGE,
    BrokerImage,
    ConfigResourceType,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

_NO_CONFIG: Map[str, str] = Map()


class LeaderHint(NamedTuple):
    """The leader that a client should contact instead (KIP-951). Never a fenced or unknown node."""

    leader_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


class MetadataCache:
    """The newest image and its views."""

    def __init__(self, node_id: int, cluster_id: str, rng: random.Random) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._rng = rng
        self.image: MetadataImage = EMPTY_IMAGE
        self._alive: dict[str, tuple[tuple[BrokerImage, Endpoint], ...]] = {}
        self._alive_of: Map[int, BrokerImage] | None = None
        self._names: list[str] | None = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Set the next image. A plain assignment: each request sees either the old or the new one
        as a whole."""
        # The map of topics is replaced after every partition change; its names are not.
        if any(change.created or change.deleted for change in delta.topics.values()):
            self._names = None
        self.image = image

    # --- brokers ------------------------------------------------------------------------------

    def alive_brokers(self, listener: str) -> tuple[tuple[BrokerImage, Endpoint], ...]:
        """Return the unfenced brokers with an address on `listener`, by id."""
        brokers = self.image.cluster.brokers
        if brokers is not self._alive_of:
            self._alive = {}
            self._alive_of = brokers
        alive = self._alive.get(listener)
        if alive is None:
            unfenced = (i for i, broker in sorted(brokers.items()) if not broker.fenced)
            alive = self._alive[listener] = tuple(self.endpoints(unfenced, listener))
        return alive

    def endpoints(
        self, broker_ids: Iterable[int], listener: str
    ) -> list[tuple[BrokerImage, Endpoint]]:
        """Return the registered ones of these brokers, fenced or not, with their address on
        `listener`."""
        registered = (self.image.cluster.brokers.get(broker_id) for broker_id in broker_ids)
        found = ((broker, broker.endpoint(listener)) for broker in registered if broker is not None)
        return [(broker, endpoint) for broker, endpoint in found if endpoint is not None]

    def alive_endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return an unfenced broker's address on `listener`, or None."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return broker.endpoint(listener)

    def controller_hint(self, listener: str) -> int:
        """Return the `controller_id` for clients: any alive broker, since each one forwards; -1
        without one."""
        alive = self.alive_brokers(listener)
        return self._rng.choice(alive)[0].id if alive else -1

    # --- topics -------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicImage | None:
        return self.image.topics.by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return self.image.topics.by_id.get(topic_id)

    def topic_names(self) -> list[str]:
        """Return all names in order. The list is shared: do not change it."""
        names = self._names
        if names is None:
            names = self._names = sorted(self.image.topics.by_name)
        return names

    def partition(self, name: str, index: int) -> PartitionImage | None:
        topic = self.image.topics.by_name.get(name)
        return None if topic is None else topic.partitions.get(index)

    def leader_hint(
        self, partition: PartitionImage | None, listener: str, *, epoch_at_least: int
    ) -> LeaderHint | None:
        """Return the partition's leader if it is alive, has an address, and its epoch is not
        older."""
        if partition is None or partition.leader_epoch < epoch_at_least:
            return None
        endpoint = self.alive_endpoint(partition.leader, listener)
        if endpoint is None:
            return None
        return LeaderHint(
            partition.leader,
            partition.leader_epoch,
            endpoint.host,
            endpoint.port,
            self.image.cluster.brokers[partition.leader].rack,
        )

    # --- configs ------------------------------------------------------------------------------

    def config_overrides(self, resource_type: int, name: str) -> Map[str, str]:
        """Return the values set for one resource; empty without any."""
        return self.image.configs.get((resource_type, name), _NO_CONFIG)

    def topic_overrides(self, name: str) -> Map[str, str]:
        return self.config_overrides(ConfigResourceType.TOPIC, name)

    def broker_overrides(self) -> Map[str, str]:
        """Return the dynamic configuration of this broker alone."""
        return self.config_overrides(ConfigResourceType.BROKER, str(self.node_id))

    def cluster_overrides(self) -> Map[str, str]:
        """Return the dynamic configuration that all brokers share."""
        return self.config_overrides(ConfigResourceType.BROKER, "")
