"""The cache of a partition's remote segments, by cases; tests/property covers arbitrary
histories."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest

from storage.log.epochs import EpochEntry
from storage.tiered.cache import NO_REMOTE_END, RemoteEnd, SegmentCache
from storage.tiered.lineage import Lineage
from storage.tiered.states import PartitionDeleteState, SegmentState
from storage.tiered.values import PartitionDeletion, RemoteSegment, SegmentSnapshot
from testkit.records.lineages import SmallCopy, SmallLog, copies, logs, match
from testkit.records.tier import PARTITION, segment, update


def cache_of(*segments: RemoteSegment) -> SegmentCache:
    """Return a cache in which these segments are finished, unless they have another state."""
    cache = SegmentCache(PARTITION)
    for one in segments:
        assert cache.apply(cache.next_offset, one).changed
        number = int.from_bytes(one.segment_id, "big")
        assert cache.apply(cache.next_offset, update(number, SegmentState.COPY_FINISHED)).changed
    return cache


def lineage(end: int, **epochs: int) -> Lineage:
    """Parse a lineage: `e3=10` is epoch 3 from offset 10 on."""
    entries = [EpochEntry(int(name[1:]), start) for name, start in epochs.items()]
    return Lineage(sorted(entries), end)


def test_unfinished_copies_are_not_found() -> None:
    cache = SegmentCache(PARTITION)
    cache.apply(0, segment(1, 0, 9))
    assert cache.find(0, 5) is None
    assert [one.segment_id for one in cache.unfinished()] == [segment(1, 0, 9).segment_id]
    cache.apply(1, update(1, SegmentState.COPY_FINISHED))
    assert cache.find(0, 5) is not None
    assert list(cache.unfinished()) == []
    cache.apply(2, update(1, SegmentState.DELETE_STARTED))
    assert cache.find(0, 5) is None
    cache.apply(3, update(1, SegmentState.DELETE_FINISHED))
    assert len(cache) == 0


def test_a_copy_that_its_successor_began_to_delete_cannot_be_finished() -> None:
    """S6: a leader change during a copy results in one finished copy."""
    cache = SegmentCache(PARTITION)
    cache.apply(0, segment(1, 0, 9))
    cache.apply(1, update(1, SegmentState.DELETE_STARTED, broker_id=2))
    outcome = cache.apply(2, update(1, SegmentState.COPY_FINISHED))
    assert outcome.refusal == "a segment that is DELETE_STARTED cannot become COPY_FINISHED"
    assert cache.find(0, 5) is None


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (update(9, SegmentState.COPY_FINISHED), "not known cannot become COPY_FINISHED"),
        (segment(9, 0, 1, state=SegmentState.COPY_FINISHED), "COPY_FINISHED in a RemoteSegment"),
        (update(9, SegmentState.COPY_STARTED), "COPY_STARTED in a SegmentUpdate"),
        (
            PartitionDeletion(
                partition=PARTITION,
                broker_id=1,
                event_timestamp_ms=0,
                state=PartitionDeleteState.FINISHED,
            ),
            "a removal that is not known cannot become FINISHED",
        ),
        (
            SegmentSnapshot(
                segment_id=bytes(16),
                start_offset=0,
                end_offset=1,
                broker_id=1,
                max_timestamp_ms=0,
                event_timestamp_ms=0,
                epochs=(EpochEntry(0, 0),),
                size_bytes=1,
            ),
            "none of the topic's",
        ),
    ],
)
def test_segment_cache_refuses_an_invalid_transition_with_the_reason(record, why: str) -> None:
    assert why in SegmentCache(PARTITION).apply(0, record).refusal


def test_a_removal_goes_on() -> None:
    cache = SegmentCache(PARTITION)
    for offset, state in enumerate(PartitionDeleteState):
        deletion = PartitionDeletion(
            partition=PARTITION, broker_id=1, event_timestamp_ms=0, state=state
        )
        assert cache.apply(offset, deletion).changed
        assert cache.deletion is state


def test_the_remote_end_is_on_the_leaders_own_lineage() -> None:
    """S6: the end is not the highest offset: an unclean election took back epoch 1's records from
    15 on."""
    cache = cache_of(segment(1, 0, 9), segment(2, 10, 29, {0: 10, 1: 12}))
    assert cache.remote_end(lineage(40, e0=0, e1=12)) == RemoteEnd(29, 1)
    assert cache.remote_end(lineage(40, e0=0, e1=12, e3=15)) == RemoteEnd(14, 1)
    assert cache.remote_end(lineage(40, e0=0, e2=8)) == RemoteEnd(7, 0)
    assert cache.remote_end(lineage(40, e5=0)) == NO_REMOTE_END
    assert cache.remote_end(lineage(0)) == NO_REMOTE_END


def test_the_remote_end_stays_when_all_has_expired() -> None:
    cache = cache_of(segment(1, 0, 9))
    cache.apply(2, update(1, SegmentState.DELETE_STARTED))
    cache.apply(3, update(1, SegmentState.DELETE_FINISHED))
    assert cache.remote_end(lineage(20, e0=0)) == RemoteEnd(9, 0)
    assert cache.remote_end(lineage(20, e0=10)) == RemoteEnd(9, 0), "the log start is above it"
    assert cache.remote_end(lineage(20, e0=19)) == RemoteEnd(9, 0)
    assert cache.remote_end(lineage(20, e1=10)) == NO_REMOTE_END


def test_remote_end_with_an_epoch_without_records_names_the_epoch_that_wrote_it() -> None:
    """KIP-405: a leader of epoch 1 that appended nothing here copied records of a log that lost."""
    cache = cache_of(segment(1, 0, 9), segment(2, 10, 12, {1: 10}))
    assert cache.remote_end(lineage(20, e0=0, e1=10, e2=10)) == RemoteEnd(9, 0)


def test_deleted_end_counts_a_copy_that_shares_one_offset_with_the_log() -> None:
    """S4: the copy begins at the last offset that its epoch wrote in this log."""
    cache = cache_of(segment(1, 9, 15))
    cache.apply(cache.next_offset, update(1, SegmentState.DELETE_STARTED))
    assert cache.deleted_to(lineage(20, e0=0, e1=10)) == 10
    assert cache.deleted_to(lineage(20, e0=0, e1=9)) == 0


def test_deleted_ranges_of_adjacent_copies_are_kept_as_one() -> None:
    """The memory of a partition does not grow with each copy that retention deletes."""
    cache = cache_of(*(segment(n, 10 * n, 10 * n + 9) for n in range(1, 9)))
    for number in range(1, 9):
        cache.apply(cache.next_offset, update(number, SegmentState.DELETE_STARTED))
    assert cache._deleted == {0: [(10, 89)]}


def test_a_segment_is_good_as_far_as_the_lineage_shares_it() -> None:
    cache = cache_of(segment(1, 0, 29, {0: 0, 1: 12}))
    mine = lineage(40, e0=0, e1=12, e3=15)
    found = cache.find_on(mine, 13)
    assert found is not None
    assert found.offsets == (0, 14)
    assert cache.find_on(mine, 15) is None
    assert cache.covers(mine, 0, 14)
    assert not cache.covers(mine, 0, 15)


def test_a_gap_is_not_covered() -> None:
    cache = cache_of(segment(1, 0, 9), segment(2, 11, 20, {0: 11}))
    mine = lineage(40, e0=0)
    assert cache.covers(mine, 0, 9)
    assert not cache.covers(mine, 0, 20)
    assert cache.covers(mine, 11, 20)


def test_a_copy_within_another_comes_back_when_that_one_goes() -> None:
    cache = cache_of(segment(1, 0, 9), segment(2, 0, 19), segment(3, 10, 19, {0: 10}))
    found = cache.find(0, 5)
    assert found is not None
    assert found.end_offset == 19
    cache.apply(cache.next_offset, update(2, SegmentState.DELETE_STARTED))
    found = cache.find(0, 5)
    assert found is not None
    assert found.end_offset == 9
    assert cache.find(0, 15) is not None


def test_f21_lineage_treats_epochs_below_its_first_as_unknown() -> None:
    """F21: epochs rebuilt from local batches begin at the local log start."""
    tiered = segment(1, 0, 29, {0: 0, 1: 12})
    assert not lineage(60, e2=40).lost(tiered)
    assert not lineage(60, e2=40).shared(tiered)
    assert lineage(60, e2=10).lost(segment(1, 10, 29, {0: 10}))
    assert not lineage(60, e1=10).lost(segment(1, 10, 29, {3: 10})), "later than all it knows"
    assert not Lineage([], 0).lost(tiered)


def test_the_epochs_of_a_segment_to_copy() -> None:
    mine = lineage(50, e0=5, e1=12, e2=20, e3=20, e4=45)
    assert mine.epochs_of(10, 44) == ((0, 10), (1, 12), (3, 20))
    assert mine.epochs_of(4, 44) == (), "what wrote offset 4 is not known"
    assert mine.epochs_of(10, 50) == (), "it is not written yet"
    assert mine.up_to(19) == ((0, 5), (1, 12))


def logs_with_two_copies() -> Iterator[tuple[SmallLog, tuple[SmallCopy, SmallCopy]]]:
    """Yield all small logs with any two copies that replicas of their partition may have made."""
    plain = [one for one in copies(3) if one.known_from == one.start and not one.empty_epoch]
    for log in logs(3):
        if log.led_from_end:
            continue
        fitting = [one for one in plain if match(log, one)]
        for two in combinations_with_replacement(fitting, 2):
            yield log, two


def finished(two: tuple[SmallCopy, SmallCopy]) -> SegmentCache:
    return cache_of(*(one.segment(number) for number, one in enumerate(two, start=1)))


def of_log(log: SmallLog, copy: SmallCopy, offset: int) -> bool:
    """Return whether the copy has the log's record at `offset`, as far as the log knows."""
    return log.known(offset) == copy.known(offset) != -1


