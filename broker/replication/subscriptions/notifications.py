"""Notifications: effects of a partition that its subscriptions carry out.

A partition returns them among its other effects (`broker.replication.partition.effects`). `NOTIFY`
in `subscriptions.py` has a row for each kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from protocol.errors import ErrorCode


# Named tuples, for speed: these three are created for each batch that a reader or request awaits.
class Readable(NamedTuple):
    """Followers can read `size_bytes` more bytes."""

    size_bytes: int


class Committed(NamedTuple):
    """The high watermark has moved to this offset: waiting requests and readers are notified."""

    high_watermark: int
    size_bytes: int
    """Additional bytes that read_uncommitted consumers can read."""


class StableMoved(NamedTuple):
    """The last stable offset has moved: read_committed consumers can read more."""

    size_bytes: int
    """Additional bytes, or somewhat more: see `StableBytes`."""


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


Notification = (
    Readable | Committed | StableMoved | IsrChanged | LowWatermarkMoved | Interrupted | Released
)
