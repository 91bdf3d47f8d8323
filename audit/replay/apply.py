"""Effects of each kind of record on the audit's state, but for the short way of partition changes.

Deliberately not `metalog.image.replay`: see `audit.state.cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from audit.checks.base import BrokerChange
from audit.decoding.records import delta_of
from audit.state.cluster import (
    BROKER_RESOURCE,
    ELR_FEATURE,
    MIN_ISR,
    TOPIC_RESOURCE,
    Broker,
    Topic,
    World,
    partition_key,
)
from audit.state.elections import BrokerEvent
from audit.state.shapes import ShapeKey
from protocol.ids import uuid_to_text
from protocol.json_form import to_json
from protocol.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
)

if TYPE_CHECKING:
    from audit.replay.replay import Replay

BROKER_RECORD_TYPES = frozenset(
    cls.RECORD_TYPE
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        BrokerRegistrationChangeRecord,
    )
)


class Orphan(Exception):
    """A record about something that the records before it did not make."""


def apply(replay: Replay, record: Any) -> None:
    """Change the replay's world. Raises `Orphan`."""
    handler = _APPLY.get(type(record).__name__)
    if handler is not None:
        handler(replay, record)


def shape_of(record: PartitionRecord) -> ShapeKey:
    return ShapeKey(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known=tuple(record.last_known_elr or ()),
        leader=record.leader,
        recovery=record.leader_recovery_state,
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
        directories=tuple(record.directories),
    )


def topic_without_name(world: World, topic_id: bytes) -> Topic:
    """Stands in for a topic whose record is missing from the log."""
    name = f"id:{uuid_to_text(topic_id)}"
    topic = Topic(topic_id, name, world.min_isr_of(name))
    world.topics[topic_id] = world.names[name] = topic
    return topic


# --- topics --------------------------------------------------------------------------------------


def _topic(replay: Replay, record: TopicRecord) -> None:
    world = replay.world
    if record.topic_id in world.topics or record.name in world.names:
        raise Orphan(f"topic {record.name!r} exists already")
    topic = Topic(record.topic_id, record.name, world.min_isr_of(record.name))
    world.topics[record.topic_id] = world.names[record.name] = topic


def _remove_topic(replay: Replay, record: RemoveTopicRecord) -> None:
    world = replay.world
    topic = world.topics.pop(record.topic_id, None)
    if topic is None:
        raise Orphan("a topic is removed that does not exist")
    world.names.pop(topic.name, None)
    world.configs.pop((TOPIC_RESOURCE, topic.name), None)
    for partition in topic.partitions.values():
        replay.remove_partition(partition)
        del world.partitions[partition_key(partition.index, topic.id)]


def _partition(replay: Replay, record: PartitionRecord) -> None:
    replay.add_partition(record)


def _change(replay: Replay, record: PartitionChangeRecord) -> None:
    key = partition_key(record.partition_id, record.topic_id)
    replay.change_uncertain(key, record.topic_id, record.partition_id, delta_of(record))


def _clear_elr(replay: Replay, record: ClearElrRecord) -> None:
    world = replay.world
    topics = list(world.topics.values())
    if record.topic_name:
        topic = world.names.get(record.topic_name)
        if topic is None:
            raise Orphan(f"the ELR of a topic {record.topic_name!r} is cleared")
        topics = [topic]
    for topic in topics:
        for partition in topic.partitions.values():
            key = partition.shape.key
            if key.elr or key.last_known:
                partition.partition_epoch += 1
                replay.reshape(partition, key._replace(elr=(), last_known=()), topic.min_isr)
                partition.offset = replay.offset


# --- brokers -------------------------------------------------------------------------------------


def broker_event(value: bytes) -> tuple[int, BrokerEvent] | None:
    """The broker that a framed record is about and what it does to it."""
    record: Any = decode_record(value)[0]
    if isinstance(record, FenceBrokerRecord | UnfenceBrokerRecord):
        fenced = isinstance(record, FenceBrokerRecord)
        return record.id, BrokerEvent.FENCED if fenced else BrokerEvent.UNFENCED
    if isinstance(record, RegisterBrokerRecord):
        return record.broker_id, BrokerEvent.REGISTERED
    if isinstance(record, UnregisterBrokerRecord):
        return record.broker_id, BrokerEvent.UNREGISTERED
    event = _what_changed(record)
    return None if event is None else (record.broker_id, event)


