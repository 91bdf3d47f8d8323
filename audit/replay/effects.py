"""Effects of metadata records on the audit's state, by type of record.

It is deliberately not `metalog.image.replay`: see `audit.state.cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from audit.replay.brokers import Brokers
from audit.replay.partitions import Partitions
from audit.replay.reports import Reports
from audit.replay.scope import Orphan, Scope
from audit.state.cluster import (
    BROKER_RESOURCE,
    ELR_FEATURE,
    MIN_ISR,
    TOPIC_RESOURCE,
    ClusterState,
    TopicState,
)
from protocol.json_form import to_json
from protocol.metadata import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

_ENTITY_KEYS: Mapping[str, tuple[str, ...]] = {
    "AccessControlEntryRecord": ("id",),
    "UserScramCredentialRecord": ("mechanism", "name"),
    "DelegationTokenRecord": ("token_id",),
    "ClientQuotaRecord": ("entity", "key"),
    "RegisterControllerRecord": ("controller_id",),
    "ProducerIdsRecord": (),
}
"""Records that are stored unchanged, to compare them with snapshots; the fields identify one."""
_REMOVERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "RemoveAccessControlEntryRecord": ("AccessControlEntryRecord", ("id",)),
    "RemoveUserScramCredentialRecord": ("UserScramCredentialRecord", ("mechanism", "name")),
    "RemoveDelegationTokenRecord": ("DelegationTokenRecord", ("token_id",)),
    "UnregisterControllerRecord": ("RegisterControllerRecord", ("controller_id",)),
}


class Effects:
    """Applies all records except changes of partitions whose state is certain."""

    def __init__(
        self,
        cluster: ClusterState,
        scope: Scope,
        reports: Reports,
        brokers: Brokers,
        partitions: Partitions,
    ) -> None:
        self._cluster = cluster
        self._scope = scope
        self._reports = reports
        self._partitions = partitions
        self._by_type: Mapping[str, Callable[[Any], None]] = {
            "TopicRecord": self._topic,
            "RemoveTopicRecord": self._remove_topic,
            "PartitionRecord": partitions.add,
            "PartitionChangeRecord": partitions.change_uncertain,
            "ClearElrRecord": self._clear_elr,
            "RegisterBrokerRecord": brokers.register,
            "UnregisterBrokerRecord": brokers.unregister,
            "FenceBrokerRecord": brokers.fence,
            "UnfenceBrokerRecord": brokers.unfence,
            "BrokerRegistrationChangeRecord": brokers.change,
            "FeatureLevelRecord": self._feature,
            "ConfigRecord": self._config,
            **dict.fromkeys(_ENTITY_KEYS, self._entity),
            **dict.fromkeys(_REMOVERS, self._remove_entity),
        }

    def apply(self, record: Any) -> None:
        """Apply a record to the cluster's state. Raises Orphan."""
        effect = self._by_type.get(type(record).__name__)
        if effect is not None:
            effect(record)

    # --- topics --------------------------------------------------------------------------------

    def _topic(self, record: TopicRecord) -> None:
        cluster = self._cluster
        if record.topic_id in cluster.topics or record.name in cluster.names:
            raise Orphan(f"topic {record.name!r} exists already")
        topic = TopicState(record.topic_id, record.name, cluster.min_isr_of(record.name))
        cluster.topics[record.topic_id] = cluster.names[record.name] = topic

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        cluster = self._cluster
        topic = cluster.topics.pop(record.topic_id, None)
        if topic is None:
            raise Orphan("a topic is removed that does not exist")
        cluster.names.pop(topic.name, None)
        cluster.configs.pop((TOPIC_RESOURCE, topic.name), None)
        for partition in topic.partitions.values():
            self._partitions.remove(partition)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        cluster = self._cluster
        topics = list(cluster.topics.values())
        if record.topic_name:
            topic = cluster.names.get(record.topic_name)
            if topic is None:
                raise Orphan(f"the ELR of a topic {record.topic_name!r} is cleared")
            topics = [topic]
        for topic in topics:
            for partition in topic.partitions.values():
                self._partitions.clear_elr(partition)

    # --- settings ------------------------------------------------------------------------------

    def _feature(self, record: FeatureLevelRecord) -> None:
        cluster = self._cluster
        before = cluster.features.get(record.name, 0)
        cluster.set_feature(record.name, record.feature_level)
        if record.name == ELR_FEATURE:
            cluster.shapes.forget_transitions()
        self._report_setting("feature", "", record.name, before, record.feature_level)

    def _config(self, record: ConfigRecord) -> None:
        configs = self._cluster.configs
        key = (record.resource_type, record.resource_name)
        values = configs.setdefault(key, {})
        before = values.get(record.name)
        if record.value is None:
            values.pop(record.name, None)
            if not values:
                del configs[key]
        else:
            values[record.name] = record.value
        if record.name == MIN_ISR:
            self._min_isr_changed(record)
        kind = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker"}.get(
            record.resource_type, f"resource {record.resource_type}"
        )
        self._report_setting(kind, record.resource_name, record.name, before, record.value)

    def _min_isr_changed(self, record: ConfigRecord) -> None:
        cluster = self._cluster
        topics = list(cluster.topics.values())
        if record.resource_type == TOPIC_RESOURCE:
            named = cluster.names.get(record.resource_name)
            topics = [] if named is None else [named]
        for topic in topics:
            min_isr = cluster.min_isr_of(topic.name)
            if min_isr != topic.min_isr:
                self._partitions.set_min_isr(topic, min_isr)

    def _report_setting(self, kind: str, resource: str, name: str, before: Any, after: Any) -> None:
        if self._scope.reports_cluster:
            row = {
                "kind": kind,
                "resource": resource,
                "name": name,
                "before": before,
                "after": after,
            }
            self._reports.event("setting", row)

    # --- records stored unchanged -----------------------------------------------------------------

    def _entity(self, record: Any) -> None:
        name = type(record).__name__
        key = _entity_key(name, record, _ENTITY_KEYS[name])
        fields = to_json(record, type(record).VERSIONS.last)
        entities = self._cluster.entities
        if name == "ProducerIdsRecord":
            fields = {"nextProducerId": fields["nextProducerId"]}
        if fields.pop("remove", False):
            entities.pop(key, None)
        else:
            entities[key] = fields
        if isinstance(record, RegisterControllerRecord) and self._scope.reports_cluster:
            self._reports.event("controller", {"controller": record.controller_id})

    def _remove_entity(self, record: Any) -> None:
        name, fields = _REMOVERS[type(record).__name__]
        if self._cluster.entities.pop(_entity_key(name, record, fields), None) is None:
            raise Orphan(f"a {name} is removed that does not exist")


def _entity_key(name: str, record: Any, fields: tuple[str, ...]) -> tuple[str, ...]:
    parts = [name]
    for field in fields:
        value = getattr(record, field)
        if field == "entity":
            value = sorted((e.entity_type, e.entity_name or "") for e in value)
        parts.append(repr(value))
    return tuple(parts)
