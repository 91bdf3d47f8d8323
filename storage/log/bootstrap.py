"""State before the local start of a log that begins in the middle of a partition (KIP-405).

A follower of a tiered partition copies only the end of the log. Epochs, producer state and log
start come from the remote store instead. Until all of that is durable, the folder contains a
marker. A log that is loaded with a marker begins from scratch, since half of a history is worse
than none (S5).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from storage.log.epochs import EpochCache, EpochEntry
from storage.log.indexes import AbortedTxn
from storage.log.producers import ProducerStates

MARKER: Final = "bootstrap.unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Start of a log, and the state before its first local offset.

    Attributes:
        log_start_offset: first offset that exists at all.
        local_start_offset: first offset that this replica will hold.
        epochs: the leader epochs in [log start, local start), in order.
        producers: the producer snapshot file at `producers_offset`; None: no producers.
        producers_offset: the end of the copied segment that the snapshot belongs to, at or above
        the local start; -1: the local start.
        aborted: the aborted transactions of that segment. A snapshot from above the local start
        lacks those that were still open there (T2).
    """

    log_start_offset: int
    local_start_offset: int
    epochs: Sequence[EpochEntry] = ()
    producers: bytes | None = None
    producers_offset: int = -1
    aborted: Sequence[AbortedTxn] = ()

    def check(self) -> None:
        """Validate the state.

        Raises:
            ValueError: the parts contradict each other.
            CorruptSnapshot: `producers` cannot be decoded.
        """
        start, local = self.log_start_offset, self.local_start_offset
        if not 0 <= start <= local:
            raise ValueError(f"local log start {local} is below log start {start}")
        if 0 <= self.producers_offset < local:
            raise ValueError(
                f"producer snapshot of offset {self.producers_offset} is below "
                f"local log start {local}"
            )
        kept = EpochCache(self.epochs).entries
        if kept != list(self.epochs):
            raise ValueError(f"epochs {list(self.epochs)} are not in order")
        if start < local and not (kept and kept[0].start_offset <= start):
            raise ValueError(f"no epoch covers log start {start}: {kept}")
        if kept and kept[-1].start_offset >= local:
            raise ValueError(f"epoch {kept[-1].epoch} begins at or above local log start {local}")
        if self.producers is not None:
            ProducerStates(0).load_snapshot(self.producers, 0)


def marker_path(directory: str) -> str:
    return posixpath.join(directory, MARKER)
