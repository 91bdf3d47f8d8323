"""Effects of a partition: what it wants done once it has decided something.

Methods of `Partition` that decide return effects: values, in the order in which they are to be
carried out, and `()` where there is nothing to do. They call nobody, so that a partition is whole
before anything follows from it. `EffectTable` has a row for each kind. Whoever calls such a method
carries its effects out or hands them on: `tests/unit/test_tidy.py` fails where they are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.replication.isr import IsrProposal
from protocol.errors import ErrorCode


# These two are made for each batch that somebody waits for.
class Readable(NamedTuple):
    """Followers can read so many bytes more."""

    size_bytes: int


class Committed(NamedTuple):
    """The high watermark has come here: whoever waits for that, or reads, is told."""

    high_watermark: int
    size_bytes: int
    """What consumers can read more."""


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The ISR, or what was proposed, is another one: followers are told with their next fetch."""


@dataclass(frozen=True, slots=True)
class LowWatermarkMoved:
    """All of the ISR begin here or later."""

    low_watermark: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A new epoch: fetches that wait are answered at once."""


@dataclass(frozen=True, slots=True)
class Released:
    """What is waited for does not happen here any more."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class FlushWanted:
    """Nothing more can be committed before a flush; `maybe_advance_high_watermark` is to be called
    after one."""


@dataclass(frozen=True, slots=True)
class EpochsUnsaved:
    """The log's epochs are to be written to their file; `epochs_saved` is to be called after."""


@dataclass(frozen=True, slots=True)
class Propose:
    """The controller is to be asked for this ISR; `isr_answered` is to be called."""

    proposal: IsrProposal


@dataclass(frozen=True, slots=True)
class LocalLogsMoved:
    """What the members of the ISR have locally may have to be told; `report_due` is to be asked."""


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker leads under a new epoch; it may have led under the epoch before, too."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """It led, and does no longer in the epoch in which it did."""

    leader_epoch: int | None
    """The epoch that ended it; None: the replica goes."""


@dataclass(frozen=True, slots=True)
class Followed:
    """It has another leader, or none, or its leader another epoch."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """It serves nothing any more: deleted, moved away, its disk broken."""


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
# Made once: the path of an append makes no object.
FLUSH_WANTED: Final[Effects] = (FlushWanted(),)
EPOCHS_UNSAVED: Final[Effects] = (EpochsUnsaved(),)
LOCAL_LOGS_MOVED: Final[Effects] = (LocalLogsMoved(),)
ISR_CHANGED: Final[Effects] = (IsrChanged(),)
INTERRUPTED: Final[Effects] = (Interrupted(),)
