"""The three laws of the metadata image, and that a delta finds every difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metalog.image.delta import Change, MetadataDelta
from metalog.image.replay import Replayer, TouchedTopics, replay_all
from metalog.image.snapshot import image_from_records, image_to_records
from metalog.image.values import EMPTY_IMAGE, MetadataImage, Provenance
from protocol.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    decode_record,
    encode_record,
)
from testkit.records.metadata_records import Op, ops, valid_records


def through_bytes(image: MetadataImage) -> list[Any]:
    return [decode_record(encode_record(r, v))[0] for r, v in image_to_records(image)]


@given(ops)
def test_image_to_records_to_image_is_the_identity(drawn: list[Op]) -> None:
    image = replay_all(EMPTY_IMAGE, valid_records(drawn))
    assert image_from_records(through_bytes(image)) == image


@given(ops, st.lists(st.integers(1, 9), max_size=30))
def test_any_split_into_batches_gives_the_same_image(drawn: list[Op], sizes: list[int]) -> None:
    records = valid_records(drawn)
    expected = replay_all(EMPTY_IMAGE, records)
    replayer = Replayer()
    offset = 0
    for size in [*sizes, len(records)]:
        part = records[offset : offset + size]
        if part:
            replayer.apply_batch(part, base_offset=offset, epoch=1, timestamp_ms=5)
            offset += len(part)
    assert replayer.image == expected.at(Provenance(len(records) - 1, 1, 5))


@given(ops, st.integers(0, 60))
def test_snapshot_and_the_records_after_it_are_the_full_replay(drawn: list[Op], at: int) -> None:
    records = valid_records(drawn)
    prefix = replay_all(EMPTY_IMAGE, records[:at])
    loaded = image_from_records(through_bytes(prefix))
    assert replay_all(loaded, records[at:]) == replay_all(EMPTY_IMAGE, records)


@given(ops, st.integers(0, 60))
def test_a_delta_says_everything_that_differs(drawn: list[Op], at: int) -> None:
    records = valid_records(drawn)
    before = replay_all(EMPTY_IMAGE, records[:at])
    after = replay_all(before, records[at:])
    touched = TouchedTopics()
    for record in records[at:]:
        touched.add(record)
    delta = MetadataDelta(before, after, touched)

    assert delta.topics == MetadataDelta(before, after).topics
    assert patched(before.topics.by_id, delta.topics) == dict(after.topics.by_id)
    partitions = {
        (change.topic.id, change.partition_index): Change(change.before, change.after)
        for change in delta.partitions()
    }
    assert patched(all_partitions(before), partitions) == all_partitions(after)
    assert patched(before.cluster.brokers, delta.brokers) == dict(after.cluster.brokers)
    assert patched(before.cluster.controllers, delta.controllers) == dict(after.cluster.controllers)
    assert patched(before.configs, delta.configs) == dict(after.configs)
    assert patched(before.features, delta.features) == dict(after.features)
    assert patched(before.client_quotas, delta.client_quotas) == dict(after.client_quotas)
    assert not delta.is_empty or before == after


def patched(before: Mapping[Any, Any], changes: Mapping[Any, Change[Any]]) -> dict[Any, Any]:
    """`before` with the changes applied; each must start from what is there."""
    result = dict(before)
    for key, change in changes.items():
        assert result.pop(key, None) == change.before
        if change.after is not None:
            result[key] = change.after
    return result


def all_partitions(image: MetadataImage) -> dict[Any, Any]:
    return {
        (topic.id, index): partition
        for topic in image.topics.by_id.values()
        for index, partition in topic.partitions.items()
    }


@given(ops, st.integers(0, 60), st.integers(0, 60), st.booleans(), st.integers(1, 7))
def test_a_metadata_transaction_is_seen_as_a_whole_or_not_at_all(
    drawn: list[Op], start: int, length: int, commit: bool, size: int
) -> None:
    records = valid_records(drawn)
    start = min(start, len(records))
    inside = records[start : start + length]
    end = EndTransactionRecord() if commit else AbortTransactionRecord()
    log = [*records[:start], BeginTransactionRecord(name="x"), *inside, end]
    before = replay_all(EMPTY_IMAGE, records[:start])
    after = replay_all(before, inside) if commit else before
    replayer = Replayer()
    for offset in range(0, len(log), size):
        shown = replayer.apply_batch(
            log[offset : offset + size], base_offset=offset, epoch=0, timestamp_ms=0
        )
        reached = min(offset + size, len(log))
        if start < reached < len(log):
            assert shown.same_cluster(before)
            assert shown.provenance.offset == start - 1
            assert shown.provenance.batch_aligned == (start % size == 0)
        elif reached == len(log):
            assert shown.same_cluster(after)
            assert shown.provenance == Provenance(len(log) - 1, 0, 0)
