"""The three laws of the metadata image, and deltas that contain every difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metalog.image.delta import Change, MetadataDelta
from metalog.image.replay import Replayer, TouchedTopics, replay_all
from metalog.image.snapshot import image_from_records, image_to_records
from metalog.image.values import EMPTY_IMAGE, MetadataImage, Provenance
from metalog.log_image import LogImage
from metalog.quorum.batches import Batch
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


class Leading:
    """A node that appends to a log, reads it as committed later, and at times loses it to other
    leaders."""

    def __init__(self, records: list[Any]) -> None:
        self.image = LogImage()
        self.log: list[Batch] = []
        self.committed = 0  # batches of the log
        self._records = records
        self._epoch = 1

    def put(self, size: int) -> list[Any]:
        """Append the next records of the log in one batch; 0 is a control batch."""
        written = sum(len(batch.records) for batch in self.log)
        records = self._records[written : written + size]
        end = self.log[-1].last_offset + 1 if self.log else 0
        last = end + max(len(records), 1) - 1
        self.log.append(Batch(end, last, self._epoch, 5, 100, tuple(records)))
        return records

    def append(self) -> None:
        if records := self.put(3):
            image = replay_all(self.image.working, records)
            self.image.append(image, base_offset=self.log[-1].base_offset, epoch=self._epoch)

    def control(self) -> None:
        self.put(0)

    def commit(self) -> None:
        if self.committed == len(self.log):
            return
        batch = self.log[self.committed]
        touched = self.image.commit(batch)
        self.committed += 1
        named = {r.topic_id for r in batch.records if hasattr(r, "topic_id")}
        assert touched.any_topic or named <= touched.partitions.keys()

    def lose(self) -> None:
        """Let the next leader keep half of the uncommitted records."""
        self.image.drop_appended()
        self._epoch += 1
        del self.log[self.committed + (len(self.log) - self.committed) // 2 :]
        self.put(2)
        while self.committed < len(self.log):
            self.commit()

    def check(self) -> None:
        log = self.log
        assert self.image.committed.same_cluster(_replayed(log[: self.committed]))
        assert self.image.working.same_cluster(_replayed(log))
        if self.committed:
            last = log[self.committed - 1]
            assert self.image.committed.provenance == Provenance(last.last_offset, last.epoch, 5)
            assert self.image.end_offset == last.last_offset + 1


def _replayed(batches: list[Batch]) -> MetadataImage:
    return replay_all(EMPTY_IMAGE, [record for batch in batches for record in batch.records])


@given(ops, st.lists(st.sampled_from(["append", "commit", "commit", "control", "lose"])))
def test_a_leaders_images_are_those_of_a_replay(drawn: list[Op], events: list[str]) -> None:
    node = Leading(valid_records(drawn))
    for event in events:
        getattr(node, event)()
        node.check()
    node.lose()
    node.check()


@given(ops, st.integers(0, 60))
def test_snapshot_and_the_records_after_it_are_the_full_replay(drawn: list[Op], at: int) -> None:
    records = valid_records(drawn)
    prefix = replay_all(EMPTY_IMAGE, records[:at])
    loaded = image_from_records(through_bytes(prefix))
    assert replay_all(loaded, records[at:]) == replay_all(EMPTY_IMAGE, records)


@given(ops, st.integers(0, 60))
def test_delta_contains_every_difference(drawn: list[Op], at: int) -> None:
    records = valid_records(drawn)
    before = replay_all(EMPTY_IMAGE, records[:at])
    after = replay_all(before, records[at:])
    touched = TouchedTopics()
    for record in records[at:]:
        touched.add(record)
    delta = MetadataDelta(before, after, touched)

    anything = MetadataDelta(before, after)
    assert delta.topics == anything.topics
    for change in delta.topics.values():
        if change.after is not None:
            found = delta.changed_in(change.after, change.before)
            assert found == anything.changed_in(change.after, change.before)
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


def patched(before: Mapping[Any, Any], changes: Mapping[Any, Change[Any]]) -> dict[Any, Any]:
    """Return `before` with the changes applied; each must start from the current value."""
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
