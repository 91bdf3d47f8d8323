"""Conversion of a metadata image to snapshot records and back.

The records of a snapshot, replayed on an empty image, give the image again. Each record has the
version that the image's `metadata.version` allows, so that every node of the cluster can read it.
The order is that of Kafka's snapshots. Features come first, since they determine how to read the
rest, and a topic precedes its partitions. Each part is sorted by key, so equal images give equal
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from metalog.image.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    DELEGATION_TOKEN_LEVEL,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    SCRAM_LEVEL,
    record_version,
)
from metalog.image.local_log import LocalLogTable
from metalog.image.replay import replay_all
from metalog.image.values import (
    EMPTY_IMAGE,
    BrokerImage,
    ControllerImage,
    MetadataImage,
    PartitionImage,
    Provenance,
    UnknownTags,
)
from protocol.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from protocol.schema import parse_versions

_FIRST_LEVEL: Mapping[str, int] = {
    UserScramCredentialRecord.__name__: SCRAM_LEVEL,
    DelegationTokenRecord.__name__: DELEGATION_TOKEN_LEVEL,
    RegisterControllerRecord.__name__: CONTROLLER_REGISTRATION_LEVEL,
}
"""Record types with the first `metadata.version` level at which nodes can read them."""

VersionedRecord: TypeAlias = tuple[Any, int]
"""A metadata record and the version in which it is written."""


def image_to_records(
    image: MetadataImage, on_loss: Callable[[str], None] | None = None
) -> Iterator[VersionedRecord]:
    """Yield the records whose replay on an empty image gives `image` (except for its provenance).

    Args:
        on_loss: called with a text for each record or field that the image's `metadata.version`
            does
            not support, for example after a downgrade. It is left out.
    """
    level = image.metadata_version or MINIMUM_METADATA_VERSION.level
    for record in _records(image):
        name = type(record).__name__
        if level < _FIRST_LEVEL.get(name, 0):
            if on_loss is not None:
                on_loss(f"{name} needs metadata.version {_FIRST_LEVEL[name]} or later, not {level}")
            continue
        version = record_version(name, level)
        yield fit_record(record, version, on_loss), version


def fit_record(record: Any, version: int, on_loss: Callable[[str], None] | None = None) -> Any:
    """Return `record`, or a copy of it without the fields that `version` does not have."""
    if version == type(record).VERSIONS.last:
        return record
    dropped: dict[str, Any] = {}
    for field in record.FIELDS:
        if version not in parse_versions(field.versions):
            default = field.fresh_default(type(record))
            if getattr(record, field.name) != default:
                dropped[field.name] = default
    if not dropped:
        return record
    if on_loss is not None:
        on_loss(f"{type(record).__name__} version {version} cannot contain {sorted(dropped)}")
    return record.replace(**dropped)


def image_from_records(
    records: Iterable[Any], provenance: Provenance = EMPTY_IMAGE.provenance
) -> MetadataImage:
    """Return the image that a snapshot's records describe. Raises ReplayError."""
    return replay_all(EMPTY_IMAGE, records).at(provenance)


def _records(image: MetadataImage) -> Iterator[Any]:
    yield from _features(image)
    for _, broker in sorted(image.cluster.brokers.items()):
        yield _broker(broker)
    for _, controller in sorted(image.cluster.controllers.items()):
        yield _controller(controller)
    yield from _topics(image)
    for (resource_type, resource_name), values in sorted(image.configs.items(), key=_first):
        for name, value in sorted(values.items()):
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    yield from _client_quotas(image)
    if image.next_producer_id >= 0:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    yield from _security(image)


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _features(image: MetadataImage) -> Iterator[FeatureLevelRecord]:
    level = image.metadata_version
    if level is not None:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    for name, feature_level in sorted(image.features.items()):
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=feature_level)


def _tags(tags: UnknownTags) -> dict[int, bytes] | None:
    return dict(tags) or None


def _broker(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in broker.endpoints
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=list(broker.cordoned_directories) or None,
        unknown_tags=_tags(broker.unknown_tags),
    )


def _controller(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in controller.endpoints
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in sorted(controller.features.items())
        ],
        unknown_tags=_tags(controller.unknown_tags),
    )


def _topics(image: MetadataImage) -> Iterator[TopicRecord | PartitionRecord]:
    for topic_id, topic in sorted(image.topics.by_id.items(), key=_first):
        yield TopicRecord(name=topic.name, topic_id=topic_id)
        for index, partition in sorted(topic.partitions.items(), key=_first):
            yield partition_record(topic_id, index, partition)


def _none_if_empty(values: Sequence[int]) -> list[int] | None:
    return list(values) or None


def partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    """Return the record with the complete state of a partition."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=_none_if_empty(partition.elr),
        last_known_elr=_none_if_empty(partition.last_known_elr),
        local_logs=local_log_entries(PartitionRecord, partition.local_logs) or None,
        unknown_tags=_tags(partition.unknown_tags),
    )


def local_log_entries(
    record: type[PartitionRecord | PartitionChangeRecord], table: LocalLogTable
) -> list[Any]:
    """Return a table of local logs as the entries of this record class."""
    entry = record.ReplicaLocalLog
    return [
        entry(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            start_timestamp=start_ms,
            size_bytes=size,
            reported_ms=reported_ms,
        )
        for (broker_id, broker_epoch), start_ms, size, reported_ms in table.rows
    ]


def _client_quotas(image: MetadataImage) -> Iterator[ClientQuotaRecord]:
    for entity, values in sorted(image.client_quotas.items(), key=lambda item: repr(item[0])):
        for key, value in sorted(values.items()):
            yield ClientQuotaRecord(
                entity=[
                    ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                key=key,
                value=value,
                remove=False,
            )


def _security(image: MetadataImage) -> Iterator[Any]:
    for acl_id, acl in sorted(image.acls.items(), key=_first):
        yield AccessControlEntryRecord(
            id=acl_id,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
    for (mechanism, name), credential in sorted(image.scram.items(), key=_first):
        yield UserScramCredentialRecord(
            name=name,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    for token_id, token in sorted(image.delegation_tokens.items(), key=_first):
        yield DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp_ms,
            max_timestamp=token.max_timestamp_ms,
            expiration_timestamp=token.expiration_timestamp_ms,
            token_id=token_id,
        )
