"""The replay table: the effect of each metadata record on the image.

Controller, broker and audit all use `replay`. No other module changes state by a record's type,
because two replays would diverge. A function here takes an image and a record and returns the next
image. It raises `ReplayError` if the record cannot follow the image. The log is then broken, and
the process that reads it stops with the record in its message.

Metadata transactions (KIP-868) group records that must become visible together or not at all. The
table itself ignores their markers, because a controller that writes a transaction must see its
records. All other readers use `Replayer`, which shows only images outside of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from immutables import Map

from metalog.image.local_log import LocalLogTable, table_of
from metalog.image.values import (
    EMPTY_IMAGE,
    AclImage,
    BrokerImage,
    ClusterImage,
    ConfigResourceType,
    ControllerImage,
    DelegationTokenImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    Provenance,
    QuotaEntity,
    ScramCredentialImage,
    TopicImage,
    TopicsImage,
    UnknownTags,
    VersionRange,
)
from protocol.ids import DIRECTORY_MIGRATING
from protocol.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

K = TypeVar("K")
V = TypeVar("V")


class ReplayError(Exception):
    """A record that cannot follow the image before it; the message names the conflict."""


_NO_LEADER_CHANGE = -2
_NO_RECOVERY_CHANGE = -1
_FENCE, _UNFENCE = 1, -1


SECRET_FIELDS: Mapping[type, frozenset[str]] = {
    ConfigRecord: frozenset({"value"}),
    UserScramCredentialRecord: frozenset({"salt", "stored_key", "server_key"}),
    DelegationTokenRecord: frozenset({"token_id"}),
}
"""Fields that may contain a credential or a part of one. A key's sensitivity is not checked: a log
may contain keys of newer versions and of plug-ins."""


def described(record: Any) -> str:
    """Return a record as text for an error or a log line, without possible secrets."""
    secret = SECRET_FIELDS.get(type(record), frozenset())
    parts = [
        f"{one.name}={'(hidden)' if one.name in secret else repr(getattr(record, one.name))}"
        for one in record.FIELDS
    ]
    if record.unknown_tags:
        parts.append(f"unknown_tags={sorted(record.unknown_tags)}")
    return f"{type(record).__name__}({', '.join(parts)})"


def replay(image: MetadataImage, record: Any) -> MetadataImage:
    """Return the image after `record` (any metadata record). Raises ReplayError."""
    apply = REPLAY.get(type(record))
    if apply is None:
        raise ReplayError(f"no replay for {type(record).__name__}")
    return apply(image, record)


def replay_all(image: MetadataImage, records: Iterable[Any]) -> MetadataImage:
    """Replay each record in order. Raises ReplayError."""
    growing = GrowingImage(image)
    for record in records:
        growing.add(record)
    return growing.finish()


class GrowingImage:
    """An image under construction, with records added one after the other.

    `add` has the effect of `replay` and raises the same errors. Consecutive partition records of
    one topic, as for a new topic or a fenced broker, change the topic only once.
    """

    __slots__ = ("_image", "_partitions", "_topic")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topic: TopicImage | None = None
        # a mutation of the topic's map, whose class has no types
        self._partitions: Any = None

    def add(self, record: Any) -> None:
        kind = type(record)
        change = _IN_A_ROW.get(kind)
        if change is None:
            self._image = replay(self.finish(), record)
            return
        if self._topic is None or self._topic.id != record.topic_id:
            topics = self.finish().topics
            self._topic = _get(topics.by_id, record.topic_id, "topic id")
            self._partitions = self._topic.partitions.mutate()
        self._partitions[record.partition_id] = change(self._topic, self._partitions, record)

    def finish(self) -> MetadataImage:
        """Return the image after all added records; more may follow."""
        topic = self._topic
        if topic is not None:
            grown = TopicImage(topic.name, topic.id, self._partitions.finish())
            self._image = _with_topic(self._image, grown)
            self._topic = self._partitions = None
        return self._image


def _get(values: Map[K, V], key: K, what: str) -> V:
    found = values.get(key)
    if found is None:
        raise ReplayError(f"unknown {what} {key!r}")
    return found


def _remove(values: Map[K, V], key: K, what: str) -> Map[K, V]:
    _get(values, key, what)
    return values.delete(key)


def _no_change(image: MetadataImage, record: Any) -> MetadataImage:
    return image


# --- brokers and controllers ------------------------------------------------------------------


def _endpoints(record: RegisterBrokerRecord | RegisterControllerRecord) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points)


def _ranges(record: RegisterBrokerRecord | RegisterControllerRecord) -> Map[str, VersionRange]:
    return Map(
        {
            f.name: VersionRange(f.min_supported_version, f.max_supported_version)
            for f in record.features
        }
    )


def _tags(record: Any) -> UnknownTags:
    tags: dict[int, bytes] | None = record.unknown_tags
    return tuple(sorted(tags.items())) if tags else ()


def _with_broker(image: MetadataImage, broker: BrokerImage) -> MetadataImage:
    brokers = image.cluster.brokers.set(broker.id, broker)
    return image._replace(cluster=ClusterImage(brokers, image.cluster.controllers))


def _register_broker(image: MetadataImage, record: RegisterBrokerRecord) -> MetadataImage:
    return _with_broker(
        image,
        BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record),
            features=_ranges(record),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=tuple(record.cordoned_log_dirs or ()),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            unknown_tags=_tags(record),
        ),
    )


def _broker(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    broker = _get(image.cluster.brokers, broker_id, "broker")
    if broker.epoch != epoch:
        raise ReplayError(
            f"broker {broker_id}: the record has epoch {epoch}, the registration {broker.epoch}"
        )
    return broker


def _unregister_broker(image: MetadataImage, record: UnregisterBrokerRecord) -> MetadataImage:
    _broker(image, record.broker_id, record.broker_epoch)
    brokers = image.cluster.brokers.delete(record.broker_id)
    return image._replace(cluster=ClusterImage(brokers, image.cluster.controllers))


def _fence_broker(image: MetadataImage, record: FenceBrokerRecord) -> MetadataImage:
    return _with_broker(image, _broker(image, record.id, record.epoch)._replace(fenced=True))


def _unfence_broker(image: MetadataImage, record: UnfenceBrokerRecord) -> MetadataImage:
    return _with_broker(image, _broker(image, record.id, record.epoch)._replace(fenced=False))


def _change_broker(image: MetadataImage, record: BrokerRegistrationChangeRecord) -> MetadataImage:
    broker = _broker(image, record.broker_id, record.broker_epoch)
    if record.fenced not in (_UNFENCE, 0, _FENCE):
        raise ReplayError(f"invalid fenced {record.fenced}; allowed: -1, 0, 1")
    if record.in_controlled_shutdown not in (0, 1):
        raise ReplayError(
            f"invalid in_controlled_shutdown {record.in_controlled_shutdown}; allowed: 0, 1"
        )
    if record.fenced:
        broker = broker._replace(fenced=record.fenced == _FENCE)
    if record.in_controlled_shutdown:
        broker = broker._replace(in_controlled_shutdown=True)
    if record.log_dirs:
        broker = broker._replace(directories=tuple(record.log_dirs))
    if record.cordoned_log_dirs is not None:
        broker = broker._replace(cordoned_directories=tuple(record.cordoned_log_dirs))
    return _with_broker(image, broker)


def _register_controller(image: MetadataImage, record: RegisterControllerRecord) -> MetadataImage:
    controller = ControllerImage(
        id=record.controller_id,
        incarnation_id=record.incarnation_id,
        zk_migration_ready=record.zk_migration_ready,
        endpoints=_endpoints(record),
        features=_ranges(record),
        unknown_tags=_tags(record),
    )
    controllers = image.cluster.controllers.set(controller.id, controller)
    return image._replace(cluster=ClusterImage(image.cluster.brokers, controllers))


def _unregister_controller(
    image: MetadataImage, record: UnregisterControllerRecord
) -> MetadataImage:
    _get(image.cluster.controllers, record.controller_id, "controller")
    controllers = image.cluster.controllers.delete(record.controller_id)
    return image._replace(cluster=ClusterImage(image.cluster.brokers, controllers))


# --- topics and partitions --------------------------------------------------------------------


def _with_topic(image: MetadataImage, topic: TopicImage) -> MetadataImage:
    by_id, by_name = image.topics
    return image._replace(
        topics=TopicsImage(by_id.set(topic.id, topic), by_name.set(topic.name, topic))
    )


def _create_topic(image: MetadataImage, record: TopicRecord) -> MetadataImage:
    if record.name in image.topics.by_name or record.topic_id in image.topics.by_id:
        raise ReplayError(f"topic {record.name!r} already exists")
    return _with_topic(image, TopicImage(record.name, record.topic_id))


def _remove_topic(image: MetadataImage, record: RemoveTopicRecord) -> MetadataImage:
    by_id, by_name = image.topics
    topic = _get(by_id, record.topic_id, "topic id")
    configs = image.configs
    config_key = (int(ConfigResourceType.TOPIC), topic.name)
    return image._replace(
        topics=TopicsImage(by_id.delete(topic.id), by_name.delete(topic.name)),
        configs=configs.delete(config_key) if config_key in configs else configs,
    )


def _directories(given: Sequence[bytes] | None, replicas: tuple[int, ...]) -> tuple[bytes, ...]:
    """Return the directories of replicas; records from before KIP-858 have none."""
    if not given:
        return (DIRECTORY_MIGRATING,) * len(replicas)
    if len(given) != len(replicas):
        raise ReplayError(f"{len(given)} directories for {len(replicas)} replicas")
    return tuple(given)


def _new_partition(topic: TopicImage, partitions: Any, record: PartitionRecord) -> PartitionImage:
    replicas = tuple(record.replicas)
    return PartitionImage(
        replicas,
        _directories(record.directories, replicas),
        tuple(record.isr),
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        _tags(record),
        table_of(record.local_logs or ()),
    )


def _change_topic(
    image: MetadataImage, record: PartitionRecord | PartitionChangeRecord
) -> MetadataImage:
    growing = GrowingImage(image)
    growing.add(record)
    return growing.finish()


def _or(changed: list[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
    return before if changed is None else tuple(changed)


def merge_partition_change(
    before: PartitionImage,
    record: PartitionChangeRecord,
    local_logs: LocalLogTable | None = None,
) -> PartitionImage:
    """Return the partition after a change.

    The partition epoch grows with every change. The leader epoch grows with every change that names
    a leader, even the same one.

    Args:
        local_logs: the table in the record, if the caller has it already.
    """
    if record.local_logs is None:
        local_logs = before.local_logs
    elif local_logs is None:
        local_logs = table_of(record.local_logs)
    replicas, directories = before.replicas, before.directories
    if record.replicas is not None or record.directories is not None:
        replicas = _or(record.replicas, replicas)
        directories = _directories_after(before, record, replicas)
    leader, leader_epoch = before.leader, before.leader_epoch
    if record.leader != _NO_LEADER_CHANGE:
        leader, leader_epoch = record.leader, leader_epoch + 1
    recovery_state = before.recovery_state
    if record.leader_recovery_state != _NO_RECOVERY_CHANGE:
        recovery_state = record.leader_recovery_state
    tags = before.unknown_tags
    if record.unknown_tags:
        tags = tuple(sorted({**dict(tags), **record.unknown_tags}.items()))
    return PartitionImage(
        replicas,
        directories,
        _or(record.isr, before.isr),
        _or(record.removing_replicas, before.removing),
        _or(record.adding_replicas, before.adding),
        _or(record.eligible_leader_replicas, before.elr),
        _or(record.last_known_elr, before.last_known_elr),
        leader,
        leader_epoch,
        before.partition_epoch + 1,
        recovery_state,
        tags,
        local_logs,
    )


def _directories_after(
    before: PartitionImage, record: PartitionChangeRecord, replicas: tuple[int, ...]
) -> tuple[bytes, ...]:
    """Return the directories after a record that names replicas or directories."""
    if record.directories is not None:
        return _directories(record.directories, replicas)
    if all(directory == DIRECTORY_MIGRATING for directory in before.directories):
        return _directories(None, replicas)
    return _directories(before.directories, replicas)


def _changed_partition(
    topic: TopicImage, partitions: Any, record: PartitionChangeRecord
) -> PartitionImage:
    before = _get(partitions, record.partition_id, f"partition of {topic.name!r}")
    return merge_partition_change(before, record)


_IN_A_ROW: Mapping[type[Any], Callable[[TopicImage, Any, Any], PartitionImage]] = {
    PartitionRecord: _new_partition,
    PartitionChangeRecord: _changed_partition,
}
"""Record class -> the new state of its partition; `partitions` are the topic's before the
record."""


def _clear_elr(image: MetadataImage, record: ClearElrRecord) -> MetadataImage:
    """Clear ELR and LastKnownELR of one topic, or of all topics if the name is empty.

    It changes each partition that had any, so their partition epochs grow.
    """
    if record.topic_name:
        topics: Iterable[TopicImage] = (_get(image.topics.by_name, record.topic_name, "topic"),)
    else:
        topics = tuple(image.topics.by_id.values())
    for topic in topics:
        cleared = {
            index: partition._replace(
                elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
            )
            for index, partition in topic.partitions.items()
            if partition.elr or partition.last_known_elr
        }
        if cleared:
            image = _with_topic(image, topic._replace(partitions=topic.partitions.update(cleared)))
    return image


# --- features, configs, producer ids ----------------------------------------------------------


def _feature_level(image: MetadataImage, record: FeatureLevelRecord) -> MetadataImage:
    """Set a level; level 0 means that the feature is off and removes it from the list."""
    if record.feature_level:
        return image._replace(features=image.features.set(record.name, record.feature_level))
    if record.name in image.features:
        return image._replace(features=image.features.delete(record.name))
    return image


def _config(image: MetadataImage, record: ConfigRecord) -> MetadataImage:
    """Set a value; a value of None removes the key, and a resource without keys is removed."""
    key = (record.resource_type, record.resource_name)
    values: Map[str, str] = image.configs.get(key, Map())
    if record.value is not None:
        values = values.set(record.name, record.value)
    elif record.name in values:
        values = values.delete(record.name)
    return image._replace(configs=_set_or_drop(image.configs, key, values))


def _set_or_drop(outer: Map[K, Map[str, V]], key: K, inner: Map[str, V]) -> Map[K, Map[str, V]]:
    if inner:
        return outer.set(key, inner)
    return outer.delete(key) if key in outer else outer


def _producer_ids(image: MetadataImage, record: ProducerIdsRecord) -> MetadataImage:
    return image._replace(next_producer_id=record.next_producer_id)


# --- quotas, ACLs, SCRAM, delegation tokens ---------------------------------------------------


def quota_entity(record: ClientQuotaRecord) -> QuotaEntity:
    """Return the key of a quota: its entity parts sorted by type."""
    parts = {part.entity_type: part.entity_name for part in record.entity}
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


def _client_quota(image: MetadataImage, record: ClientQuotaRecord) -> MetadataImage:
    entity = quota_entity(record)
    values: Map[str, float] = image.client_quotas.get(entity, Map())
    if not record.remove:
        values = values.set(record.key, record.value)
    elif record.key in values:
        values = values.delete(record.key)
    return image._replace(client_quotas=_set_or_drop(image.client_quotas, entity, values))


def _add_acl(image: MetadataImage, record: AccessControlEntryRecord) -> MetadataImage:
    acl = AclImage(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )
    return image._replace(acls=image.acls.set(record.id, acl))


def _remove_acl(image: MetadataImage, record: RemoveAccessControlEntryRecord) -> MetadataImage:
    return image._replace(acls=_remove(image.acls, record.id, "access control entry"))


def _scram(image: MetadataImage, record: UserScramCredentialRecord) -> MetadataImage:
    credential = ScramCredentialImage(
        record.salt, record.stored_key, record.server_key, record.iterations
    )
    return image._replace(scram=image.scram.set((record.mechanism, record.name), credential))


def _remove_scram(image: MetadataImage, record: RemoveUserScramCredentialRecord) -> MetadataImage:
    key = (record.mechanism, record.name)
    return image._replace(scram=_remove(image.scram, key, "SCRAM credential"))


def _token(image: MetadataImage, record: DelegationTokenRecord) -> MetadataImage:
    token = DelegationTokenImage(
        owner=record.owner,
        requester=record.requester,
        renewers=tuple(record.renewers),
        issue_timestamp_ms=record.issue_timestamp,
        max_timestamp_ms=record.max_timestamp,
        expiration_timestamp_ms=record.expiration_timestamp,
    )
    tokens = image.delegation_tokens.set(record.token_id, token)
    return image._replace(delegation_tokens=tokens)


def _remove_token(image: MetadataImage, record: RemoveDelegationTokenRecord) -> MetadataImage:
    tokens = _remove(image.delegation_tokens, record.token_id, "delegation token")
    return image._replace(delegation_tokens=tokens)


REPLAY: Mapping[type[Any], Callable[[MetadataImage, Any], MetadataImage]] = {
    RegisterBrokerRecord: _register_broker,
    UnregisterBrokerRecord: _unregister_broker,
    TopicRecord: _create_topic,
    PartitionRecord: _change_topic,
    ConfigRecord: _config,
    PartitionChangeRecord: _change_topic,
    FenceBrokerRecord: _fence_broker,
    UnfenceBrokerRecord: _unfence_broker,
    RemoveTopicRecord: _remove_topic,
    DelegationTokenRecord: _token,
    UserScramCredentialRecord: _scram,
    FeatureLevelRecord: _feature_level,
    ClientQuotaRecord: _client_quota,
    ProducerIdsRecord: _producer_ids,
    BrokerRegistrationChangeRecord: _change_broker,
    AccessControlEntryRecord: _add_acl,
    RemoveAccessControlEntryRecord: _remove_acl,
    NoOpRecord: _no_change,
    # State of a migration from ZooKeeper; 4.x has none, but old logs contain it.
    ZkMigrationStateRecord: _no_change,
    RemoveUserScramCredentialRecord: _remove_scram,
    # The Replayer handles the visibility of transactions, see the module docstring.
    BeginTransactionRecord: _no_change,
    EndTransactionRecord: _no_change,
    AbortTransactionRecord: _no_change,
    RemoveDelegationTokenRecord: _remove_token,
    RegisterControllerRecord: _register_controller,
    UnregisterControllerRecord: _unregister_controller,
    ClearElrRecord: _clear_elr,
}
"""Record class -> its effect. Contains every class of protocol.metadata once."""


class TouchedTopics:
    """Topics and partitions that a sequence of records may have changed.

    any_topic: whether any other topic may have changed, too.
    """

    __slots__ = ("any_topic", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[bytes, set[int]] = {}
        self.any_topic = False

    def add(self, record: Any) -> None:
        kind = type(record)
        if kind in _IN_A_ROW:
            partitions = self.partitions.get(record.topic_id)
            if partitions is None:
                partitions = self.partitions[record.topic_id] = set()
            partitions.add(record.partition_id)
        elif kind is TopicRecord or kind is RemoveTopicRecord:
            self.partitions.setdefault(record.topic_id, set())
        elif kind is ClearElrRecord:
            self.any_topic = True

    def merge(self, other: TouchedTopics) -> None:
        for topic_id, partitions in other.partitions.items():
            self.partitions.setdefault(topic_id, set()).update(partitions)
        self.any_topic |= other.any_topic


class Replayer:
    """Replay of a log that shows only complete metadata transactions.

    image: the visible image, at the end of the last batch, or while a transaction is open, just
    before it began. touched: topics that visible records since `take_touched` may have changed, so
    that a delta does not have to compare all topics.
    """

    __slots__ = ("_growing", "_hidden", "_hidden_touched", "_touched", "image")

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._touched = TouchedTopics()
        self._hidden: MetadataImage | None = None
        self._hidden_touched = TouchedTopics()
        self._growing: GrowingImage | None = None

    @property
    def in_transaction(self) -> bool:
        return self._hidden is not None

    def take_touched(self) -> TouchedTopics:
        """Return the topics touched since the last call; call it once per published delta."""
        taken, self._touched = self._touched, TouchedTopics()
        return taken

    def apply_batch(
        self, records: Iterable[Any], *, base_offset: int, epoch: int, timestamp_ms: int
    ) -> MetadataImage:
        """Replay one batch of the log and return the visible image after it.

        Raises:
            ReplayError: with the offending record and its offset in the message.
        """
        offset = base_offset
        for record in records:
            try:
                if type(record) is BeginTransactionRecord and offset > base_offset:
                    self._finish()
                    before = Provenance(offset - 1, epoch, timestamp_ms, batch_aligned=False)
                    self.image = self.image.at(before) if self._hidden is None else self.image
                self._apply(record)
            except ReplayError as error:
                raise ReplayError(
                    f"cannot replay the metadata record at offset {offset} epoch "
                    f"{epoch}: {error}; record: {described(record)}"
                ) from error
            offset += 1
        self._finish()
        if self._hidden is None:
            self.image = self.image.at(Provenance(offset - 1, epoch, timestamp_ms))
        return self.image

    def adopt(self, image: MetadataImage, records: Iterable[Any]) -> None:
        """Take over `image`, the known result of replaying a batch, with no transaction open after
        it."""
        for record in records:
            self._touched.add(record)
        self.image = image
        self._hidden = None
        self._hidden_touched = TouchedTopics()

    def skip(self, provenance: Provenance) -> None:
        """Skip a batch without metadata records: only the provenance advances."""
        if self._hidden is None:
            self.image = self.image.at(provenance)

    def _apply(self, record: Any) -> None:
        kind = type(record)
        if kind in _TRANSACTION_MARKERS:
            self._finish()
            _TRANSACTION_MARKERS[kind](self)
            return
        if self._growing is None:
            self._growing = GrowingImage(self.image if self._hidden is None else self._hidden)
        self._growing.add(record)
        (self._touched if self._hidden is None else self._hidden_touched).add(record)

    def _finish(self) -> None:
        """Publish the records since the batch began or since the last marker to their image."""
        if self._growing is None:
            return
        if self._hidden is None:
            self.image = self._growing.finish()
        else:
            self._hidden = self._growing.finish()
        self._growing = None

    def _begin(self) -> None:
        if self._hidden is not None:
            raise ReplayError("a metadata transaction begins inside another")
        self._hidden = self.image

    def _end(self) -> None:
        if self._hidden is None:
            raise ReplayError("end of a metadata transaction that did not begin")
        self.image, self._hidden = self._hidden, None
        self._touched.merge(self._hidden_touched)
        self._hidden_touched = TouchedTopics()

    def _abort(self) -> None:
        if self._hidden is None:
            raise ReplayError("abort of a metadata transaction that did not begin")
        self._hidden = None
        self._hidden_touched = TouchedTopics()


_TRANSACTION_MARKERS: Mapping[type[Any], Callable[[Replayer], None]] = {
    BeginTransactionRecord: Replayer._begin,
    EndTransactionRecord: Replayer._end,
    AbortTransactionRecord: Replayer._abort,
}
