"""Lineages against a model that compares a log and a copy offset by offset, for all small cases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from storage.tiered.lineage import Lineage, OffsetRange
from storage.tiered.values import RemoteSegment
from testkit.records.lineages import (
    LONGEST,
    SmallCopy,
    SmallLog,
    copies,
    entries_of,
    histories,
    logs,
    match,
)


@cache
def all_logs() -> list[tuple[SmallLog, Lineage]]:
    return [(log, log.lineage) for log in logs()]


@cache
def all_copies() -> list[tuple[SmallCopy, RemoteSegment]]:
    return [(copy, copy.segment()) for copy in copies()]


def pairs() -> Iterator[tuple[SmallLog, Lineage, SmallCopy, RemoteSegment]]:
    """Yield each log with each copy that a replica of the same partition may have made."""
    for log, lineage in all_logs():
        for copy, segment in all_copies():
            if match(log, copy):
                yield log, lineage, copy, segment


def equal_offsets(log: SmallLog, copy: SmallCopy) -> list[int]:
    """Return the offsets that one epoch wrote in both, as far as both know it."""
    return [
        at
        for at in range(copy.start, min(copy.end + 1, log.end))
        if log.known(at) == copy.known(at) != -1
    ]


def test_lineage_epoch_of_an_offset_is_the_one_that_wrote_it() -> None:
    for log, lineage in all_logs():
        assert lineage.latest_epoch == log.latest_epoch, log
        assert lineage.start_offset == log.known_from, log
        for at in range(LONGEST + 2):
            assert lineage.epoch_at(at) == log.known(at), (log, at)


def test_lineage_range_of_an_epoch_is_what_it_wrote() -> None:
    for log, lineage in all_logs():
        for epoch in range(6):
            wrote = [at for at in range(log.end) if log.known(at) == epoch]
            found = lineage.range_of(epoch)
            assert list(range(found.first, found.last + 1)) == wrote, (log, epoch)
            assert bool(found) == bool(wrote), (log, epoch)


def test_lineage_epochs_of_a_copy_are_named_only_if_all_are_known() -> None:
    """S2: a copy names the epoch of each of its offsets."""
    for log, lineage in all_logs():
        for first in range(LONGEST + 1):
            for last in range(first, LONGEST + 1):
                whole = log.known_from <= first and last < log.end
                expected = entries_of(log.history, first, last) if whole else ()
                assert lineage.epochs_of(first, last) == expected, (log, first, last)


def test_lineage_up_to_an_offset_has_every_epoch_that_begins_there_or_before() -> None:
    """S5: a replica that begins behind a copy gets all epochs of the log up to the copy's end."""
    for log, lineage in all_logs():
        for last in range(-1, LONGEST + 1):
            expected = entries_of(log.history, log.known_from, min(last, log.end - 1))
            if log.led_from_end and log.end <= last:
                expected += ((log.led_from_end, log.end),)
            assert lineage.up_to(last) == expected, (log, last)


def test_shared_offsets_are_those_that_one_epoch_wrote_in_both() -> None:
    """S1, S2: a copy serves a log as far as it is the same, whole or in part, and no further."""
    parts = 0
    for log, lineage, copy, segment in pairs():
        expected = equal_offsets(log, copy)
        found = lineage.shared(segment)
        assert list(range(found.first, found.last + 1)) == expected, (log, copy)
        assert found or found == OffsetRange(0, -1), (log, copy)
        several = len(set(copy.history[copy.start :])) > 1
        parts += several and bool(expected) and expected[-1] < copy.end
    assert parts > 100, "copies of several epochs that a log shares in part are among the cases"


@cache
def continuations(log: SmallLog) -> list[SmallLog]:
    """Return the log after each sequence of appends by leaders of its latest epoch or later."""
    return [
        SmallLog(history, log.known_from)
        for history in histories()
        if history[: log.end] == log.history
        and all(epoch >= log.latest_epoch for epoch in history[log.end :])
    ]


def test_settled_copies_are_those_that_no_append_makes_the_log_share_more_of() -> None:
    """S2: as long as a log may still come to have a copy's records, the copy is not lost.

    A copy of a later epoch than the log's is a later leader's: it is never settled (S6).
    """
    seen = set()
    for log, lineage, copy, segment in pairs():
        if log.latest_epoch == -1:
            continue
        shared = len(equal_offsets(log, copy))
        may_grow = any(
            len(equal_offsets(later, copy)) > shared
            for later in continuations(log)
            if match(later, copy)
        )
        of_later_leader = copy.last_epoch > log.latest_epoch
        expected = not may_grow and not of_later_leader
        assert lineage.settled(segment) == expected, (log, copy)
        seen.add(expected)
    assert seen == {True, False}


def test_lost_copies_are_settled_ones_that_share_nothing_and_can_be_judged() -> None:
    """S2: the lineage does not deny what lies wholly below the first epoch that it knows."""
    lost = 0
    for log, lineage, copy, segment in pairs():
        judged = log.latest_epoch != -1 and copy.end >= log.known_from
        expected = judged and not equal_offsets(log, copy) and lineage.settled(segment)
        assert lineage.lost(segment) == expected, (log, copy)
        lost += expected
    assert lost > 100
