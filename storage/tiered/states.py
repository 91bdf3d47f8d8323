"""States of a remote segment and of a partition's removal, and their transitions (KIP-405).

The numbers are those of `__remote_log_metadata`. A state may follow itself: a record that was
written twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class SegmentState(IntEnum):
    """State of a remote segment, from the first byte copied to the last object deleted."""

    COPY_STARTED = 0
    """Objects may exist; they must not be read."""
    COPY_FINISHED = 1
    """All objects exist."""
    DELETE_STARTED = 2
    """Objects may be missing; they must not be read."""
    DELETE_FINISHED = 3
    """No object exists."""


class PartitionDeleteState(IntEnum):
    """Progress of the removal of a deleted partition's segments."""

    MARKED = 0
    STARTED = 1
    FINISHED = 2


SEGMENT_TRANSITIONS: Final[Mapping[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_STARTED}),
    SegmentState.COPY_STARTED: frozenset({SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}),
    SegmentState.COPY_FINISHED: frozenset({SegmentState.DELETE_STARTED}),
    SegmentState.DELETE_STARTED: frozenset({SegmentState.DELETE_FINISHED}),
    SegmentState.DELETE_FINISHED: frozenset(),
}
PARTITION_TRANSITIONS: Final[
    Mapping[PartitionDeleteState | None, frozenset[PartitionDeleteState]]
] = {
    None: frozenset({PartitionDeleteState.MARKED}),
    PartitionDeleteState.MARKED: frozenset({PartitionDeleteState.STARTED}),
    PartitionDeleteState.STARTED: frozenset({PartitionDeleteState.FINISHED}),
    PartitionDeleteState.FINISHED: frozenset(),
}


def segment_may_become(state: SegmentState | None, target: SegmentState) -> bool:
    """Return whether a record with `target` may follow `state`; None: the segment is unknown."""
    return state is target or target in SEGMENT_TRANSITIONS[state]


def partition_may_become(state: PartitionDeleteState | None, target: PartitionDeleteState) -> bool:
    """Return whether a record with `target` may follow `state`; None: nothing was marked."""
    return state is target or target in PARTITION_TRANSITIONS[state]
