"""The replay table: complete, exact in its details, and strict about impossible records."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from metalog.image import replay as replay_module
from metalog.image.delta import MetadataDelta
from metalog.image.local_log import LocalLogTable
from metalog.image.replay import (
    REPLAY,
    SECRET_FIELDS,
    Replayer,
    ReplayError,
    described,
    replay,
    replay_all,
)
from metalog.image.values import EMPTY_IMAGE, MetadataImage, PartitionImage, Provenance, TopicImage
from protocol import metadata as m
from protocol.ids import DIRECTORY_MIGRATING
from protocol.varint import decode_uvarint

TOPIC = b"T" * 16
D1, D2, D3 = b"1" * 16, b"2" * 16, b"3" * 16


def with_partition(**fields: Any) -> MetadataImage:
    values: dict[str, Any] = {
        "partition_id": 0,
        "topic_id": TOPIC,
        "replicas": [1, 2, 3],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 3,
        "partition_epoch": 4,
        "directories": [D1, D2, D3],
    }
    return replay_all(
        EMPTY_IMAGE,
        [m.TopicRecord(name="t", topic_id=TOPIC), m.PartitionRecord(**{**values, **fields})],
    )


def changed(image: MetadataImage, **fields: Any) -> PartitionImage:
    record = m.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields)
    partition = replay(image, record).topics.partition(TOPIC, 0)
    assert partition is not None
    return partition


def test_every_record_type_is_in_the_table_once() -> None:
    assert set(REPLAY) == set(m.RECORD_CLASSES.values())
    source = Path(replay.__code__.co_filename).read_text()
    table = next(
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "REPLAY"
    )
    assert isinstance(table, ast.Dict)
    assert len(table.keys) == len(m.RECORD_CLASSES)


def test_a_partition_change_bumps_the_partition_epoch_and_with_a_leader_the_leader_epoch() -> None:
    image = with_partition()
    same = changed(image)
    assert (same.leader, same.leader_epoch, same.partition_epoch) == (1, 3, 5)
    again = changed(image, leader=1)
    assert (again.leader, again.leader_epoch, again.partition_epoch) == (1, 4, 5)
    gone = changed(image, leader=-1, isr=[1])
    assert (gone.leader, gone.leader_epoch, gone.isr) == (-1, 4, (1,))


def test_a_partition_change_keeps_what_it_does_not_name() -> None:
    image = with_partition(eligible_leader_replicas=[3], last_known_elr=[2])
    partition = changed(image, isr=[1, 2, 3])
    assert partition.elr == (3,) and partition.last_known_elr == (2,)
    assert changed(image, eligible_leader_replicas=[]).elr == ()


def test_directories_follow_the_replicas() -> None:
    image = with_partition()
    assert changed(image, directories=[D3, D2, D1]).directories == (D3, D2, D1)
    assert changed(image, replicas=[1, 2], directories=[]).directories == (
        DIRECTORY_MIGRATING,
        DIRECTORY_MIGRATING,
    )
    assert changed(image, replicas=[1, 2, 4]).directories == (D1, D2, D3)
    with pytest.raises(ReplayError, match="3 directories for 2 replicas"):
        changed(image, replicas=[1, 2])
    assert changed(image, replicas=[1], directories=[D1]).directories == (D1,)
    with pytest.raises(ReplayError, match="1 directories for 3 replicas"):
        changed(image, directories=[D1])
    old = with_partition(directories=[])
    assert changed(old).directories == (DIRECTORY_MIGRATING,) * 3
    assert changed(old, replicas=[1, 2]).directories == (DIRECTORY_MIGRATING,) * 2


def test_unknown_tags_of_a_partition_are_kept_and_merged() -> None:
    image = with_partition(unknown_tags={50: b"a", 51: b"b"})
    assert changed(image, unknown_tags={51: b"c"}).unknown_tags == ((50, b"a"), (51, b"c"))


def table(kind: type[m.PartitionRecord | m.PartitionChangeRecord], *brokers: int) -> list[Any]:
    """Return the stats of these brokers; the numbers differ in every field."""
    return [
        kind.ReplicaLocalLog(
            broker_id=b, broker_epoch=b + 10, start_timestamp=b + 20, size_bytes=-1, reported_ms=9
        )
        for b in brokers
    ]


def known(*brokers: int) -> LocalLogTable:
    return LocalLogTable.of(((b, b + 10), b + 20, -1, 9) for b in brokers)


def test_a_change_replaces_the_table_of_local_logs_as_a_whole() -> None:
    image = with_partition(local_logs=table(m.PartitionRecord, 1, 2))
    assert changed(image).local_logs == known(1, 2)
    assert changed(image, local_logs=table(m.PartitionChangeRecord, 3)).local_logs == known(3)
    assert not changed(image, local_logs=[]).local_logs
    # An older node could not drop a row: a record that removes a replica writes the whole table.
    gone = changed(image, replicas=[1], directories=[D1], isr=[1])
    assert gone.local_logs == known(1, 2)


def tags_of(value: bytes, at: int) -> dict[int, bytes]:
    """Return the tagged fields of a framed record that begin at this position."""
    count, pos = decode_uvarint(value, at, "count")
    found = {}
    for _ in range(count):
        tag, pos = decode_uvarint(value, pos, "tag")
        size, pos = decode_uvarint(value, pos, "size")
        found[tag] = value[pos : pos + size]
        pos += size
    return found


@pytest.mark.parametrize("brokers", [(1, 2, 3), ()])
def test_a_node_that_does_not_know_the_table_hands_it_on(brokers: tuple[int, ...]) -> None:
    """The image keeps the unknown tag of a change, and writes it into a snapshot's record."""
    change = m.PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC, local_logs=table(m.PartitionChangeRecord, *brokers)
    )
    payload = tags_of(m.encode_record(change, 2), 3 + 4 + 16)[10002]
    written_back = m.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=[1, 2, 3],
        directories=[D1, D2, D3],
        unknown_tags={10002: payload},
    )
    read, _ = m.decode_record(m.encode_record(written_back, 2))
    assert read.local_logs == table(m.PartitionRecord, *brokers)
    assert not read.unknown_tags
    image = replay_all(EMPTY_IMAGE, [m.TopicRecord(name="t", topic_id=TOPIC), read])
    partition = image.topics.partition(TOPIC, 0)
    assert partition is not None and partition.local_logs == known(*brokers)


