"""The state of a log's producers with its snapshots on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from runtime.clock import Clock
from storage.log import recovery
from storage.log.bootstrap import Beginning
from storage.log.bounds import LogBounds
from storage.log.ended_txns import ended_since
from storage.log.errors import CorruptLog
from storage.log.guard import LogGuard
from storage.log.producer_snapshots import ProducerSnapshots
from storage.log.producers import NO_COORDINATOR_EPOCH, ProducerStates
from storage.log.segment import Segment
from storage.log.snapshot_capture import SnapshotCapture
from storage.log.unstable import EndedTxn

AT_ONCE_MAX: Final = 2_000
"""Producers that a roll encodes at once: two milliseconds."""


class ProducerHistory:
    """The producers of one log: `states` at the log end, `snapshots` at segment starts."""

    __slots__ = ("_bounds", "_capture", "_clock", "_guard", "_report", "snapshots", "states")

    def __init__(
        self,
        states: ProducerStates,
        snapshots: ProducerSnapshots,
        bounds: LogBounds,
        guard: LogGuard,
        clock: Clock,
        report: recovery.RecoveryReport,
    ) -> None:
        self.states = states
        self.snapshots = snapshots
        self._bounds = bounds
        self._guard = guard
        self._clock = clock
        self._report = report
        self._capture: SnapshotCapture | None = None

    @property
    def lacks_beginning(self) -> bool:
        """True if the producer state at the local log start is not known: no snapshot is that old.

        A follower then starts over with `Log.begin_at`.
        """
        if not self._bounds.is_partly_remote:
            return False
        offsets = self.snapshots.offsets
        return not offsets or offsets[0] > self._bounds.local_log_start_offset

    def restore(self, snapshot: bytes) -> bool:
        """Restore the producer state at the local log start if no snapshot of it is left.

        Returns whether that was needed. Raises CorruptSnapshot, LogFailed.
        """
        if self.snapshots.offsets or not self.lacks_beginning:
            return False
        older = ProducerStates(self.states.expiration_ms)
        older.load_snapshot(snapshot, self._clock.now_ms())
        local = self._bounds.local_log_start_offset
        self._guard.run(lambda: self.snapshots.take(local, older))
        self.states.put_before(older)
        return True

    @property
    def is_encoding(self) -> bool:
        """True if `snapshot_steps` must finish a snapshot."""
        return self._capture is not None

    def _encode(self, capture: SnapshotCapture | None) -> None:
        self._capture = capture
        self.states.before_change = None if capture is None else capture.keep

    def take_snapshot(self, offset: int) -> None:
        """Write a snapshot, unless the state lacks its beginning: the next start would mistake such
        a snapshot for a complete one. Raises OSError."""
        if not self.lacks_beginning:
            for _ in self.snapshot_steps():
                pass
            self.snapshots.take(offset, self.states)

    def begin_snapshot(self, offset: int) -> None:
        """Take a snapshot as `take_snapshot`, but leave many producers to `snapshot_steps`.

        While the previous snapshot is unfinished, none is begun: a crash then costs a longer
        replay. Raises OSError.
        """
        states = self.states
        if len(states) <= AT_ONCE_MAX:
            self.take_snapshot(offset)
        elif self._capture is None and not self.lacks_beginning:
            self._encode(SnapshotCapture(offset, list(states)))

    def snapshot_steps(self) -> Iterator[None]:
        """Finish the snapshot that is being encoded, in steps. The last one raises OSError."""
        capture = self._capture
        if capture is None:
            return
        content = yield from capture.steps()
        # A truncation may have dropped it, or another caller may have finished it.
        if self._capture is capture and not self._guard.closed:
            self._encode(None)
            if not self.snapshots.reaches(capture.offset):
                self.snapshots.write(capture.offset, content)

    def begin_with(self, beginning: Beginning) -> None:
        """Replace the state of an empty log that begins in the middle.

        Transactions that were open there and are committed later in the copied segment are not
        known. So the last stable offset stays at the log start until the high watermark has passed
        the end of that segment (T5). Raises OSError.
        """
        local, states = beginning.local_start_offset, self.states
        if beginning.producers is not None:
            states.load_snapshot(beginning.producers, self._clock.now_ms())
            open_there = [
                txn for txn in beginning.aborted if txn.first_offset < local <= txn.last_offset
            ]
            ended = any(state.coordinator_epoch != NO_COORDINATOR_EPOCH for state in states)
            states.reopen(open_there)
            states.leave_out_from(local)
            if ended and beginning.producers_offset > local:
                last = beginning.producers_offset - 1
                states.unstable.add((), [EndedTxn(last, beginning.log_start_offset)])
        self.snapshots.take(local, states)

    def reload(self, segments: Sequence[Segment]) -> None:
        """Compute the state at the log end from a snapshot and the segments, after a truncation.

        Problems with snapshots are added to the report of the recovery.
        """
        problems: list[str] = []
        end, unstable = self._bounds.log_end_offset, self.states.unstable
        if self._capture is not None and self._capture.offset > end:
            self._encode(None)
        # A snapshot does not contain them.
        ended = [txn for txn in unstable.ended if txn.marker_offset < end]
        recovery.load_producers(
            self.snapshots,
            self.states,
            list(segments),
            end,
            self._clock.now_ms(),
            problems,
            log_start_offset=self._bounds.log_start_offset,
        )
        self._report.problems += problems
        unstable.add((), ended)
        self.states.on_high_watermark(self._bounds.high_watermark)

    def recall_ended(self, segments: Sequence[Segment]) -> None:
        """Find the transactions that ended above the high watermark of the checkpoint.

        Damaged batches are added to the report of the recovery. Raises OSError.
        """
        now_ms = self._clock.now_ms()
        try:
            ended = ended_since(
                self._bounds.high_watermark, self.states, self.snapshots, segments, now_ms
            )
        except CorruptLog as error:
            self._report.problems.append(f"transactions above the high watermark: {error}")
            return
        if ended:
            self.states.unstable.add((), ended)

    def clear(self) -> None:
        """Remove the state and all snapshots. Raises OSError."""
        self._encode(None)
        self.snapshots.remove_above(-1)
        self.states.clear()
