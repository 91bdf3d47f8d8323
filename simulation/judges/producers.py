"""Idempotent producers in logs: committed sequences without gap or repetition (T1), and a replica's
producer state that matches its log (T2)."""

from __future__ import annotations

from protocol.batch.header import BatchHeader
from simulation.world.invariants import Violation, require
from storage.log.log import Log

SEQUENCES = 1 << 31
"""After the last number comes 0 (KAFKA-7692)."""


class Sequences:
    """The next sequence of each producer id and epoch in one partition."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}

    def committed(self, where: str, batch: BatchHeader) -> None:
        """Judge the next committed batch (T1). The first known batch of a producer may have any
        sequence."""
        if batch.producer_id < 0 or batch.is_control:
            return
        key = (batch.producer_id, batch.producer_epoch)
        first = batch.base_sequence
        awaited = self._next.get(key, first)
        if first != awaited:
            at = batch.base_offset
            raise Violation(f"T1: {where}: producer {key} has {first} at {at}, not {awaited}")
        self._next[key] = (first + batch.last_offset_delta + 1) % SEQUENCES


class LastBatches:
    """The last batch of each producer in a log that is read from its start."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def read(self, batch: BatchHeader) -> None:
        """Enter the next batch of the log."""
        if batch.producer_id >= 0 and not batch.is_control:
            self._last[batch.producer_id] = (batch.producer_epoch, batch.last_offset)

    def judge(self, where: str, log: Log) -> None:
        """Judge the producer state of a log (T2). It may be anything for producers whose batches
        are deleted, or only in the tier."""
        for state in log.producers:
            if state.last_offset >= log.local_log_start_offset:
                known, there = (state.epoch, state.last_offset), self._last.get(state.producer_id)
                require(
                    known == there,
                    f"T2: {where}: producer {state.producer_id} is remembered with {known}, the "
                    f"log has {there}",
                )
        forgotten = [one for one in self._last if log.producers.get(one) is None]
        require(not forgotten, f"T2: {where}: nothing is known of the producers {forgotten}")