def _what_changed(record: BrokerRegistrationChangeRecord) -> BrokerEvent | None:
    if record.in_controlled_shutdown:
        return BrokerEvent.CONTROLLED_SHUTDOWN
    if record.fenced:
        return BrokerEvent.FENCED if record.fenced > 0 else BrokerEvent.UNFENCED
    return BrokerEvent.DIRECTORY_FAILED if record.log_dirs else None


def _register(replay: Replay, record: RegisterBrokerRecord) -> None:
    fields = to_json(record, type(record).VERSIONS.last)
    after = Broker(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation=uuid_to_text(record.incarnation_id),
        rack=record.rack,
        fenced=record.fenced,
        shutting_down=record.in_controlled_shutdown,
        directories=tuple(map(uuid_to_text, record.log_dirs)),
        cordoned=tuple(map(uuid_to_text, record.cordoned_log_dirs or ())),
        listeners=tuple(f"{e['name']}://{e['host']}:{e['port']}" for e in fields["endPoints"]),
    )
    _set_broker(replay, record.broker_id, after, BrokerEvent.REGISTERED, record.broker_epoch)


def _unregister(replay: Replay, record: UnregisterBrokerRecord) -> None:
    broker_id, event = record.broker_id, BrokerEvent.UNREGISTERED
    _known(replay, broker_id, event)
    _set_broker(replay, broker_id, None, event, record.broker_epoch)


def _fence(replay: Replay, record: FenceBrokerRecord) -> None:
    before = _known(replay, record.id, BrokerEvent.FENCED)
    if before is not None:
        after = before._replace(fenced=True)
        _set_broker(replay, record.id, after, BrokerEvent.FENCED, record.epoch)


def _unfence(replay: Replay, record: UnfenceBrokerRecord) -> None:
    before = _known(replay, record.id, BrokerEvent.UNFENCED)
    if before is not None:
        after = before._replace(fenced=False)
        _set_broker(replay, record.id, after, BrokerEvent.UNFENCED, record.epoch)


def _change_broker(replay: Replay, record: BrokerRegistrationChangeRecord) -> None:
    event = _what_changed(record) or BrokerEvent.REGISTERED
    before = _known(replay, record.broker_id, event)
    if before is None:
        return
    after = before
    if record.fenced:
        after = after._replace(fenced=record.fenced > 0)
    if record.in_controlled_shutdown:
        after = after._replace(shutting_down=True)
    if record.log_dirs:
        after = after._replace(directories=tuple(map(uuid_to_text, record.log_dirs)))
    if record.cordoned_log_dirs is not None:
        after = after._replace(cordoned=tuple(map(uuid_to_text, record.cordoned_log_dirs)))
    if _what_changed(record) is not None:
        _set_broker(replay, record.broker_id, after, event, record.broker_epoch)
    else:
        replay.world.brokers[record.broker_id] = after


def _known(replay: Replay, broker_id: int, event: BrokerEvent) -> Broker | None:
    """The broker, None after a hole in the log that may hide it."""
    broker = replay.world.brokers.get(broker_id)
    if broker is None and not replay.in_doubt:
        raise Orphan(f"broker {broker_id} is {event}, but it is not registered")
    return broker


def _set_broker(
    replay: Replay, broker_id: int, after: Broker | None, event: BrokerEvent, epoch: int
) -> None:
    brokers = replay.world.brokers
    before = brokers.get(broker_id)
    if after is None:
        brokers.pop(broker_id, None)
    else:
        brokers[broker_id] = after
    if replay.shard == 0 and not replay.loading:
        replay.tell("broker", _broker_row(broker_id, event, before, after, epoch))
    replay.broker_changed(BrokerChange(broker_id, event, before, after, epoch))


def _broker_row(
    broker_id: int, event: BrokerEvent, before: Broker | None, after: Broker | None, epoch: int
) -> dict[str, Any]:
    step: str = event
    if event is BrokerEvent.FENCED and before is not None:
        step = "stopped" if before.shutting_down else "lost"
    row = {"broker": broker_id, "event": step, "epoch": epoch}
    if after is not None:
        row |= {"rack": after.rack, "fenced": after.fenced, "shutting_down": after.shutting_down}
        if event is BrokerEvent.REGISTERED:
            row |= {"incarnation": after.incarnation, "listeners": list(after.listeners)}
    return row


# --- settings ------------------------------------------------------------------------------------