@pytest.mark.slow
def test_finished_copies_are_found_at_every_offset_that_they_have_of_a_log() -> None:
    """S1, S2: copies of several epochs, shared whole or in part, against offsets one by one."""
    for log, two in logs_with_two_copies():
        lineage, cache = log.lineage, finished(two)
        having = [{at for at in range(5) if of_log(log, one, at)} for one in two]
        for at in range(5):
            found = cache.find_on(lineage, at)
            if found is None:
                assert at not in having[0] | having[1], (log, two, at)
                continue
            offsets = set(range(found.offsets.first, found.offsets.last + 1))
            number = int.from_bytes(found.segment.segment_id, "big")
            assert at in offsets == having[number - 1], (log, two, at)
        expected = sorted((min(one), max(one), n) for n, one in enumerate(having) if one)
        for shared in (cache.shared_with(lineage), cache.with_aborted(lineage, 0)):
            found_ranges = [
                (*one.offsets, int.from_bytes(one.segment.segment_id, "big") - 1) for one in shared
            ]
            assert found_ranges == expected, (log, two)


@pytest.mark.slow
def test_cover_of_a_log_ends_at_the_first_offset_that_no_copy_has() -> None:
    """S2: this also holds if the log and a copy end at the same offset."""
    for log, two in logs_with_two_copies():
        lineage, cache = log.lineage, finished(two)
        for first in range(log.end + 1):
            last = log.end - 1
            lacking = [
                at for at in range(first, log.end) if not any(of_log(log, one, at) for one in two)
            ]
            assert cache.covered_to(lineage, first, last) == min([*lacking, max(first, log.end)])
            assert cache.covers(lineage, first, last) == (not lacking)


def test_remote_end_is_the_highest_offset_that_was_ever_copied_of_the_log() -> None:
    """S8: copies that have expired count; copies of records that the log does not have do not.

    A leader copies in the order of offsets (S2), so a later copy by the same epoch proves an
    earlier one.
    """
    for log, two in logs_with_two_copies():
        cache = finished(two)
        cache.apply(cache.next_offset, update(1, SegmentState.DELETE_STARTED))
        cache.apply(cache.next_offset, update(1, SegmentState.DELETE_FINISHED))
        known = set(log.history[log.known_from :])
        copied = [
            (at, epoch)
            for one in two
            for at, epoch in enumerate(log.history)
            if epoch in known and epoch in [one.known(later) for later in range(at, 4)]
        ]
        expected = RemoteEnd(*max(copied)) if copied else NO_REMOTE_END
        assert cache.remote_end(log.lineage) == expected, (log, two)
