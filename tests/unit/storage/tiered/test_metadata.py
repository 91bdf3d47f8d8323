"""A broker's caches of segments: their readiness, and repeated reads."""

from __future__ import annotations

import pytest

from protocol.ids import TopicId
from storage.log.epochs import EpochEntry
from storage.tiered.metadata import RemoteMetadata
from storage.tiered.records import encode_record, metadata_partition
from storage.tiered.states import SegmentState
from testkit.records.tier import PARTITION, segment, update

OTHER = PARTITION._replace(partition=1)
NAMESAKE = PARTITION._replace(topic_id=TopicId(bytes(16)))
LOG = [
    encode_record(segment(1, 0, 9)),
    encode_record(segment(2, 0, 9, partition=OTHER)),
    encode_record(update(1, SegmentState.COPY_FINISHED)),
    encode_record(update(2, SegmentState.COPY_FINISHED, partition=OTHER)),
]


def read(metadata: RemoteMetadata, upto: int) -> None:
    for number, offset in metadata.wanted().items():
        metadata.replay(number, offset, list(enumerate(LOG))[offset:upto], max(offset, upto))


def test_nothing_is_known_before_the_end_is() -> None:
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    read(metadata, 4)
    assert metadata.cache(PARTITION) is None, "how long the topic is was not asked yet"
    metadata.end_known(0, 4)
    assert metadata.cache(PARTITION) is not None
    assert metadata.waiting() == []


def test_nothing_is_known_before_the_end_is_reached() -> None:
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 4)
    for upto in range(4):
        read(metadata, upto)
        assert metadata.cache(PARTITION) is None
        assert metadata.waiting() == [PARTITION]
    metadata.replay(0, 3, [], 4)  # the last of them may contain no records
    assert metadata.cache(PARTITION) is not None


def test_a_partition_taken_later_is_read_from_the_start() -> None:
    """S6, KAFKA-16105: earlier reads were applied only to the partitions known at that time."""
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 3)
    read(metadata, 4)
    metadata.take(OTHER)
    assert metadata.wanted() == {0: 0}
    metadata.end_known(0, 4)
    assert metadata.cache(PARTITION) is not None
    assert metadata.cache(OTHER) is None
    read(metadata, 4)
    cache = metadata.cache(OTHER)
    assert cache is not None
    assert cache.find(0, 5) is not None
    assert metadata.wanted() == {0: 4}


def test_partition_released_and_taken_again_is_read_from_the_start() -> None:
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 4)
    read(metadata, 4)
    metadata.give_up(PARTITION)
    assert metadata.cache(PARTITION) is None
    assert metadata.wanted() == {}
    metadata.take(PARTITION)
    metadata.end_known(0, 4)
    assert metadata.cache(PARTITION) is None
    read(metadata, 4)
    cache = metadata.cache(PARTITION)
    assert cache is not None
    assert len(cache) == 1


def test_a_namesake_knows_nothing_of_it() -> None:
    """S10: partitions are identified by topic id, not by name."""
    metadata = RemoteMetadata(1)
    metadata.take(NAMESAKE)
    metadata.end_known(0, 4)
    read(metadata, 4)
    cache = metadata.cache(NAMESAKE)
    assert cache is not None
    assert len(cache) == 0


def test_records_in_a_partition_that_is_not_theirs_are_passed_over() -> None:
    metadata = RemoteMetadata(50)
    number = metadata.take(PARTITION)
    assert number == metadata_partition(PARTITION, 50)
    assert metadata.replay(number + 1, 0, [(0, LOG[0])], 1) == []
    assert metadata.wanted() == {number: 0}


def test_records_requested_before_a_partition_was_taken_are_dropped() -> None:
    """Otherwise the new partition's cache would be ready with a gap before it."""
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 2)
    read(metadata, 2)
    metadata.take(OTHER)
    metadata.end_known(0, 4)
    assert metadata.replay(0, 2, list(enumerate(LOG))[2:], 4) == []
    assert metadata.cache(OTHER) is None
    read(metadata, 4)
    for partition in (PARTITION, OTHER):
        cache = metadata.cache(partition)
        assert cache is not None
        assert cache.find(0, 5) is not None


def test_those_taken_while_it_is_read_wait_for_the_next_pass_together() -> None:
    """Otherwise each of hundreds of partitions would start a read of its own."""
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 4)
    read(metadata, 2)
    metadata.take(OTHER)
    metadata.take(NAMESAKE)
    metadata.end_known(0, 4)
    assert metadata.wanted() == {0: 2}
    found = metadata.replay(0, 2, list(enumerate(LOG))[2:], 4)
    assert [one.outcome is None for one in found] == [False, True]
    assert metadata.waiting() == [OTHER, NAMESAKE]
    assert metadata.wanted() == {0: 0}
    read(metadata, 4)
    assert metadata.waiting() == []
    cache = metadata.cache(OTHER)
    assert cache is not None
    assert cache.find(0, 5) is not None


