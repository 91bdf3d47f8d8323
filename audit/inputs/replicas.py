"""Replicas of the brokers, and the sends that they acknowledged to clients."""

from __future__ import annotations

from typing import NamedTuple

from audit.inputs.metadata_log import Segment


class ReplicaFiles(NamedTuple):
    """One replica on disk.

    `high_watermark` and `log_start` are the values that its broker last stored, 0 without one.
    `epochs` are the (epoch, first offset) pairs of its checkpoint, None without a file.

    at_rest: the broker stopped cleanly, so all of this is up to date. While a broker runs, and
    after a crash, each of these files may be outdated. In a copy the end of the log may be
    outdated, too, because files are copied one after the other.
    """

    topic: str
    partition: int
    broker: int
    path: str
    topic_id: str | None
    high_watermark: int
    epochs: tuple[tuple[int, int], ...] | None
    segments: tuple[Segment, ...]
    log_start: int = 0
    at_rest: bool = False


class AcknowledgedSend(NamedTuple):
    """One acknowledged send.

    `value` is unique in the history; the record's value in the log begins with it in decimal and a
    bar.
    """

    process: int
    order: int
    value: int
    offset: int