def test_removing_a_topic_removes_its_config() -> None:
    image = replay(
        with_partition(),
        m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
    )
    image = replay(image, m.RemoveTopicRecord(topic_id=TOPIC))
    assert not image.configs and not image.topics.by_id and not image.topics.by_name


def test_clear_elr_of_all_topics() -> None:
    image = with_partition(eligible_leader_replicas=[3], last_known_elr=[2])
    partition = replay(image, m.ClearElrRecord(topic_name="")).topics.partition(TOPIC, 0)
    assert partition is not None and (partition.elr, partition.last_known_elr) == ((), ())
    assert partition.partition_epoch == 5


@pytest.mark.parametrize(
    "record",
    [
        m.UnregisterBrokerRecord(broker_id=1),
        m.FenceBrokerRecord(id=1),
        m.UnfenceBrokerRecord(id=1),
        m.BrokerRegistrationChangeRecord(broker_id=1),
        m.PartitionRecord(topic_id=TOPIC),
        m.PartitionChangeRecord(topic_id=TOPIC),
        m.RemoveTopicRecord(topic_id=TOPIC),
        m.ClearElrRecord(topic_name="t"),
        m.RemoveAccessControlEntryRecord(id=TOPIC),
        m.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        m.RemoveDelegationTokenRecord(token_id="x"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_what_does_not_exist_is_refused(record: Any) -> None:
    with pytest.raises(ReplayError):
        replay(EMPTY_IMAGE, record)


def test_an_old_broker_epoch_is_refused() -> None:
    image = replay(EMPTY_IMAGE, m.RegisterBrokerRecord(broker_id=1, broker_epoch=7))
    with pytest.raises(ReplayError, match="the record has epoch 6, the registration 7"):
        replay(image, m.UnfenceBrokerRecord(id=1, epoch=6))


def test_a_failing_record_is_named_with_its_offset() -> None:
    replayer = Replayer()
    with pytest.raises(ReplayError, match=r"offset 11 epoch 2.*FenceBrokerRecord\(id=9"):
        replayer.apply_batch(
            [m.NoOpRecord(), m.FenceBrokerRecord(id=9)], base_offset=10, epoch=2, timestamp_ms=0
        )


@pytest.mark.parametrize(
    "records",
    [
        [m.BeginTransactionRecord(), m.BeginTransactionRecord()],
        [m.EndTransactionRecord()],
        [m.AbortTransactionRecord()],
    ],
)
def test_transaction_markers_out_of_order_are_refused(records: list[Any]) -> None:
    with pytest.raises(ReplayError, match="transaction"):
        Replayer().apply_batch(records, base_offset=0, epoch=0, timestamp_ms=0)


def rows() -> list[Any]:
    """Yield records of two topics' partitions, in rows and interleaved, with other records between
    them."""
    other = b"O" * 16

    def partition(topic_id: bytes, index: int) -> m.PartitionRecord:
        return m.PartitionRecord(
            partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=1
        )

    return [
        m.TopicRecord(name="t", topic_id=TOPIC),
        m.TopicRecord(name="o", topic_id=other),
        *(partition(TOPIC, n) for n in range(5)),
        *(partition(other, n) for n in range(10, 13)),
        partition(TOPIC, 5),
        m.PartitionChangeRecord(partition_id=5, topic_id=TOPIC, leader=2),
        m.PartitionChangeRecord(partition_id=5, topic_id=TOPIC, isr=[2]),
        m.RemoveTopicRecord(topic_id=other),
        m.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2),
        m.ConfigRecord(resource_type=2, resource_name="t", name="k", value="v"),
    ]


def test_records_in_a_row_do_what_each_does_alone() -> None:
    alone = EMPTY_IMAGE
    for record in rows():
        alone = replay(alone, record)
    assert replay_all(EMPTY_IMAGE, rows()) == alone
    replayer = Replayer()
    replayer.apply_batch(rows(), base_offset=0, epoch=0, timestamp_ms=0)
    assert replayer.image.same_cluster(alone)
    assert replayer.take_touched().partitions.keys() == {TOPIC, b"O" * 16}


@pytest.mark.parametrize("ends", [True, False])
def test_a_row_inside_a_transaction_is_seen_when_that_ends(ends: bool) -> None:
    records = rows()
    mark = m.EndTransactionRecord() if ends else m.AbortTransactionRecord()
    batch = [*records[:4], m.BeginTransactionRecord(), *records[4:], mark, m.NoOpRecord()]
    replayer = Replayer()
    replayer.apply_batch(batch, base_offset=0, epoch=0, timestamp_ms=0)
    assert replayer.image.same_cluster(replay_all(EMPTY_IMAGE, records if ends else records[:4]))


def test_a_failing_record_in_a_row_is_named_with_its_offset() -> None:
    batch = [*rows()[:6], m.PartitionChangeRecord(partition_id=77, topic_id=TOPIC)]
    with pytest.raises(ReplayError, match=r"offset 6 .*unknown partition of 't' 77"):
        Replayer().apply_batch(batch, base_offset=0, epoch=0, timestamp_ms=0)


def test_ten_thousand_partitions_in_a_row_change_their_topic_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed: list[str] = []
    with_topic = replay_module._with_topic

    def counted(image: MetadataImage, topic: TopicImage) -> MetadataImage:
        changed.append(topic.name)
        return with_topic(image, topic)

    monkeypatch.setattr(replay_module, "_with_topic", counted)
    new = [
        m.PartitionRecord(partition_id=n, topic_id=TOPIC, replicas=[1], isr=[1], leader=1)
        for n in range(10_000)
    ]
    fenced = [m.PartitionChangeRecord(partition_id=n, topic_id=TOPIC, leader=-1) for n in range(99)]
    image = replay_all(EMPTY_IMAGE, [m.TopicRecord(name="t", topic_id=TOPIC), *new, *fenced])
    assert changed == ["t", "t"]
    assert len(image.topics.by_id[TOPIC].partitions) == 10_000


def test_topics_touched_in_a_transaction_show_up_when_it_ends() -> None:
    replayer = Replayer()
    replayer.apply_batch(
        [m.BeginTransactionRecord(), m.TopicRecord(name="t", topic_id=TOPIC)],
        base_offset=0,
        epoch=0,
        timestamp_ms=0,
    )
    assert replayer.in_transaction and not replayer.take_touched().partitions
    shown = replayer.apply_batch([m.EndTransactionRecord()], base_offset=2, epoch=0, timestamp_ms=0)
    assert replayer.take_touched().partitions == {TOPIC: set()}
    assert shown.provenance == Provenance(2, 0, 0)


def test_a_delta_knows_which_partitions_its_records_named() -> None:
    """Ten thousand partitions change in small batches: no batch may scan all of them."""
    new = [
        m.PartitionRecord(partition_id=n, topic_id=TOPIC, replicas=[1], isr=[1], leader=1)
        for n in range(9)
    ]
    replayer = Replayer()
    made = [m.TopicRecord(name="t", topic_id=TOPIC), *new]
    before = replayer.apply_batch(made, base_offset=0, epoch=0, timestamp_ms=0)
    replayer.take_touched()
    changed = [
        m.PartitionChangeRecord(partition_id=n, topic_id=TOPIC, leader=-1) for n in (7, 2, 7)
    ]
    after = replayer.apply_batch(changed, base_offset=10, epoch=0, timestamp_ms=0)
    touched = replayer.take_touched()
    assert touched.partitions == {TOPIC: {2, 7}}
    old, topic = before.topics.by_id[TOPIC], after.topics.by_id[TOPIC]
    for delta in (MetadataDelta(before, after, touched), MetadataDelta(before, after)):
        assert delta.changed_in(topic, old) == [2, 7]


def secrets_of(record: Any) -> Any:
    """Return the record with every field that may hold a credential set to one."""
    for field in SECRET_FIELDS[type(record)]:
        before = getattr(record, field)
        setattr(record, field, b"TOP-SECRET" if isinstance(before, bytes) else "TOP-SECRET")
    record.unknown_tags = {7: b"TOP-SECRET"}
    return record


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (
            m.ConfigRecord(resource_type=4, resource_name="1", name="ssl.key.password"),
            "ConfigRecord(resource_type=4, resource_name='1', name='ssl.key.password', "
            "value=(hidden), unknown_tags=[7])",
        ),
        (
            m.UserScramCredentialRecord(name="me", mechanism=1, iterations=4096),
            "UserScramCredentialRecord(name='me', mechanism=1, salt=(hidden), "
            "stored_key=(hidden), server_key=(hidden), iterations=4096, unknown_tags=[7])",
        ),
        (m.DelegationTokenRecord(owner="me"), None),
    ],
    ids=lambda one: type(one).__name__,
)
def test_described_record_shows_no_credential(record: Any, shown: str | None) -> None:
    text = described(secrets_of(record))
    assert "SECRET" not in text
    assert shown is None or text == shown


def test_error_of_a_record_that_does_not_replay_shows_no_credential(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message ends the process that reads the log, and is printed."""

    def refuse(*_: Any) -> None:
        raise ReplayError("cannot follow")

    monkeypatch.setitem(REPLAY, m.ConfigRecord, refuse)
    record = secrets_of(m.ConfigRecord(name="sasl.jaas.config"))
    with pytest.raises(ReplayError, match="sasl.jaas.config.*hidden") as error:
        Replayer().apply_batch([record], base_offset=3, epoch=1, timestamp_ms=0)
    assert "SECRET" not in str(error.value)
