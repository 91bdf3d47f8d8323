"""Effects of a partition: values that describe what its decisions require.

Methods of `Partition` that decide return effects in the order in which they are to be carried out,
or `()` for nothing to do. They call no other component, so the partition's state is consistent
before anything follows from it. The partition's subscriptions carry out its notifications;
`EffectTable` has a row for each other kind. The caller of such a method carries its effects out or
returns them: `tests/unit/test_tidy.py` fails where they are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.replication.partition.isr import IsrProposal
from broker.replication.subscriptions.notifications import (
    Interrupted,
    IsrChanged,
    Notification,
)


@dataclass(frozen=True, slots=True)
class FlushWanted:
    """The high watermark cannot advance before a flush; call `maybe_advance_high_watermark` after
    it."""


@dataclass(frozen=True, slots=True)
class EpochsUnsaved:
    """The log's epochs must be written to their file; call `epochs_saved` afterwards."""


@dataclass(frozen=True, slots=True)
class Propose:
    """The ISR must be proposed to the controller; call `isr_answered` with the answer."""

    proposal: IsrProposal


@dataclass(frozen=True, slots=True)
class LocalLogsMoved:
    """The local logs of the ISR's members have changed: check with `report_due` whether to report
    them."""


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker leads in a new epoch; it may have led in the previous epoch, too."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """This broker led, and no longer leads in that epoch."""

    leader_epoch: int | None
    """The epoch that ended its leadership; None if the replica is removed."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The replica has a new leader, no leader, or the same leader in a new epoch."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The replica serves nothing any more: it was deleted or moved away, or its disk failed."""


Effect = (
    Notification
    | FlushWanted
    | EpochsUnsaved
    | Propose
    | LocalLogsMoved
    | Elected
    | Resigned
    | Followed
    | Stopped
)
Effects = tuple[Effect, ...]

NOTHING: Final[Effects] = ()
# Constants, so that an append creates no objects.
FLUSH_WANTED: Final[Effects] = (FlushWanted(),)
EPOCHS_UNSAVED: Final[Effects] = (EpochsUnsaved(),)
LOCAL_LOGS_MOVED: Final[Effects] = (LocalLogsMoved(),)
ISR_CHANGED: Final[Effects] = (IsrChanged(),)
INTERRUPTED: Final[Effects] = (Interrupted(),)
