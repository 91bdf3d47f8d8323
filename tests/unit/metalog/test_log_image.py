from __future__ import annotations

from typing import Any

import pytest

from metalog.image.replay import ReplayError, replay_all
from metalog.image.values import EMPTY_IMAGE, Provenance
from metalog.log_image import LogImage
from metalog.quorum.batches import Batch
from protocol.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from runtime.errors import InvariantViolated


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=name.encode().ljust(16, b"_"))


def batch(base_offset: int, *records: Any, epoch: int = 1) -> Batch:
    count = len(records) or 1
    return Batch(base_offset, base_offset + count - 1, epoch, 5, 100, tuple(records))


def appended(log: LogImage, base_offset: int, *records: Any, epoch: int = 1) -> Batch:
    image = replay_all(log.working, records)
    log.append(image, base_offset=base_offset, epoch=epoch)
    return batch(base_offset, *records, epoch=epoch)


def test_the_image_after_an_own_append_becomes_the_committed_one() -> None:
    log = LogImage()
    first, second = appended(log, 0, topic("a")), appended(log, 1, topic("b"))
    working = log.working
    assert log.committed is EMPTY_IMAGE
    log.commit(first)
    assert set(log.committed.topics.by_name) == {"a"} and log.working is working
    assert log.commit(second).partitions == {topic("b").topic_id: set()}
    assert log.committed.topics is working.topics, "the same object: nothing was replayed again"
    assert log.committed.provenance == Provenance(1, 1, 5)
    assert log.working is log.committed and log.end_offset == 2


def test_control_batches_between_own_appends() -> None:
    log = LogImage()
    first = appended(log, 0, topic("a"))
    second = appended(log, 2, topic("b"))
    log.commit(first)
    log.commit(batch(1))
    assert (log.end_offset, log.committed.provenance.offset) == (2, 1)
    assert set(log.working.topics.by_name) == {"a", "b"}
    log.commit(second)
    assert log.committed.topics is log.working.topics


def test_dropped_batch_is_replayed_if_committed() -> None:
    log = LogImage()
    survivor = appended(log, 0, topic("a"))
    log.drop_appended()
    assert log.working is EMPTY_IMAGE
    log.commit(survivor)
    assert set(log.committed.topics.by_name) == {"a"}


def test_another_leaders_batch_in_place_of_what_was_appended() -> None:
    """This also holds before the node learns that it does not lead any more."""
    log = LogImage()
    appended(log, 0, topic("a"))
    appended(log, 1, topic("b"))
    log.commit(batch(0, topic("c"), epoch=2))
    assert set(log.committed.topics.by_name) == {"c"} and log.working is log.committed


def test_a_batch_that_is_committed_while_it_is_appended() -> None:
    log = LogImage()
    image = replay_all(log.working, [topic("a")])
    log.commit(batch(0, topic("a")))
    log.append(image, base_offset=0, epoch=1)
    assert log.working is log.committed


def test_an_open_transaction_ends_with_what_this_node_appends() -> None:
    log = LogImage()
    log.commit(batch(0, BeginTransactionRecord(name="x"), topic("a")))
    log.commit(batch(2))
    assert log.in_transaction and log.working.same_cluster(EMPTY_IMAGE)
    abort = appended(log, 3, AbortTransactionRecord(reason="y"))
    assert log.in_transaction
    log.commit(abort)
    assert not log.in_transaction and not log.committed.topics.by_name
    log.commit(batch(4, topic("b")))
    assert set(log.committed.topics.by_name) == {"b"}


def test_a_committed_record_that_does_not_replay() -> None:
    with pytest.raises(ReplayError, match="offset 7 epoch 3"):
        LogImage().commit(batch(7, RemoveTopicRecord(topic_id=b"x" * 16), epoch=3))


def test_a_snapshot_is_where_it_starts_over() -> None:
    log = LogImage()
    log.commit(batch(0, topic("a")))
    image = replay_all(EMPTY_IMAGE, [topic("b")]).at(Provenance(49, 4, 9))
    log.load(image)
    assert log.committed is image and log.end_offset == 50


def test_leader_refuses_to_load_snapshot() -> None:
    """M11: a leader already has every record, so it must not load a snapshot."""
    log = LogImage()
    appended(log, 0, topic("a"))
    with pytest.raises(InvariantViolated, match="a leader cannot load"):
        log.load(EMPTY_IMAGE)
