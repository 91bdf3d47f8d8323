"""Effects of a partition: values that describe what its decisions require.

Methods of `Partition` that decide return effects in the order in which they are to be carried out,
or `()` for nothing to do. They call no other component, so the partition's state is consistent
before anything follows from it. `EffectTable` has a row for each kind. The caller of such a method
carries its effects out or returns them: `tests/unit/test_tidy.py` fails where they are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.replication.partition.isr import IsrProposal
from protocol.errors import ErrorCode


# Named tuples, for speed: these two are created for each batch that a reader or request waits for.
class Readable(NamedTuple):
    """Followers can read `size_bytes` more bytes."""

    size_bytes: int


class Committed(NamedTuple):
    """The high watermark has moved to this offset: waiting requests and readers are notified."""

    high_watermark: int
    size_bytes: int
    """Additional bytes that consumers can read."""


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The ISR or the proposed ISR has changed: followers learn it with their next fetch."""


@dataclass(frozen=True, slots=True)
class LowWatermarkMoved:
    """The smallest log start among the ISR may have moved."""

    low_watermark: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The leader epoch has changed: waiting fetches are answered at once."""


@dataclass(frozen=True, slots=True)
class Released:
    """Offsets that requests wait for will not be reached here: they fail with `error`."""

    error: ErrorCode


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
    Readable
    | Committed
    | IsrChanged
    | LowWatermarkMoved
    | Interrupted
    | Released
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