def _feature(replay: Replay, record: FeatureLevelRecord) -> None:
    world = replay.world
    before = world.features.get(record.name, 0)
    if record.feature_level:
        world.features[record.name] = record.feature_level
    else:
        world.features.pop(record.name, None)
    if record.name == ELR_FEATURE:
        world.shapes.forget_transitions()
    _tell_setting(replay, "feature", "", record.name, before, record.feature_level)


def _config(replay: Replay, record: ConfigRecord) -> None:
    key = (record.resource_type, record.resource_name)
    values = replay.world.configs.setdefault(key, {})
    before = values.get(record.name)
    if record.value is None:
        values.pop(record.name, None)
        if not values:
            del replay.world.configs[key]
    else:
        values[record.name] = record.value
    if record.name == MIN_ISR:
        _min_isr_changed(replay, record)
    kind = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker"}.get(
        record.resource_type, f"resource {record.resource_type}"
    )
    _tell_setting(replay, kind, record.resource_name, record.name, before, record.value)


def _tell_setting(
    replay: Replay, kind: str, resource: str, name: str, before: Any, after: Any
) -> None:
    if replay.shard == 0 and not replay.loading:
        row = {"kind": kind, "resource": resource, "name": name, "before": before, "after": after}
        replay.tell("setting", row)


def _min_isr_changed(replay: Replay, record: ConfigRecord) -> None:
    world = replay.world
    topics = list(world.topics.values())
    if record.resource_type == TOPIC_RESOURCE:
        topics = [world.names[record.resource_name]] if record.resource_name in world.names else []
    for topic in topics:
        wanted = world.min_isr_of(topic.name)
        if wanted != topic.min_isr:
            topic.min_isr = wanted
            for partition in topic.partitions.values():
                replay.reshape(partition, partition.shape.key, wanted)


# --- the rest: kept as they are, to compare with snapshots ----------------------------------------

_ENTITY_KEYS: Mapping[str, tuple[str, ...]] = {
    "AccessControlEntryRecord": ("id",),
    "UserScramCredentialRecord": ("mechanism", "name"),
    "DelegationTokenRecord": ("token_id",),
    "ClientQuotaRecord": ("entity", "key"),
    "RegisterControllerRecord": ("controller_id",),
    "ProducerIdsRecord": (),
}
_REMOVERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "RemoveAccessControlEntryRecord": ("AccessControlEntryRecord", ("id",)),
    "RemoveUserScramCredentialRecord": ("UserScramCredentialRecord", ("mechanism", "name")),
    "RemoveDelegationTokenRecord": ("DelegationTokenRecord", ("token_id",)),
}


def _entity_key(name: str, record: Any, fields: tuple[str, ...]) -> tuple[str, ...]:
    parts = [name]
    for field in fields:
        value = getattr(record, field)
        if field == "entity":
            value = sorted((e.entity_type, e.entity_name or "") for e in value)
        parts.append(repr(value))
    return tuple(parts)


def _entity(replay: Replay, record: Any) -> None:
    name = type(record).__name__
    key = _entity_key(name, record, _ENTITY_KEYS[name])
    fields = to_json(record, type(record).VERSIONS.last)
    entities = replay.world.entities
    if name == "ProducerIdsRecord":
        fields = {"nextProducerId": fields["nextProducerId"]}
    if fields.pop("remove", False):
        entities.pop(key, None)
    else:
        entities[key] = fields
    if isinstance(record, RegisterControllerRecord) and replay.shard == 0 and not replay.loading:
        replay.tell("controller", {"controller": record.controller_id})


def _remove_entity(replay: Replay, record: Any) -> None:
    name, fields = _REMOVERS[type(record).__name__]
    if replay.world.entities.pop(_entity_key(name, record, fields), None) is None:
        raise Orphan(f"a {name} is removed that does not exist")


_APPLY: Mapping[str, Callable[[Any, Any], None]] = {
    "TopicRecord": _topic,
    "RemoveTopicRecord": _remove_topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _change,
    "ClearElrRecord": _clear_elr,
    "RegisterBrokerRecord": _register,
    "UnregisterBrokerRecord": _unregister,
    "FenceBrokerRecord": _fence,
    "UnfenceBrokerRecord": _unfence,
    "BrokerRegistrationChangeRecord": _change_broker,
    "FeatureLevelRecord": _feature,
    "ConfigRecord": _config,
    **dict.fromkeys(_ENTITY_KEYS, _entity),
    **dict.fromkeys(_REMOVERS, _remove_entity),
}
