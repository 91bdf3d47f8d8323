"""The metadata image: the state of the cluster as one immutable value.

An image is a tree of named tuples over persistent maps. A change shares everything that it does not
touch, an old image stays valid, and an identity test finds changes. `metalog.image.replay` creates
the next image from a record; no code changes an image.

Laws (tests/property/test_image_laws.py):
- image -> records -> image is the identity;
- any split of a list of records gives the same image;
- a snapshot and the records after it give the image of the full replay.

Ids are plain ints and 16-byte strings as in the records; texts are as in the records. Timestamps
are epoch milliseconds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from immutables import Map

from metalog.image.local_log import NO_LOCAL_LOGS, LocalLogTable

NO_LEADER = -1
"""`PartitionImage.leader` of a partition without a leader."""


class ConfigResourceType(IntEnum):
    """The type of resource of a configuration; the numbers are those of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LeaderRecoveryState(IntEnum):
    """The recovery state of a partition's leader after an unclean election (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class ElectedAs(IntEnum):
    """The kind of election that gave a partition its leader, as our controllers record it.

    PREFERRED: the old leader stays in the ISR and yields to the first of the election order.
    UNCLEAN_RECOVERY: the leader had the longest log of the replicas that answered. DESIGNATED: an
    operator chose the leader.
    """

    NONE = 0
    ISR = 1
    PREFERRED = 2
    ELR = 3
    LAST_KNOWN_LEADER = 4
    UNCLEAN = 5
    UNCLEAN_RECOVERY = 6
    DESIGNATED = 7


LOSSY_ELECTIONS = frozenset(
    (
        ElectedAs.LAST_KNOWN_LEADER,
        ElectedAs.UNCLEAN,
        ElectedAs.UNCLEAN_RECOVERY,
        ElectedAs.DESIGNATED,
    )
)
"""Elections whose leader may lack committed records."""


UnknownTags: TypeAlias = tuple[tuple[int, bytes], ...]
"""Tagged fields of a newer schema, by tag: kept and written back, but not interpreted."""


class Provenance(NamedTuple):
    """The prefix of the metadata log that an image represents: up to and including `offset`.

    batch_aligned: False for an image that ends inside a batch, where a metadata transaction began.
    No snapshot can be taken of it, because a snapshot ends at the end of a batch.
    """

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    batch_aligned: bool = True


class Endpoint(NamedTuple):
    """One listener of a node, as registered."""

    name: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    """Feature levels that a node supports, both ends included."""

    min_level: int
    max_level: int


class BrokerImage(NamedTuple):
    """A broker's current registration. `epoch` is the offset of its RegisterBrokerRecord."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Map[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] = ()
    is_migrating_zk_broker: bool = False
    unknown_tags: UnknownTags = ()

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return the endpoint of that listener, or None if the broker does not have it."""
        return next((e for e in self.endpoints if e.name == listener_name), None)


class ControllerImage(NamedTuple):
    """A controller's registration (KIP-919), voter or observer."""

    id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: Map[str, VersionRange]
    unknown_tags: UnknownTags = ()


class ClusterImage(NamedTuple):
    brokers: Map[int, BrokerImage] = Map()
    controllers: Map[int, ControllerImage] = Map()


class PartitionImage(NamedTuple):
    """The replication state of one partition.

    directories: `directories[i]` contains the log of `replicas[i]`. elr and last_known_elr:
    eligible leader replicas and last known ELR of KIP-966. local_logs: last known local-log stats
    (KIP-1303). These may name brokers that are no longer replicas, and earlier broker incarnations,
    because a node that does not know the field leaves it unchanged.
    """

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int = LeaderRecoveryState.RECOVERED
    unknown_tags: UnknownTags = ()
    local_logs: LocalLogTable = NO_LOCAL_LOGS

    def directory_of(self, broker_id: int) -> bytes | None:
        """Return the directory id of that broker's replica, or None if it has no replica."""
        if broker_id not in self.replicas:
            return None
        return self.directories[self.replicas.index(broker_id)]


class TopicImage(NamedTuple):
    name: str
    id: bytes
    partitions: Map[int, PartitionImage] = Map()


class TopicsImage(NamedTuple):
    """Topics by both of their keys; the two maps always hold the same values."""

    by_id: Map[bytes, TopicImage] = Map()
    by_name: Map[str, TopicImage] = Map()

    def partition(self, topic_id: bytes, index: int) -> PartitionImage | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)


class AclImage(NamedTuple):
    """One access control entry; the enums are AdminClient's numbers, kept as ints."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramCredentialImage(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationTokenImage(NamedTuple):
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


ConfigKey: TypeAlias = tuple[int, str]
"""(resource type, resource name); the name is empty for the cluster-wide default of brokers."""
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(entity type, entity name) sorted by type; a None name is the default entity of its type."""
ScramKey: TypeAlias = tuple[int, str]
"""(mechanism number, user name)."""


class MetadataImage(NamedTuple):
    """The state of the whole cluster at one offset of the metadata log."""

    provenance: Provenance = Provenance()
    features: Map[str, int] = Map()
    cluster: ClusterImage = ClusterImage()
    topics: TopicsImage = TopicsImage()
    configs: Map[ConfigKey, Map[str, str]] = Map()
    client_quotas: Map[QuotaEntity, Map[str, float]] = Map()
    next_producer_id: int = -1
    acls: Map[bytes, AclImage] = Map()
    scram: Map[ScramKey, ScramCredentialImage] = Map()
    delegation_tokens: Map[str, DelegationTokenImage] = Map()

    @property
    def metadata_version(self) -> int | None:
        """The finalised `metadata.version` level, None before the first one is written."""
        return self.features.get("metadata.version")

    @property
    def elr_enabled(self) -> bool:
        """True if eligible leader replicas are on (KIP-966). Otherwise an ELR in the image is left
        from before and has no meaning."""
        return self.features.get("eligible.leader.replicas.version", 0) > 0

    def at(self, provenance: Provenance) -> MetadataImage:
        """Return the same cluster with another provenance."""
        return self if provenance == self.provenance else self._replace(provenance=provenance)

    def same_cluster(self, other: MetadataImage) -> bool:
        """Return whether everything but the provenance is equal."""
        return self.at(other.provenance) == other


EMPTY_IMAGE = MetadataImage()
