"""The offsets that bound a log, and those that its checkpoints have on the disk.

    log start <= local log start <= high watermark <= log end,  recovery point <= log end

`log_start_offset` is the first offset that exists at all; below `local_log_start_offset` only the
remote store has the records. Everything below the recovery point is known to be on the disk.
"""

from __future__ import annotations


class LogBounds:
    """The bounds of one log. Only the log's parts change them, unless stated otherwise."""

    __slots__ = (
        "bootstrapping", "checkpointed_recovery_point", "copied_to", "cut_at", "cut_unflushed",
        "high_watermark", "local_log_start_offset", "log_end_offset", "log_start_offset",
        "recovery_point", "saved_log_start", "saved_recovery_point", "tiering_known",
        "truncations", "was_tiered",
    )  # fmt: skip

    def __init__(
        self, log_start_offset: int, local_log_start_offset: int, log_end_offset: int
    ) -> None:
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = local_log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = local_log_start_offset
        self.recovery_point = 0
        self.copied_to = 0
        """First offset without a finished copy in the remote store on this replica's lineage; set
        by the tiering. While the log is copied, local segments above it are not removed (S2)."""
        self.saved_log_start = 0
        """Lower bound of the log start in the checkpoint on the disk; set by the manager, which
        writes the checkpoint. A tiered log keeps its epochs from there on: after a crash it begins
        there again, and remote segments are found by their epoch."""
        self.was_tiered = False
        """True if the log was tiered at any time since it was opened: it may be tiered again."""
        self.tiering_known = True
        """False while the configuration only assumes that the log is tiered, as at a start."""
        self.bootstrapping = False
        """`begin_at` is running or has failed: no reader or writer may use or count on this log."""
        self.checkpointed_recovery_point = self.saved_recovery_point = 0
        """Upper and lower bound of the recovery point in the checkpoint on the disk. They differ
        while it is being written, and after a failed write. Set by the manager, which writes it."""
        self.truncations = 0
        """Number of truncations: after one, an offset may have another record."""
        self.cut_unflushed = False
        """True if a power cut may undo a truncation, until the next flush."""
        self.cut_at = log_end_offset
        """The lowest log end after a truncation since the last flush, while `cut_unflushed`."""

    def __repr__(self) -> str:
        return f"LogBounds({self.log_start_offset}..{self.log_end_offset})"

    @property
    def is_partly_remote(self) -> bool:
        """True if only the remote store has the first records."""
        return self.log_start_offset < self.local_log_start_offset

    @property
    def owes_log_start(self) -> bool:
        """True if a crash could lower the log start to records that no longer exist (S4).

        Segments are kept until the start is in the checkpoint (see `Log.retention`).
        """
        return self.was_tiered and self.saved_log_start < self.log_start_offset

    @property
    def durable_high_watermark(self) -> int:
        """High watermark for the checkpoint: not above what survives a power cut.

        A power cut may undo a truncation that was not flushed. The truncated records are then back
        in place of the later ones, and must not count as committed.
        """
        return min(self.high_watermark, self.cut_at) if self.cut_unflushed else self.high_watermark

    def limit_high_watermark(self, offset: int) -> int:
        """Return the offset, limited to [local log start, log end].

        Records that only the remote store has were committed before they were copied (S1).
        """
        if self.local_log_start_offset <= offset <= self.log_end_offset:
            return offset
        return max(self.local_log_start_offset, min(offset, self.log_end_offset))

    def note_cut(self, end: int) -> None:
        """Note that records were removed from `end` on, and not flushed yet."""
        self.cut_at = min(self.cut_at, end) if self.cut_unflushed else end
        self.cut_unflushed = True

    def end_at(self, end: int) -> None:
        """Lower the log end, and the bounds above it."""
        self.log_end_offset = end
        self.recovery_point = min(self.recovery_point, end)
        self.high_watermark = min(self.high_watermark, end)
        self.copied_to = min(self.copied_to, end)

    def begin_empty(self, offset: int, log_start_offset: int) -> None:
        """Set the bounds of a log without local records: the next one gets `offset`."""
        self.log_end_offset = self.recovery_point = offset
        self.log_start_offset = log_start_offset
        self.saved_log_start = min(self.saved_log_start, log_start_offset)
        self.local_log_start_offset = self.high_watermark = offset
        self.copied_to = min(self.copied_to, offset)

    def flushed_to(self, offset: int) -> None:
        """Note that everything below `offset` is on the disk, with all truncations."""
        self.recovery_point = max(self.recovery_point, offset)
        self.cut_unflushed = False
