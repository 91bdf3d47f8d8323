"""Shell: Swap of cleaned segments for old ones: a crash leaves the one or the other.

1. The `.cleaned` files, which are on the disk, get the name `.swap`; that is made durable. From now
   on a start would finish the swap (`storage.log.recovery`).
2. In one step that nothing interrupts: the old files get `.deleted`, the new ones their own names,
   and the log's list of segments changes. Readers see the old segments before and the new ones
   after; who was reading an old file off the loop reads it to the end or looks again.
3. The names are made durable.

Between 1 and 2 the loop runs. If the log is cut meanwhile, the `.swap` files go first
(`Segments.abandon_swap`): a start must not bring back what was cut.

A `.log` is the last to become `.swap`, so that a `.swap` of it always has its indexes; and the
first to get its own name.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from storage.log.cleaning.job import Cleaned
from storage.log.errors import LogFailed
from storage.log.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    file_name,
)

if TYPE_CHECKING:
    from storage.log.log import Log


class SwapAbandoned(Exception):
    """The log was changed while its cleaned segments were on their way in."""


async def swap_in(log: Log, cleaned: Cleaned) -> None:
    """Replace segments of `log` with the `.cleaned` files that were made of them.

    Raises:
        SwapAbandoned: those segments are not all there any more; the new files are gone.
        LogFailed: a disk error, which closes the log for appends.
    """
    try:
        paths = _begin(log, cleaned)
        try:
            await log.files.run(log.files.fsync_dir, log.directory)
        except asyncio.CancelledError:
            log.segments.abandon_swap()
            raise
        if not log.segments.is_swapping(paths):
            raise SwapAbandoned(log.directory)
        _replace(log, cleaned, paths)
        await log.files.run(log.files.fsync_dir, log.directory)
    except OSError as error:
        log.fail(error)
        raise LogFailed(log.directory, error) from error


def _begin(log: Log, cleaned: Cleaned) -> list[str]:
    """Step 1 without the wait; returns the `.swap` files."""
    if log.closed or log.segments.find_closed(cleaned.replaced) is None:
        raise SwapAbandoned(log.directory)
    paths = []
    for base in reversed(cleaned.produced):
        for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
            path = f"{log.directory}/{file_name(base, suffix)}"
            if log.files.exists(path + CLEANED_SUFFIX):
                log.files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
                paths.append(path + SWAP_SUFFIX)
    log.segments.begin_swap(paths)
    return paths


def _replace(log: Log, cleaned: Cleaned, paths: list[str]) -> None:
    """Step 2."""
    replaced = log.segments.find_closed(cleaned.replaced)
    assert replaced is not None, "whatever removes segments abandons the swap"
    log.segments.commit_swap()
    renamed = []
    for segment in replaced:
        if segment.base_offset not in cleaned.produced:
            log.snapshots.remove_oldest_at(segment.base_offset)
        renamed += segment.rename_deleted()
    for path in reversed(paths):
        log.files.rename(path, path[: -len(SWAP_SUFFIX)])
    created_ms = replaced[-1].created_ms
    produced = [
        Segment(log.files, log.directory, base, log.config, created_ms) for base in cleaned.produced
    ]
    log.segments.replace(replaced, produced)
    log.discard(renamed)
