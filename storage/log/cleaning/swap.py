"""Shell: Swap of cleaned segments for old ones: a crash leaves either the old or the new ones.

1. The `.cleaned` files, which are durable, are renamed to `.swap`; the renames are made durable.
   From now on a start would finish the swap (`storage.log.recovery`).
2. In one step without an await, the old files are renamed to `.deleted`, the new ones get their
   final names, and the log's list of segments changes. Readers see the old segments before and the
   new ones after. A reader that is reading an old file in a worker finishes it or looks it up
   again.
3. The renames are made durable.

Between 1 and 2 the event loop runs. If the log is truncated in the meantime, the `.swap` files are
removed first (`Segments.abandon_swap`): a start must not restore truncated records.

A `.log` is the last file to become `.swap`, so that a `.swap` of it always has its indexes, and the
first to get its final name.
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
    """The log changed while its cleaned segments were being swapped in."""


async def swap_in(log: Log, cleaned: Cleaned) -> None:
    """Replace segments of `log` by the `.cleaned` files that were made from them.

    Raises:
        SwapAbandoned: some of those segments no longer exist; the new files are removed.
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
        log.guard.fail(error)
        raise LogFailed(log.directory, error) from error


def _begin(log: Log, cleaned: Cleaned) -> list[str]:
    """Run step 1 without the wait. Returns the paths of the `.swap` files."""
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
    """Run step 2."""
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
    log.trimming.discard(renamed)
