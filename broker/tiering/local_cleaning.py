"""The part of a log that local retention may delete because the tier has it (S2).

The normal retention of a copied log stops at `LogBounds.copied_to`. Below that offset,
`local.retention.*` applies, on leaders and followers alike, each by its own lineage. So while the
store or the metadata is unreachable, no more segments are deleted (S9).
"""

from __future__ import annotations

from storage.log.log import Log
from storage.tiered.cache import SegmentCache
from storage.tiered.lineage import Lineage


def note_copied(log: Log, cache: SegmentCache | None) -> None:
    """Set the log's `copied_to` to the end of its finished copies, after the metadata has changed.

    It may decrease: a deleted copy does not count from then on.
    """
    if cache is None or cache.deletion is not None or log.history.lacks_remote_part:
        log.bounds.copied_to = 0
        return
    lineage = Lineage(log.epochs.entries, log.log_end_offset)
    first = max(log.log_start_offset, log.local_log_start_offset)
    log.bounds.copied_to = cache.covered_to(lineage, first, log.log_end_offset - 1)