def test_next_pass_begins_when_the_current_one_has_an_end_or_no_partition() -> None:
    for done in (
        lambda metadata: metadata.end_known(0, 2),
        lambda metadata: metadata.give_up(PARTITION),
    ):
        metadata = RemoteMetadata(1)
        metadata.take(PARTITION)
        read(metadata, 2)
        metadata.take(OTHER)
        assert metadata.wanted() == {0: 2}
        done(metadata)
        assert metadata.wanted() == {0: 0}
        metadata.end_known(0, 4)
        assert metadata.cache(OTHER) is None
        read(metadata, 4)
        assert metadata.cache(OTHER) is not None


def test_metadata_partition_that_was_truncated_blocks_no_partition() -> None:
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 4)
    read(metadata, 2)
    metadata.take(OTHER)
    metadata.end_known(0, 2)  # after an unclean election
    assert metadata.leaders_cache(PARTITION) is not None
    assert metadata.cache(OTHER) is None
    assert metadata.wanted() == {0: 0}
    metadata.take(NAMESAKE)
    read(metadata, 2)
    assert metadata.cache(OTHER) is not None


def test_metadata_reader_skips_unreadable_records() -> None:
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 2)
    replayed = metadata.replay(0, 0, [(0, b"\x01\x63\0"), (1, None)], 2)
    assert [one.record for one in replayed] == [None, None]
    assert all(one.outcome is not None and one.outcome.refusal for one in replayed)
    assert metadata.cache(PARTITION) is not None


def test_s6_new_leader_acts_after_reading_to_the_end_known_at_its_election() -> None:
    """S6: a follower may not have read the last records of the leader before."""
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 1)
    read(metadata, 1)
    assert metadata.leaders_cache(PARTITION) is metadata.cache(PARTITION) is not None
    assert metadata.lead(PARTITION) == 0
    assert metadata.leaders_cache(PARTITION) is None
    metadata.end_known(0, 3)
    assert metadata.leaders_cache(PARTITION) is None
    assert metadata.cache(PARTITION) is not None, "enough for those who read"
    read(metadata, 3)
    assert metadata.leaders_cache(PARTITION) is metadata.cache(PARTITION) is not None


def epochs(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in pairs]


def read_four() -> RemoteMetadata:
    """Return metadata that has read the whole log: two records of epoch 1, then two of epoch 3."""
    metadata = RemoteMetadata(1)
    metadata.take(PARTITION)
    metadata.end_known(0, 4)
    assert metadata.note_epochs(0, 0, epochs((1, 0), (3, 2)), metadata.life(0))
    read(metadata, 4)
    return metadata


def test_epoch_before_an_offset_is_known_where_it_was_read() -> None:
    """S6: the leader compares it with its own log."""
    metadata = read_four()
    assert [metadata.epoch_before(0, at) for at in range(6)] == [-1, 1, 1, 3, 3, -1]
    assert metadata.epoch_before(1, 1) == -1
    for start_offset in (3, 4):  # 4 is exactly the end of what was read
        metadata.begins_at(0, start_offset)
        assert metadata.epoch_before(0, 4) == 3, "it was read before retention deleted the start"
    metadata.begins_at(0, 9)
    metadata.replay(0, 4, [], 9)
    assert metadata.epoch_before(0, 9) == -1, "the record before it was not read"


@pytest.mark.parametrize(
    ("asked", "found", "follows"),
    [
        (4, epochs((3, 4)), True),
        (4, epochs((3, 4), (5, 6)), True),
        (4, epochs((2, 4)), False),  # the log goes back
        (0, epochs((1, 0), (3, 2)), True),
        (0, epochs((1, 0), (3, 1)), False),
        (0, epochs((1, 0), (4, 2)), False),
        (1, epochs((1, 1)), True),
        (3, epochs((1, 3)), False),
        (9, epochs((0, 9)), True),  # it was requested before the topic was read again: dropped
    ],
)
def test_epochs_that_contradict_what_was_read_show_a_lost_end(
    asked: int, found: list[EpochEntry], follows: bool
) -> None:
    """S6: the topic has lost its end if epochs at the same offsets differ from those read."""
    metadata = read_four()
    assert metadata.note_epochs(0, asked, found, metadata.life(0)) is follows
    assert metadata.epoch_before(0, 4) == 3
    assert metadata.note_epochs(0, asked, found, metadata.life(0) - 1), "of an earlier life"


def test_lost_end_begins_all_caches_of_the_stream_from_scratch() -> None:
    """S6: a leader waits for the new end, too."""
    metadata = read_four()
    metadata.watch(0)
    before, life = metadata.cache(PARTITION), metadata.life(0)
    assert metadata.lost_end(0) == [PARTITION]
    assert metadata.cache(PARTITION) is None
    assert metadata.waiting() == [PARTITION]
    assert metadata.wanted() == {0: 0}
    assert metadata.life(0) > life
    assert metadata.seen_to(0) == 0
    metadata.end_known(0, 1)
    read(metadata, 1)
    after = metadata.leaders_cache(PARTITION)
    assert after is not None
    assert after is not before
    assert len(after) == 1
    metadata.give_up(PARTITION)
    assert metadata.wanted() == {0: 1}, "it is watched still"
    assert metadata.lost_end(1) == []
