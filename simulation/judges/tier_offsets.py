"""Offsets of a tiered partition as its leader reports them (S8), against the committed records.
Pure.

The requests go one after the other to one leader in one leader epoch, so that each bound may only
have grown since the previous response: -2, -4, -5, -6, a time, -3, -2, -1.

* -2 and -4 are the leader's log start and local log start. There is no gap at the seam: -4 is at
  most one above -5, or is the log start (S1).
* -5 is the end of a finished copy, and lies below the committed end. -6 is one above it, or the log
  start (KIP-1023).
* The epochs of all these are those with which the offsets were committed.
* The response to a time is the first committed record of that time or later, and the response to -3
  a record of the highest time. Each has the record's own time, in whichever tier it is (KIP-734,
  KIP-405). It is empty if the record with the highest time is not committed yet, in Kafka too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from simulation.judges.committed import PartitionTruth
from simulation.world.invariants import Key, require


class Reported(NamedTuple):
    """One response; -1: nothing."""

    offset: int
    timestamp_ms: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The responses of one leader. `committed` is the committed end at the first request, and
    `at_s` its time; `by_time` is the response for `wanted_ms`."""

    name: str
    key: Key
    leader_id: int
    committed: int
    at_s: float
    strict: bool
    """True if no fault was active any more."""
    wanted_ms: int
    first: Reported
    local: Reported
    tiered: Reported
    pending: Reported
    by_time: Reported
    highest: Reported
    start: Reported
    latest: Reported

    def __str__(self) -> str:
        names = "first", "local", "tiered", "pending", "by_time", "highest", "start", "latest"
        offsets = ", ".join(f"{name} {getattr(self, name).offset}" for name in names)
        return f"{self.name}: of {self.committed}, {offsets}, time {self.wanted_ms}"


def judge_listed(
    one: Listed,
    truth: PartitionTruth,
    ends: Collection[int],
    least: int,
    bounds: Iterable[tuple[int, int]],
) -> None:
    """Judge the responses of one leader by the rules of this module.

    Args:
        ends: the last offsets of all copies that were ever finished.
        least: the lowest valid -5, from a copy finished long ago; -1: none.
        bounds: log starts and local log starts of the leader's log in the meantime.

    Raises: Violation if a response breaks a rule.
    """
    where = f"S8: {one}"
    require(one.first.offset <= one.start.offset, f"{where}: log start goes back")
    starts, local_starts = (set(each) for each in zip(*bounds, strict=True))
    for reported in (one.first, one.start):
        require(reported.offset in starts, f"{where}: {reported}, the log starts were {starts}")
    local = one.local.offset
    require(local in local_starts, f"{where}: {local}, local starts were {local_starts}")
    require(one.start.offset <= one.latest.offset <= truth.end, f"{where}: committed {truth.end}")
    _judge_tiered(where, one, ends, least)
    for reported in (one.first, one.local, one.tiered, one.start):
        epoch = _epoch_of(truth, reported.offset)
        require(
            -1 in (epoch, reported.epoch) or reported.epoch == epoch,
            f"{where}: {reported} is of {epoch}",
        )
    _judge_times(where, one, truth)


def _judge_tiered(where: str, one: Listed, ends: Collection[int], least: int) -> None:
    tiered, pending = one.tiered.offset, one.pending.offset
    require(tiered >= least, f"{where}: {least} was copied long ago")
    if tiered >= 0:
        require(tiered in ends, f"{where}: no copy ends at {tiered}, but at {sorted(ends)[-3:]}")
        require(tiered < one.latest.offset, f"{where}: the tier has what is not committed")
        seam = max(tiered + 1, one.start.offset)
        require(one.local.offset <= seam, f"{where}: a gap, the tier ends at {tiered}")
        untold = pending < 0 and not one.strict  # tiering has been disabled in the meantime
        require(untold or pending > tiered, f"{where}: {pending} is to be copied")
    if pending >= 0:
        begins = one.first.offset <= pending <= one.start.offset
        require(begins or pending - 1 in ends, f"{where}: {pending} is to be copied")


def _judge_times(where: str, one: Listed, truth: PartitionTruth) -> None:
    """Judge the responses by time. Records deleted or committed in the meantime need not count."""
    there = range(one.start.offset, one.committed)
    found = one.by_time
    until = found.offset if found.offset >= 0 else one.committed
    missed = _first_of(at for at in there if at < until and truth.times[at] >= one.wanted_ms)
    require(missed is None, f"{where}: {missed} is of that time")
    if found.offset >= 0:
        is_of = truth.times.get(found.offset, -1)
        require(found.offset >= one.first.offset, f"{where}: {found} is deleted")
        require(found.timestamp_ms == is_of >= one.wanted_ms, f"{where}: {found} is of {is_of}")
    highest = one.highest
    most = max((truth.times[at] for at in there), default=-1)
    if highest.offset >= 0:
        require(highest.timestamp_ms >= most, f"{where}: {highest}, the highest time is {most}")
        is_of = truth.times.get(highest.offset, -1)
        require(highest.timestamp_ms == is_of, f"{where}: {highest} is of {is_of}")


def _first_of(offsets: Iterable[int]) -> int | None:
    return next(iter(offsets), None)


def _epoch_of(truth: PartitionTruth, offset: int) -> int:
    """Return the epoch with which an offset was committed; -1 if it is not committed."""
    bases = list(truth.batches)
    at = bisect_right(bases, offset) - 1
    if at < 0 or not 0 <= offset < truth.end:
        return -1
    return truth.batches[bases[at]][2]
