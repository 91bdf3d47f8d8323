"""Random but valid metadata records: each can follow the image of those before it.

A test draws a list of small number tuples; `valid_records` turns each into a record that fits the
image at that point, so every list shrinks to a shorter valid one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

from metalog.image.features import CONTROLLER_UNREGISTRATION_LEVEL
from metalog.image.local_log import LocalLogTable
from metalog.image.replay import replay
from metalog.image.snapshot import local_log_entries
from metalog.image.values import EMPTY_IMAGE, BrokerImage, MetadataImage, TopicImage
from protocol import metadata as m

Op: TypeAlias = tuple[int, int, int, int]
Make: TypeAlias = Callable[[MetadataImage, int, int, int], Any]

ops = st.lists(
    st.tuples(st.integers(0, 63), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    max_size=60,
)


def uid(kind: int, n: int) -> bytes:
    return bytes([kind, n]) + bytes(13) + b"\x07"


def valid_records(drawn: Sequence[Op], *, level: int = 33) -> list[Any]:
    """Return one record for each op that yields one, after the record that sets the metadata
    version."""
    records: list[Any] = [m.FeatureLevelRecord(name="metadata.version", feature_level=level)]
    image = replay(EMPTY_IMAGE, records[0])
    makers = _MAKERS if level < CONTROLLER_UNREGISTRATION_LEVEL else _MAKERS_WITH_UNREGISTRATION
    for kind, a, b, c in drawn:
        record = makers[kind % len(makers)](image, a, b, c)
        if record is not None:
            records.append(record)
            image = replay(image, record)
    return records


def _pick(values: Iterable[Any], n: int) -> Any:
    ordered = sorted(values)
    return ordered[n % len(ordered)] if ordered else None


def _broker(image: MetadataImage, n: int) -> BrokerImage | None:
    key = _pick(image.cluster.brokers, n)
    return None if key is None else image.cluster.brokers[key]


def _topic(image: MetadataImage, n: int) -> TopicImage | None:
    key = _pick(image.topics.by_id, n)
    return None if key is None else image.topics.by_id[key]


def _register_broker(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.RegisterBrokerRecord(
        broker_id=a,
        incarnation_id=uid(1, b),
        broker_epoch=10 * b + c,
        end_points=[
            m.RegisterBrokerRecord.BrokerEndpoint(
                name=f"L{i}", host=f"h{a}", port=9000 + i, security_protocol=i
            )
            for i in range(b)
        ],
        features=[
            m.RegisterBrokerRecord.BrokerFeature(
                name="metadata.version", min_supported_version=7, max_supported_version=30
            )
        ][:c],
        rack=[None, "", "r1", "r2"][c],
        fenced=b % 2 == 0,
        in_controlled_shutdown=b == 3,
        log_dirs=[uid(9, i) for i in range(c)],
        cordoned_log_dirs=[uid(9, 0)] if c == 2 else None,
        unknown_tags={77: b"later"} if b == 2 and c == 2 else None,
    )


def _unregister_broker(image: MetadataImage, a: int, b: int, c: int) -> Any:
    broker = _broker(image, a)
    if broker is None or b:
        return None
    return m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)


def _unregister_controller(image: MetadataImage, a: int, b: int, c: int) -> Any:
    key = _pick(image.cluster.controllers, a)
    return None if key is None or b else m.UnregisterControllerRecord(controller_id=key)


def _fence(image: MetadataImage, a: int, b: int, c: int) -> Any:
    broker = _broker(image, a)
    record = m.FenceBrokerRecord if b % 2 else m.UnfenceBrokerRecord
    return None if broker is None else record(id=broker.id, epoch=broker.epoch)


def _change_broker(image: MetadataImage, a: int, b: int, c: int) -> Any:
    broker = _broker(image, a)
    if broker is None:
        return None
    return m.BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=b % 3 - 1,
        in_controlled_shutdown=c % 2,
        log_dirs=[uid(9, i) for i in range(b)],
        cordoned_log_dirs=[None, [], [uid(9, 1)], [uid(9, 2)]][c],
    )


def _controller(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.RegisterControllerRecord(
        controller_id=3000 + a,
        incarnation_id=uid(2, b),
        zk_migration_ready=c == 3,
        end_points=[
            m.RegisterControllerRecord.ControllerEndpoint(
                name="CONTROLLER", host="h", port=9093, security_protocol=0
            )
        ][:b],
        features=[
            m.RegisterControllerRecord.ControllerFeature(
                name="kraft.version", min_supported_version=0, max_supported_version=1
            )
        ][:c],
    )


def _create_topic(image: MetadataImage, a: int, b: int, c: int) -> Any:
    name, topic_id = f"t{a}", uid(3, 4 * b + c)
    if name in image.topics.by_name or topic_id in image.topics.by_id:
        return None
    return m.TopicRecord(name=name, topic_id=topic_id)


def _remove_topic(image: MetadataImage, a: int, b: int, c: int) -> Any:
    topic = _topic(image, a)
    return None if topic is None or b else m.RemoveTopicRecord(topic_id=topic.id)


def _partition(image: MetadataImage, a: int, b: int, c: int) -> Any:
    topic = _topic(image, a)
    if topic is None:
        return None
    replicas = [(c + i) % 4 for i in range(1 + b % 3)]
    return m.PartitionRecord(
        partition_id=b,
        topic_id=topic.id,
        replicas=replicas,
        isr=replicas[: 1 + c],
        removing_replicas=replicas[:c],
        adding_replicas=replicas[1:],
        leader=replicas[0] if c else -1,
        leader_recovery_state=int(c == 3),
        leader_epoch=b,
        partition_epoch=b + c,
        directories=[uid(4, r) for r in replicas] if a != 3 else [],
        eligible_leader_replicas=[None, [], [1], [2, 3]][c],
        last_known_elr=[None, [1], [], [2]][b],
        local_logs=local_log_entries(m.PartitionRecord, _local_logs(a, b)) if c else None,
        unknown_tags={99: b"x"} if b == c == 1 else None,
    )


def _local_logs(a: int, b: int) -> LocalLogTable:
    return LocalLogTable.of(((r, a + r), b - 1, a * b, a) for r in range(b))


def _change_partition(image: MetadataImage, a: int, b: int, c: int) -> Any:
    topic = _topic(image, a)
    if topic is None or not topic.partitions:
        return None
    index = _pick(topic.partitions, b)
    before = topic.partitions[index]
    record = m.PartitionChangeRecord(partition_id=index, topic_id=topic.id)
    record.isr = None if c == 0 else list(before.replicas[:c])
    record.leader = (-2, -1, 1, 2)[b]
    record.leader_recovery_state = (-1, 0, 1, -1)[c]
    record.eligible_leader_replicas = (None, [], [1], [2])[b]
    record.last_known_elr = (None, [3], [], [1])[c]
    if a % 2:
        record.local_logs = local_log_entries(m.PartitionChangeRecord, _local_logs(a, c))
    if b == 3:
        record.replicas = [3, 2]
        record.directories = [uid(5, 3), uid(5, 2)] if c % 2 else []
    elif b == 2 and c == 2:
        record.directories = [uid(6, i) for i in range(len(before.replicas))]
    if c == 3:
        record.adding_replicas, record.removing_replicas = [2], [1]
        record.unknown_tags = {99: b"y", 98: b"z"}
    return record


def _clear_elr(image: MetadataImage, a: int, b: int, c: int) -> Any:
    topic = _topic(image, a)
    if b == 0:
        return m.ClearElrRecord(topic_name="")
    return None if topic is None else m.ClearElrRecord(topic_name=topic.name)


def _config(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.ConfigRecord(
        resource_type=(2, 4, 16, 32)[a],
        resource_name=f"t{b}" if b else "",
        name=f"k{c % 2}",
        value=None if c == 3 else f"v{c}",
    )


def _feature(image: MetadataImage, a: int, b: int, c: int) -> Any:
    name = ("group.version", "share.version", "transaction.version", "streams.version")[a]
    return m.FeatureLevelRecord(name=name, feature_level=b % 3)


def _quota(image: MetadataImage, a: int, b: int, c: int) -> Any:
    parts = [("user", "u"), ("client-id", None), ("ip", "127.0.0.1"), ("user", None)]
    chosen = dict([parts[a], parts[b]])
    return m.ClientQuotaRecord(
        entity=[
            m.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
            for kind, name in chosen.items()
        ],
        key=("producer_byte_rate", "request_percentage")[c % 2],
        value=1.5 * c,
        remove=c == 3,
    )


def _producer_ids(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.ProducerIdsRecord(broker_id=a, broker_epoch=b, next_producer_id=1000 * c)


def _acl(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.AccessControlEntryRecord(
        id=uid(7, a),
        resource_type=2 + b % 2,
        resource_name=f"t{b}",
        pattern_type=3,
        principal=f"User:{c}",
        host="*",
        operation=2 + c,
        permission_type=2 + b % 2,
    )


def _remove_acl(image: MetadataImage, a: int, b: int, c: int) -> Any:
    key = _pick(image.acls, a)
    return None if key is None else m.RemoveAccessControlEntryRecord(id=key)


def _scram(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.UserScramCredentialRecord(
        name=f"u{a}",
        mechanism=1 + b % 2,
        salt=b"s" * (c + 1),
        stored_key=b"k",
        server_key=b"v",
        iterations=4096 + c,
    )


def _remove_scram(image: MetadataImage, a: int, b: int, c: int) -> Any:
    key = _pick(image.scram, a)
    if key is None:
        return None
    return m.RemoveUserScramCredentialRecord(mechanism=key[0], name=key[1])


def _token(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.DelegationTokenRecord(
        owner=f"User:{a}",
        requester=f"User:{b}",
        renewers=[f"User:{i}" for i in range(c)],
        issue_timestamp=100 + a,
        max_timestamp=200 + b,
        expiration_timestamp=150 + c,
        token_id=f"token{a}",
    )


def _remove_token(image: MetadataImage, a: int, b: int, c: int) -> Any:
    key = _pick(image.delegation_tokens, a)
    return None if key is None else m.RemoveDelegationTokenRecord(token_id=key)


def _nothing(image: MetadataImage, a: int, b: int, c: int) -> Any:
    return m.NoOpRecord() if a % 2 else m.ZkMigrationStateRecord(zk_migration_state=b)


_MAKERS: tuple[Make, ...] = (
    _register_broker,
    _unregister_broker,
    _fence,
    _change_broker,
    _controller,
    _create_topic,
    _create_topic,
    _remove_topic,
    _partition,
    _partition,
    _partition,
    _change_partition,
    _change_partition,
    _change_partition,
    _clear_elr,
    _config,
    _config,
    _feature,
    _quota,
    _producer_ids,
    _acl,
    _remove_acl,
    _scram,
    _remove_scram,
    _token,
    _remove_token,
    _nothing,
)
_MAKERS_WITH_UNREGISTRATION: tuple[Make, ...] = (*_MAKERS, _unregister_controller)
