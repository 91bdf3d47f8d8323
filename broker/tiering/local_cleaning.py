"""The part of a log that its own retention may take because the tier has it (S2).

The retention of a log that is copied stops at `Log.copied_to`; what is below goes by
`local.retention.*`, on leaders and followers alike, each by its own lineage. So with a store or
metadata that cannot be reached nothing more goes (S9).
"""

from __future__ import annotations

from storage.log.log import Log
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage


def note_copied(log: Log, cache: SegmentCache | None) -> None:
    """Tell the log how far finished copies have it, now that the metadata say something else.

    Not a memory of how far they once had it: a copy that is deleted does not count from then on.
    """
    if cache is None or cache.deletion is not None or log.lacks_remote_epochs:
        log.copied_to = 0
        return
    lineage = Lineage(log.epochs.entries, log.log_end_offset)
    first = max(log.log_start_offset, log.local_log_start_offset)
    log.copied_to = cache.covered_to(lineage, first, log.log_end_offset - 1)
